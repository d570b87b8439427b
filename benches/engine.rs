//! `cargo bench --bench engine -- [--json] [--quick] [--only GROUP] [--live SIZE] [--seconds N]`: what the engine takes, beside its limit.

use std::process::ExitCode;
use std::time::Duration;

use forebay_benches::{Killed, Machine, Row, Scale, bytes, groups, run, table};

/// What the `forebay` command has its memory from.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str = "usage: cargo bench --bench engine -- [--json] [--quick] [--only GROUP,..]
                                           [--live SIZE] [--seconds N]
  --json           one JSON object a line instead of a table
  --quick          tiny sizes: shows that every row runs, says nothing of speed
  --only GROUP,..  the groups whose name contains one of these
  --live SIZE      what is live at once in rows of ingest (default 1GiB)
  --seconds N      how long each row of ingest is measured at least (default: a few repetitions)";

#[derive(Default)]
struct Arguments {
    json: bool,
    quick: bool,
    only: String,
    live: Option<usize>,
    seconds: u64,
}

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(reason) => {
            eprintln!("{reason}\n{USAGE}\ngroups: {}", groups().collect::<Vec<_>>().join(", "));
            return ExitCode::from(2);
        }
    };
    let scale = if arguments.quick { Scale::QUICK } else { Scale::FULL };
    let scale = arguments.live.map_or(scale, |bytes| scale.live(bytes));
    let scale = scale.row_time(Duration::from_secs(arguments.seconds));
    let (machine, load) = (Machine::of_this_run(), Machine::load());
    let mut rows: Vec<Row> = Vec::new();
    let killed = Killed::at(env!("CARGO_BIN_EXE_killed"));
    let outcome = run(scale, &killed, &arguments.only, &mut |row| {
        if arguments.json {
            println!("{}", row.json());
        } else {
            eprintln!("{}", row.json());
        }
        rows.push(row);
    });
    if !arguments.json {
        print!("{}", table(&rows));
    }
    let digest = rows.iter().fold(0_u64, |all, row| all.rotate_left(7) ^ row.digest());
    eprintln!("{machine}; load {load} before, {} after; digest {digest:016x}", Machine::load());
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments::default();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--json" => arguments.json = true,
            "--quick" => arguments.quick = true,
            "--only" => arguments.only = words.next().ok_or("--only wants the name of a group")?,
            "--live" => arguments.live = Some(bytes(&words.next().ok_or("--live wants a size")?)?),
            "--seconds" => arguments.seconds = seconds(words.next())?,
            "--bench" => {} // what cargo adds
            other => return Err(format!("unknown argument {other:?}")),
        }
    }
    let unknown = |only: &&str| groups().all(|group| !group.contains(only));
    if let Some(only) = arguments.only.split(',').find(unknown) {
        return Err(format!("no group is named {only:?}"));
    }
    Ok(arguments)
}

fn seconds(word: Option<String>) -> Result<u64, String> {
    let seconds = word.and_then(|word| word.parse().ok()).filter(|seconds| (1..=3600).contains(seconds));
    seconds.ok_or_else(|| "--seconds wants a number from 1 to 3600".to_owned())
}
