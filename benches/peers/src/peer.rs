//! What a store must be able to do to be measured: write batches in three stages, and give each ready row to one taker.

use std::path::Path;
use std::time::Duration;

use crate::Outcome;
use crate::columns::Columns;
use crate::peers;
use crate::workload::Workload;

/// What an acknowledged row survives. The words are those of `forebay_store::Durability`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// Nothing: rows are gone with the process.
    Memory,
    /// The end of the process: rows are with the kernel.
    Logged,
    /// A power failure: rows are on stable storage.
    Synced,
}

impl Level {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Level::Memory => "memory",
            Level::Logged => "logged",
            Level::Synced => "synced",
        }
    }

    pub(crate) fn parse(word: &str) -> Outcome<Self> {
        let level =
            [Level::Memory, Level::Logged, Level::Synced].into_iter().find(|level| level.as_str() == word);
        Ok(level.ok_or_else(|| format!("{word:?} is no level: memory, logged or synced"))?)
    }
}

/// How long a taker that finds nothing waits inside the store before it says so, where the store can wait.
pub(crate) const PATIENCE: Duration = Duration::from_millis(200);

/// An open store of one repetition.
pub(crate) trait Peer: Sync {
    /// A way in, for the thread that calls.
    fn writer(&self) -> Outcome<Box<dyn Writer + '_>>;

    /// A way out, for the thread that calls.
    fn taker(&self) -> Outcome<Box<dyn Taker + '_>>;
}

/// Writes rows, one thread's.
pub(crate) trait Writer {
    /// Writes the rows from `first` on, a batch of them, in three stages of one commit each: prompts, responses with
    /// log-probabilities, rewards. What makes a row ready is its reward.
    fn write(&mut self, first: usize) -> Outcome<()>;
}

/// Takes ready rows, one thread's.
pub(crate) trait Taker {
    /// Takes 16 rows that are ready and that nobody was given, and shows their columns to `read`. Gives how many: none
    /// when nothing is ready. A row counts as taken when this call has come back.
    fn take(&mut self, read: &mut dyn FnMut(Columns<'_>)) -> Outcome<usize>;
}

/// A peer in this program.
pub(crate) struct Native {
    pub(crate) name: &'static str,
    pub(crate) version: fn() -> Outcome<String>,
    pub(crate) levels: &'static [Level],
    /// What else there is to say of a level.
    pub(crate) note: fn(Level) -> &'static str,
    pub(crate) open: for<'a> fn(&'a Workload, &'a Path, Level) -> Outcome<Box<dyn Peer + 'a>>,
}

/// The peers that are measured from Rust, in the order of the table.
pub(crate) const NATIVE: [&Native; 5] = [
    &peers::bare::PEER,
    &peers::forebay::PEER,
    &peers::lmdb::PEER,
    &peers::sqlite::PEER,
    &peers::redis::PEER,
];
