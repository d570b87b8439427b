//! What opening a store found.

use std::path::PathBuf;

/// What opening a store found and did: [`Store::recovery`](crate::Store::recovery).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// Records that were replayed.
    pub records: u64,
    /// Bytes of appends that were cut short; they were never acknowledged above the level `memory`.
    pub torn_bytes: u64,
    /// The machine was started again since the store was written, or a sync had failed: nothing that was not synced was
    /// taken on trust. After a failed sync what was kept was written once more, too.
    pub checked: bool,
    /// Records below this number were known to be on stable storage. 0 when nobody had to know.
    pub durable_through: u64,
    /// Records that were in the log and are not any more, as far as can be told: a power failure took them, or something
    /// that they name. Below this number's first record the log is whole.
    pub records_lost: u64,
    /// Rows that the lost records inserted or changed.
    pub rows_lost: u64,
    /// Where the log was cut, and why.
    pub cut_at: Option<(PathBuf, u64, String)>,
    /// Values that a power failure took from their files and that their records carried; they were put back.
    pub values_put_back: u64,
}
