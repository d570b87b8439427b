//! A table by version: what an archiver asks, who moves versions that are over out of the store.
//!
//! A version may leave the store once nobody can write to it or train on it any more. A snapshot tells which versions
//! there are and reads one of them in the order of sample ids; [`Table::delete_unchanged`](crate::Table::delete_unchanged)
//! then deletes it on the condition that the store still shows just these rows, and the snapshots after it say that it was
//! moved out.

use crate::page::CowArc;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::TableSnapshot;
use crate::table::{CHUNK_ROWS, Chunk, Progress, Purpose, TableState, holds};

/// The rows of one policy version in a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VersionRows {
    /// All of them, excluded and superseded ones too.
    pub rows: u64,
    /// Those that the table's trainer has not trained on and that were not left out: it may still take them. Zero in a
    /// table that has no trainer.
    pub open: u64,
}

impl TableSnapshot {
    /// The versions from 0 to `last` that rows are of, with how many there are, in order.
    pub fn versions_up_to(&self, last: u64) -> BTreeMap<u64, VersionRows> {
        let mut versions: BTreeMap<u64, VersionRows> = BTreeMap::new();
        for (_, chunk, at) in self.rows_of_versions(0..=last) {
            let counted = versions.entry(chunk.meta(at).policy_version).or_default();
            counted.rows += 1;
            counted.open += u64::from(self.may_be_trained_on(chunk, at));
        }
        versions
    }

    /// Whether a row is of that version. Costs little where versions came one after the other.
    pub fn has_version(&self, version: u64) -> bool {
        self.rows_of_versions(version..=version).next().is_some()
    }

    /// Whether the table's policy has come to a version: a store that was put back from an older copy has not come to the last ones of its
    /// other life.
    pub fn came_to(&self, version: u64) -> bool {
        version <= self.current_version()
    }

    /// Whether the rows of a version were taken elsewhere before they were deleted
    /// ([`Table::delete_unchanged`](crate::Table::delete_unchanged)), and not by retention or by name.
    pub fn is_moved_out(&self, version: u64) -> bool {
        holds(&self.moved_out, version)
    }

    /// The numbers of the rows of a version, for [`read`](Self::read), in the order of their sample ids and attempts: numerically.
    pub fn rows_of_version(&self, version: u64) -> Vec<u32> {
        let mut rows: Vec<u32> = self.rows_of_versions(version..=version).map(|(row, ..)| row).collect();
        rows.sort_by_cached_key(|&row| {
            let meta = self.chunk_of(row).0.meta(row as usize % CHUNK_ROWS);
            (meta.sample(&self.texts), meta.attempt())
        });
        rows
    }

    /// What is not the same of a row in the table as it stands now, if something is. Cells are written once, so those that
    /// were final then hold what they held.
    pub(crate) fn change_of(&self, table: &TableState, row: u32) -> Option<&'static str> {
        let (number, at) = (row as usize / CHUNK_ROWS, row as usize % CHUNK_ROWS);
        let (Some(then), Some(now)) = (self.chunks.get(number), table.chunks.get(number)) else {
            return Some("it has come since");
        };
        if at >= then.len() {
            return Some("it has come since");
        }
        if self.spans.get(row) != table.rare.spans().get(row) {
            return Some("it went on under another version");
        }
        if CowArc::ptr_eq(then, now) {
            return None;
        }
        let (before, after) = (then.status(at), now.status(at));
        let word = |chunk: &Chunk| self.trainer.map(|slot| chunk.word(slot, at));
        if then.is_removed(at) != now.is_removed(at) {
            Some("it was deleted")
        } else if before.finals != after.finals {
            Some("a cell of it was written")
        } else if (before.excluded, before.step) != (after.excluded, after.step) {
            Some("it was left out, or trained on")
        } else if word(then) != word(now) || self.trainer != table.trainer {
            Some("its trainer took it, or gave it back")
        } else {
            None
        }
    }

    /// Whether this is an instant of the table, with the columns that it has now.
    pub(crate) fn has_schema_of(&self, table: &TableState) -> bool {
        self.name == table.name && self.schema.version() == table.schema.version()
    }

    fn rows_of_versions(&self, versions: RangeInclusive<u64>) -> impl Iterator<Item = (u32, &Chunk, usize)> {
        let of = versions.clone();
        let chunks = self.chunks.iter().enumerate().filter(move |(_, chunk)| chunk.may_hold(&of));
        chunks.flat_map(move |(number, chunk)| {
            let (first, chunk): (usize, &Chunk) = (number * CHUNK_ROWS, chunk);
            let versions = versions.clone();
            let there = (0..chunk.len()).filter(move |at| {
                versions.contains(&chunk.meta(*at).policy_version) && !chunk.is_removed(*at)
            });
            there.map(move |at| ((first + at) as u32, chunk, at))
        })
    }

    fn chunk_of(&self, row: u32) -> (&Chunk, usize) {
        (&self.chunks[row as usize / CHUNK_ROWS], row as usize % CHUNK_ROWS)
    }

    fn may_be_trained_on(&self, chunk: &Chunk, at: usize) -> bool {
        let Some(slot) = self.trainer else { return false };
        let (status, word) = (chunk.status(at), chunk.word(slot, at));
        let taken = matches!(word.progress, Progress::Leased | Progress::Accumulated);
        taken || (status.is_open() && chunk.meta(at).purpose() == Purpose::Train)
    }
}
