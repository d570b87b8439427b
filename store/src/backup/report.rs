//! What a backup copied.

use std::path::PathBuf;

/// What a backup copied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackupReport {
    /// Where to.
    pub to: PathBuf,
    /// The position of the log that the copy shows: so many records made it.
    pub records: u64,
    /// Segments of the log.
    pub segments: u64,
    /// Files of values.
    pub extents: u64,
    /// Objects.
    pub objects: u64,
    /// Bytes over all of them.
    pub bytes: u64,
}
