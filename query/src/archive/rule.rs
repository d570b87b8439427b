//! Which versions an archiver moves: plain data.

use std::ops::RangeInclusive;

/// Which versions of the tables are moved into the archive, of those that are over: no rollout writes them, no trainer may
/// take a row of them, and no rewind brings them back.
///
/// ```
/// use forebay_query::ArchiveRule;
/// let old = ArchiveRule::keep_versions(8);
/// let some = ArchiveRule::keep_versions(1).versions(10..=19);
/// assert_ne!(old, some);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveRule {
    pub(super) kept: u64,
    pub(super) versions: RangeInclusive<u64>,
}

impl ArchiveRule {
    /// All but the newest `versions` of each table's policy. The current one is the newest, and always stays: 0 means 1.
    pub fn keep_versions(versions: u64) -> Self {
        ArchiveRule { kept: versions.max(1), versions: 0..=u64::MAX }
    }

    /// Only these, of those. Default: all.
    pub fn versions(mut self, versions: RangeInclusive<u64>) -> Self {
        self.versions = versions;
        self
    }
}
