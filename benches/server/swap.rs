//! `cargo bench --bench swap -- --json`: from the command to suspend to the first micro-batch in a newly created process.

use std::process::ExitCode;

use forebay_benches::{Machine, Outcome, Row, table};
use forebay_server_benches::swap::{Swap, is_nothing, measure, measure_sizes, serve_rank};

const USAGE: &str =
    "usage: cargo bench --bench swap -- [--quick] [--json] [--ranks N] [--sizes [--scale N]] [--states objects|files]
  --quick     a tiny model and few rounds: shows that every row runs, says nothing of speed
  --json      one JSON object a line instead of a table
  --ranks N   ranks of the group; default 1
  --sizes     four sizes in the proportion of 3, 7, 14 and 32 billion parameters, and nothing else
  --scale N   how many times smaller; default 256, which wants 12 GB of memory
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
    let (mut sizes, mut scale, mut rounds) = (false, 256, 5);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value\n{USAGE}"));
        match word.as_str() {
            "--json" => json = true,
            "--quick" => (swap, scale, rounds) = (swap.quick(), 100_000, 1),
            "--sizes" => sizes = true,
            "--scale" => scale = value()?.parse()?,
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
    let mut print = |row: Row| if json { println!("{}", row.json()) } else { rows.push(row) };
    match sizes {
        true => measure_sizes(&swap, (scale, rounds), &mut print)?,
        false => measure(&swap, &mut print)?,
    }
    if !json {
        print!("{}", table(&rows));
    }
    eprintln!("{machine}; load {load} before, {} after", Machine::load());
    Ok(())
}
