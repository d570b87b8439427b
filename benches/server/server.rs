//! `cargo bench --bench server -- --json`: what it costs that a store is in another process.

use std::process::ExitCode;

use forebay_benches::{Machine, Row, table};
use forebay_server_benches::{Scale, Size, child, many, raise_open_files, run};

const USAGE: &str = "usage: cargo bench --bench server -- [--quick] [--json] [--many]
  --quick  a few rounds of each, to see that it works
  --json   one JSON object a line instead of a table
  --many   instead, 10,000 connections that are held and 2,000 subscribers (with --quick 200 and 50)";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    if let [first, rest @ ..] = words.as_slice()
        && first == "--child"
    {
        return ended(child(rest));
    }
    if let Some(unknown) = words.iter().find(|word| !["--quick", "--json", "--many"].contains(&word.as_str()))
    {
        eprintln!("unknown argument {unknown:?}\n{USAGE}");
        return ExitCode::from(2);
    }
    let said = |flag: &str| words.iter().any(|word| word == flag);
    let scale = if said("--quick") { Scale::quick() } else { Scale::default() };
    let (machine, load) = (Machine::of_this_run(), Machine::load());
    if said("--many") {
        let size = if said("--quick") { Size::quick() } else { Size::default() };
        let outcome = raise_open_files().and_then(|limit| {
            eprintln!("{limit} open files a process");
            many(&size)
        });
        eprintln!("{machine}; load {load} before, {} after", Machine::load());
        return ended(outcome);
    }
    let mut rows: Vec<Row> = Vec::new();
    let mut print = |row: Row| if said("--json") { println!("{}", row.json()) } else { rows.push(row) };
    let outcome = run(&scale, &mut print);
    if !said("--json") {
        print!("{}", table(&rows));
    }
    eprintln!("{machine}; load {load} before, {} after", Machine::load());
    ended(outcome)
}

fn ended(outcome: forebay_benches::Outcome<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
