//! `cargo bench --bench server -- --json`: what it costs that a store is in another process.

use std::process::ExitCode;

use forebay_benches::{Machine, Row, table};
use forebay_server_benches::{Scale, Size, child, groups, many, raise_open_files, run};

/// As the `forebay` command has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str = "usage: cargo bench --bench server -- [--quick] [--json] [--only GROUP] [--many]
  --quick       a few rounds of each, to see that it works
  --json        one JSON object a line instead of a table
  --only GROUP  rows of one group: trips, handovers, large, samples
  --many        instead, 10,000 connections that are held and 2,000 subscribers (with --quick 200 and 50)";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    if let [first, rest @ ..] = words.as_slice()
        && first == "--child"
    {
        return ended(child(rest));
    }
    let (words, only) = match without_only(words) {
        Ok(split) => split,
        Err(wrong) => {
            eprintln!("{wrong}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
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
    let outcome = run(&scale, only.as_deref(), &mut print);
    if !said("--json") {
        print!("{}", table(&rows));
    }
    eprintln!("{machine}; load {load} before, {} after", Machine::load());
    ended(outcome)
}

/// The words without `--only GROUP`, and the group.
fn without_only(mut words: Vec<String>) -> Result<(Vec<String>, Option<String>), String> {
    let Some(at) = words.iter().position(|word| word == "--only") else { return Ok((words, None)) };
    let group = words.drain(at..(at + 2).min(words.len())).nth(1);
    match group.filter(|group| groups().any(|known| known == group)) {
        Some(group) => Ok((words, Some(group))),
        None => Err(format!("--only wants one of {}", groups().collect::<Vec<_>>().join(", "))),
    }
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
