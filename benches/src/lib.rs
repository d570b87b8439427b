//! Benchmarks that print their own limit.
//!
//! Every [`Row`] says what the engine took, what bare hardware took for the same bytes in the same batches in the same
//! run, and what the goal is. `README.md` explains each row. The folder, in reading order: `workload` (the constants
//! and the samples), `limit` (what bare hardware does), `row` (what is printed), `measure` (how it is condensed), and
//! one file for each group of rows; `hour/` is the long run with a program of its own, and `objects/` has one for agents' state.
//!
//! Rules: a fixed seed; setting up and dropping stay outside the timed part; a row and its limit take turns, so that a
//! busy machine slows both; every row ends in a digest of what came out, the same in every run.

mod claim;
mod durable;
mod hour;
mod ingest;
mod killed;
mod large;
mod limit;
mod machine;
mod measure;
mod objects;
mod random;
mod recycled;
mod reopen;
mod retire;
mod row;
mod small;
mod snapshot;
mod staged;
mod wake;
mod workload;

use std::error::Error;

pub use hour::{End, Hour};
pub use killed::{Killed, be_killed};
pub use machine::Machine;
pub use measure::{Pair, timed, typical};
pub use objects::{ObjectScale, noise, run_objects, sum};
pub use random::Random;
pub use row::{Goal, Row, table};
use workload::Workload;
pub use workload::{Scale, bytes};

/// What a benchmark ends in. Nothing here is caught: a failure ends the run.
pub type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

type Group = fn(&Workload, &Killed, &mut dyn FnMut(Row)) -> Outcome<()>;

const GROUPS: [(&str, Group); 11] = [
    ("ingest", |workload, _, print| ingest::rows(workload, print)),
    ("recycled", |workload, _, print| recycled::rows(workload, print)),
    ("durable", |workload, _, print| durable::rows(workload, print)),
    ("small", |workload, _, print| small::rows(workload, print)),
    ("claim", |workload, _, print| claim::rows(workload, print)),
    ("wake", |workload, _, print| wake::rows(workload, print)),
    ("staged", |workload, _, print| staged::rows(workload, print)),
    ("snapshot", |workload, _, print| snapshot::rows(workload, print)),
    ("retire", |workload, _, print| retire::rows(workload, print)),
    ("reopen", reopen::rows),
    ("large", large::rows),
];

/// The names of the groups of rows.
pub fn groups() -> impl Iterator<Item = &'static str> {
    GROUPS.iter().map(|(name, _)| *name)
}

/// Measures the groups whose name contains one of the words of `only`, which are set apart by commas, and gives each row to
/// `print` as soon as it is known. Stores that are opened after their process was killed are `killed`'s.
///
/// # Errors
/// The first failure of the store or of the machine.
pub fn run(scale: Scale, killed: &Killed, only: &str, print: &mut dyn FnMut(Row)) -> Outcome<()> {
    let workload = Workload::new(scale);
    let wanted = |name: &str| only.split(',').any(|word| name.contains(word));
    for (_, rows) in GROUPS.iter().filter(|(name, _)| wanted(name)) {
        rows(&workload, killed, print)?;
    }
    Ok(())
}
