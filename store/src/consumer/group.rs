//! Groups: rows that are claimed together.

use std::sync::Arc;

/// A group's name in its consumer: table, policy version, and the key that SQL shows.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct GroupKey {
    pub(crate) table: u32,
    pub(crate) version: u64,
    pub(crate) key: Arc<str>,
}

/// The members of a group, counted.
///
/// A group is complete when every expected member is ready. A member that is left out for good makes the group
/// smaller; a member that is superseded by its next attempt does not.
#[derive(Debug, Default)]
pub(crate) struct Group {
    /// Members that belong to the group.
    pub(crate) expected: u32,
    /// Members that are ready and not claimed.
    pub(crate) ready: Vec<u32>,
    /// Members that are leased, accumulated or done.
    pub(crate) held: u32,
    /// Members that are done.
    pub(crate) done: u32,
    /// The group's place in the ready queue.
    pub(crate) ticket: Option<u64>,
}

impl Group {
    /// Whether every member that is not held is ready, and there is one.
    pub(crate) fn is_complete(&self) -> bool {
        !self.ready.is_empty() && self.ready.len() as u32 + self.held >= self.expected
    }
}
