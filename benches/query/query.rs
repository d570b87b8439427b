//! `cargo bench --bench query -- --json`: six questions, beside other engines on the same data.

use std::process::ExitCode;

use forebay_benches::{Machine, Row, table};
use forebay_query_benches::{Scale, run};

const USAGE: &str = "usage: cargo bench --bench query -- [--rows N] [--repetitions N] [--python FILE] [--alone] [--only TEXT] [--json]
  --rows N         rows of the first agent's table, about 10 KB each (default 100000)
  --repetitions N  how often each question is asked (default 7; the first is the cold one)
  --python FILE    an interpreter that has duckdb, polars and pyarrow (default python3); without, they are left out
  --alone          ask no other engine: for a profile
  --only TEXT      ask the questions with that in their name: for a profile
  --json           one JSON object a line instead of a table";

fn main() -> ExitCode {
    let (scale, json) = match parse(std::env::args().skip(1)) {
        Ok(parsed) => parsed,
        Err(reason) => {
            eprintln!("{reason}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let (machine, load) = (Machine::of_this_run(), Machine::load());
    let mut rows: Vec<Row> = Vec::new();
    let mut print = |row: Row| if json { println!("{}", row.json()) } else { rows.push(row) };
    if let Err(error) = run(&scale, &mut print, &mut |said| eprintln!("{said}")) {
        eprintln!("error: {error}");
        return ExitCode::FAILURE;
    }
    if !json {
        print!("{}", table(&rows));
    }
    eprintln!("{machine}; load {load} before, {} after", Machine::load());
    ExitCode::SUCCESS
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<(Scale, bool), String> {
    let (mut scale, mut json) = (Scale::default(), false);
    while let Some(word) = words.next() {
        let mut next = || words.next().ok_or_else(|| format!("{word} wants a value"));
        let number =
            |text: String| text.parse::<usize>().map_err(|_| format!("{text:?} is not a whole number"));
        match word.as_str() {
            "--rows" => scale.rows = number(next()?)?.max(64),
            "--repetitions" => scale.repetitions = number(next()?)?.max(2),
            "--python" => scale.python = next()?,
            "--alone" => scale.alone = true,
            "--only" => scale.only = Some(next()?),
            "--json" => json = true,
            "--bench" => {} // what cargo adds
            other => return Err(format!("unknown argument {other:?}")),
        }
    }
    Ok((scale, json))
}
