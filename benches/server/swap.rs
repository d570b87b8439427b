//! `cargo bench --bench swap -- --json`: from the command to suspend to the first micro-batch in a newly created process.

use std::process::ExitCode;

use forebay_benches::{Machine, Outcome, Row, table};
use forebay_server_benches::swap::{Swap, is_nothing, measure, serve_rank};

const USAGE: &str =
    "usage: cargo bench --bench swap -- [--quick] [--json] [--ranks N] [--states objects|files]
  --quick     a tiny model and few rounds: shows that every row runs, says nothing of speed
  --json      one JSON object a line instead of a table
  --ranks N   ranks of the group; default 1
  --states    where states lie: objects of a store behind its server (default), or files in shared memory";

fn main() -> ExitCode {
    if is_nothing() {
        return ExitCode::SUCCESS;
    }
    match serve_rank().and_then(|served| if served { Ok(()) } else { run() }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome<()> {
    let (mut swap, mut json, mut words) = (Swap::default(), false, std::env::args().skip(1));
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value\n{USAGE}"));
        match word.as_str() {
            "--json" => json = true,
            "--quick" => swap = swap.quick(),
            "--ranks" => swap.ranks = value()?.parse()?,
            "--states" => match value()?.as_str() {
                "objects" => swap.are_objects = true,
                "files" => swap.are_objects = false,
                other => return Err(format!("{other:?} keeps no states\n{USAGE}").into()),
            },
            "--bench" => {} // what cargo adds
            other => return Err(format!("unknown argument {other:?}\n{USAGE}").into()),
        }
    }
    let (machine, load) = (Machine::of_this_run(), Machine::load());
    let mut rows: Vec<Row> = Vec::new();
    measure(&swap, &mut |row| if json { println!("{}", row.json()) } else { rows.push(row) })?;
    if !json {
        print!("{}", table(&rows));
    }
    eprintln!("{machine}; load {load} before, {} after", Machine::load());
    Ok(())
}
