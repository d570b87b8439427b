//! `cargo bench --bench hour -- --minutes 60`: does the store stay as large as it is?

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use forebay_benches::{End, Hour, Machine, bytes, table};

/// What the `forebay` command has its memory from.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str =
    "usage: cargo bench --bench hour -- [--minutes N] [--live SIZE] [--writers N] [--csv FILE] \
                     [--plot FILE.svg] [--every SECONDS] [--json] [--quick]
  --minutes N      how long (default 60)
  --live SIZE      about how many bytes of samples are live at once (default 1GiB)
  --writers N      threads that write (default 2)
  --csv FILE       a line for each look, as it is taken
  --plot FILE.svg  the picture, at the end
  --every SECONDS  how often the run is looked at (default 2)
  --json           one JSON object a line instead of a table
  --quick          a few steps: shows that it runs, says nothing of slopes";

fn main() -> ExitCode {
    let (hour, json) = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(reason) => {
            eprintln!("{reason}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let (machine, load) = (Machine::of_this_run(), Machine::load());
    match hour.run() {
        Ok(rows) if json => rows.iter().for_each(|row| println!("{}", row.json())),
        Ok(rows) => print!("{}", table(&rows)),
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    }
    eprintln!("{machine}; load {load} before, {} after", Machine::load());
    ExitCode::SUCCESS
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<(Hour, bool), String> {
    let (mut hour, mut json) = (Hour::default(), false);
    while let Some(word) = words.next() {
        let mut next = || words.next().ok_or_else(|| format!("{word} wants a value"));
        match word.as_str() {
            "--minutes" => hour.end = End::After(time(&next()?, 60.0)?),
            "--every" => hour.interval = time(&next()?, 1.0)?,
            "--live" => hour.live_bytes = bytes(&next()?)?,
            "--writers" => hour.writers = whole(&next()?)?,
            "--csv" => hour.csv = Some(PathBuf::from(next()?)),
            "--plot" => hour.plot = Some(PathBuf::from(next()?)),
            "--quick" => hour = Hour { csv: hour.csv, plot: hour.plot, ..Hour::quick() },
            "--json" => json = true,
            "--bench" => {} // what cargo adds
            other => return Err(format!("unknown argument {other:?}")),
        }
    }
    Ok((hour, json))
}

fn time(text: &str, unit_seconds: f64) -> Result<Duration, String> {
    let number = text.parse::<f64>().ok().filter(|number| *number > 0.0 && *number < 1e6);
    let number = number.ok_or_else(|| format!("{text:?} is no time"))?;
    Ok(Duration::from_secs_f64(number * unit_seconds))
}

fn whole(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|number| (1..=64).contains(number))
        .ok_or_else(|| format!("{text:?} is not from 1 to 64"))
}
