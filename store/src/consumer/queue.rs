//! The ready queue of one consumer for one table and one policy version.

use std::collections::BTreeMap;

use super::group::GroupKey;

/// What can be claimed as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// One row.
    Row(u32),
    /// A complete group.
    Group(GroupKey),
}

/// Entries in the order in which they became ready. A ticket names a place, so that an entry is taken out of the middle
/// at once when its row is left out.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    entries: BTreeMap<u64, (Entry, u32)>,
    rows: usize,
}

impl Queue {
    /// Adds an entry of `rows` rows at the place `ticket`.
    pub(crate) fn insert(&mut self, ticket: u64, entry: Entry, rows: u32) {
        self.rows += rows as usize;
        self.entries.insert(ticket, (entry, rows));
    }

    /// Takes the entry at `ticket` out.
    pub(crate) fn remove(&mut self, ticket: u64) {
        if let Some((_, rows)) = self.entries.remove(&ticket) {
            self.rows -= rows as usize;
        }
    }

    /// Rows over all entries.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The place of the first entry.
    pub(crate) fn first_ticket(&self) -> Option<u64> {
        self.entries.first_key_value().map(|(ticket, _)| *ticket)
    }

    /// Entries with their places, oldest first.
    pub(crate) fn places(&self) -> impl Iterator<Item = (u64, &Entry)> {
        self.entries.iter().map(|(ticket, (entry, _))| (*ticket, entry))
    }

    /// Entries with their number of rows, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Entry, usize)> {
        self.entries.values().map(|(entry, rows)| (entry, *rows as usize))
    }
}
