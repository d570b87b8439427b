//! Counters that an operator would ask for.

/// What a store has done since it was opened, and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Records in the log, all lives of the store together.
    pub commits: u64,
    /// Bytes appended to the log since the store was opened.
    pub log_bytes: u64,
    /// Syncs since the store was opened; calls at the same time share one.
    pub syncs: u64,
    /// Records that are on stable storage, with all that they name.
    pub durable_commits: u64,
    /// Bytes of values written to extents since the store was opened.
    pub value_bytes_written: u64,
    /// Values read from extents since the store was opened. Queries on meta and status columns leave it alone.
    pub value_reads: u64,
    /// Extents that may hold something to read.
    pub extents: u64,
    /// Bytes that they take on disk.
    pub extent_bytes: u64,
    /// Bytes of memory that the store takes: rows, index and texts, queues and groups, claims and steps, the log's buffers,
    /// and pages that only snapshots keep. Extents and pages that lie in a checkpoint's files do not count.
    pub memory_bytes: u64,
    /// Bytes of extents that wait to be used again.
    pub free_extent_bytes: u64,
    /// How many times an extent was used again since the store was opened.
    pub extents_recycled: u64,
    /// How many times an extent was over before the disk had all of it, since the store was opened: what lives shorter than it
    /// takes to sync costs no sync.
    pub extents_never_synced: u64,
    /// Background duties that failed since the store was opened; each is tried again with the next
    /// [`Store::run_once`](crate::Store::run_once), or [`Store::checkpoint_if_due`](crate::Store::checkpoint_if_due).
    pub duties_failed: u64,
}
