//! `cargo bench --bench engine -- [--json] [--quick] [--only GROUP]`: what the engine takes, beside its limit.

use std::process::ExitCode;

use forebay_benches::{Machine, Row, Scale, groups, run, table};

const USAGE: &str = "usage: cargo bench --bench engine -- [--json] [--quick] [--only GROUP]
  --json        one JSON object a line instead of a table
  --quick       tiny sizes: shows that every row runs, says nothing of speed
  --only GROUP  the groups whose name contains GROUP";

#[derive(Default)]
struct Arguments {
    json: bool,
    quick: bool,
    only: String,
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
    let (machine, load) = (Machine::of_this_run(), Machine::load());
    let mut rows: Vec<Row> = Vec::new();
    let outcome = run(scale, &arguments.only, &mut |row| {
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
            "--bench" => {} // what cargo adds
            other => return Err(format!("unknown argument {other:?}")),
        }
    }
    if groups().all(|group| !group.contains(&arguments.only)) {
        return Err(format!("no group is named {:?}", arguments.only));
    }
    Ok(arguments)
}
