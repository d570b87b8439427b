//! `cargo run --release --manifest-path benches/peers/Cargo.toml`: the engine's workload on the stores that one would take
//! instead, in one run on one machine, as one table.
//!
//! Each peer at each level is measured in a process of its own that prints one report as JSON: this program again for the
//! peers that have a Rust interface (`peers`), a script in `python/` for the others. So a peer that is not installed,
//! fails or hangs costs its own line and no other. `driver` starts them; `run` is the measure, which `python/harness.py`
//! repeats; `columns` holds what was taken against what was written; `report` prints.
//!
//! The workload is not a copy of the engine's own benchmark: its files are compiled in here.

mod columns;
mod driver;
#[path = "../../src/limit.rs"]
#[allow(dead_code, reason = "of the engine's benchmark, which needs more of it")]
mod limit;
#[path = "../../src/machine.rs"]
#[allow(dead_code, unreachable_pub, reason = "of the engine's benchmark, which needs more of it")]
mod machine;
#[path = "../../src/measure.rs"]
#[allow(dead_code, reason = "of the engine's benchmark, which needs more of it")]
mod measure;
mod peer;
mod peers;
mod report;
mod run;
#[path = "../../src/workload.rs"]
#[allow(dead_code, unreachable_pub, reason = "of the engine's benchmark, which needs more of it")]
mod workload;

use std::error::Error;
use std::process::ExitCode;

/// What a run ends in.
type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const USAGE: &str = "usage: forebay-peers [--quick] [--only PEER]
  --quick      tiny sizes: shows that every peer runs, says nothing of speed
  --only PEER  the peers whose name contains PEER, and Forebay";

#[derive(Default)]
struct Arguments {
    quick: bool,
    only: String,
    /// The peer and level that this process measures, where it is not the one that was asked for a table.
    measured: Option<(String, String)>,
}

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(reason) => {
            eprintln!("{reason}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let plan = if arguments.quick { run::Plan::QUICK } else { run::Plan::FULL };
    let outcome = match &arguments.measured {
        Some((peer, level)) => driver::measure_one(peer, level, plan),
        None => driver::measure_all(&arguments.only, arguments.quick, plan),
    };
    match outcome {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments::default();
    while let Some(word) = words.next() {
        let mut next = |what: &str| words.next().ok_or_else(|| format!("{word} wants {what}"));
        match word.as_str() {
            "--quick" => arguments.quick = true,
            "--only" => arguments.only = next("the name of a peer")?.to_lowercase(),
            "--measure" => arguments.measured = Some((next("a peer")?, next("a peer and a level")?)),
            other => return Err(format!("unknown argument {other:?}")),
        }
    }
    Ok(arguments)
}
