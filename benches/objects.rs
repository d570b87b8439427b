//! `cargo bench -p forebay-benches --bench objects -- [--json] [--quick]`: what setting and getting agents' state takes.

use std::process::ExitCode;

use forebay_benches::{Machine, ObjectScale, Outcome, Row, answer_as_neighbour, run_objects, table};

const USAGE: &str = "usage: cargo bench -p forebay-benches --bench objects -- [--json] [--quick]
  --json           one JSON object a line instead of a table
  --quick          tiny sizes: shows that every row runs, says nothing of speed";

fn main() -> ExitCode {
    let outcome = answer_as_neighbour().and_then(|answered| if answered { Ok(()) } else { measure() });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> Outcome<()> {
    let (mut json, mut quick) = (false, false);
    for word in std::env::args().skip(1) {
        match word.as_str() {
            "--json" => json = true,
            "--quick" => quick = true,
            "--bench" => {} // what cargo adds
            other => return Err(format!("unknown argument {other:?}\n{USAGE}").into()),
        }
    }
    let program = std::env::current_exe()?;
    let scale = if quick { ObjectScale::quick(Some(program)) } else { ObjectScale::full(program) };
    let (machine, load) = (Machine::of_this_run(), Machine::load());
    let mut rows: Vec<Row> = Vec::new();
    run_objects(&scale, &mut |row| {
        if json {
            println!("{}", row.json());
        } else {
            eprintln!("{}", row.json());
        }
        rows.push(row);
    })?;
    if !json {
        print!("{}", table(&rows));
    }
    eprintln!("{machine}; load {load} before, {} after", Machine::load());
    Ok(())
}
