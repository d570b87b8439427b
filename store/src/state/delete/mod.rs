//! Rows that go for good.
//!
//! A version that retention takes may have a hundred thousand rows, and everybody waits while its record is applied. Rows
//! of versions that are over for every consumer go a chunk at a time: pages are changed once, counts once, what lives in
//! an extent once for each run of values that lie together. Any other row goes alone, for its groups and queues have to know.

mod decide;

use std::ops::Range;

use super::{Effects, State};
use crate::log::record::DeleteRecord;
use crate::state::apply::DELETED;
use crate::table::{CHUNK_ROWS, Identity, Progress};

impl State {
    /// A live claim that a row is in.
    pub(crate) fn holder_of(&self, table: u32, row: u32) -> Option<u64> {
        let of = &self.tables[table as usize];
        let mut words = (0..of.consumers.len()).map(|slot| of.word(slot, row));
        let held = words.find(|word| word.is_held());
        held.map(|word| word.ticket_or_claim)
    }

    /// Applies a deletion.
    pub(crate) fn delete(&mut self, deletion: DeleteRecord, effects: &mut Effects) -> Result<(), String> {
        let DeleteRecord { table, rows, retired, consumed_up_to } = deletion;
        let count = self.tables.get(table as usize).ok_or_else(|| format!("no table {table}"))?.row_count();
        if let Some((first, last)) = rows.iter().find(|(first, last)| first > last || *last >= count) {
            return Err(format!("rows {first} to {last} of table {table} are deleted, which has {count}"));
        }
        if let Some((first, last)) = retired {
            self.tables[table as usize].rare.retire(first, last);
        }
        self.tables[table as usize].rare.note_consumed_deleted(consumed_up_to);
        let back_to = self.oldest_to_come_back(table as usize);
        for (first, last) in rows {
            for part in parts_by_chunk(first, last) {
                if self.is_nobodys(table, part.clone(), retired) {
                    self.delete_rows(table, part, effects)?;
                } else {
                    part.into_iter().try_for_each(|row| self.delete_row(table, row, back_to, effects))?;
                }
            }
            self.tables[table as usize].index.remove_all(first..=last);
        }
        if let Some(versions) = retired {
            self.forget_versions(table as usize, versions);
        }
        Ok(())
    }

    /// Versions are gone with all that was in them.
    fn forget_versions(&mut self, table: usize, versions: (u64, u64)) {
        self.tables[table].forget_tallies(versions);
        for &consumer in &self.tables[table].consumers {
            self.consumers[consumer].forget_deleted_in(table as u32, versions);
        }
    }

    /// Whether rows are all of versions that are deleted with them and that are over for every consumer: then nobody counts
    /// them, waits for them or has them in a queue, and they may go all at once.
    fn is_nobodys(&self, table: u32, rows: Range<u32>, retired: Option<(u64, u64)>) -> bool {
        let (of, Some((first, last))) = (&self.tables[table as usize], retired) else { return false };
        let are_over = |oldest: u64, newest: u64| {
            (first..=last).contains(&oldest) && newest <= last && self.is_over(table, newest)
        };
        let chunk = of.chunk(rows.start).summary;
        if are_over(chunk.version_min, chunk.version_max) {
            return true;
        }
        let there = rows.filter(|&row| !of.is_removed(row)).map(|row| of.meta(row).lane());
        let versions = there.fold(None, |known, lane| {
            let (oldest, newest) = known.unwrap_or((lane, lane));
            Some((lane.min(oldest), lane.max(newest)))
        });
        versions.is_none_or(|(oldest, newest)| are_over(oldest, newest))
    }

    /// Deletes rows of one chunk that are [nobody's](Self::is_nobodys): what [`delete_row`](Self::delete_row) does to each,
    /// without asking anybody. The index is left to the caller.
    fn delete_rows(&mut self, table: u32, rows: Range<u32>, effects: &mut Effects) -> Result<(), String> {
        let state = &mut self.tables[table as usize];
        let there: Vec<u32> = rows.filter(|&row| !state.is_removed(row)).collect();
        for &row in &there {
            let meta = state.meta(row);
            state.rare.row_deleted(row, &meta, false);
        }
        self.leave_out_together(table, &there, DELETED, effects);
        let state = &mut self.tables[table as usize];
        for (slot, consumer) in state.consumers.clone().into_iter().enumerate() {
            effects.touch(consumer);
            let is_done = |row: &u32| state.word(slot, *row).progress == Progress::Done;
            let not_done: Vec<u32> = there.iter().copied().filter(|row| !is_done(row)).collect();
            state.all_out(slot, &not_done);
        }
        self.count_deleted_of(table, &there);
        self.let_go_of_all(table, &there)?;
        effects.gone.extend(self.tables[table as usize].remove_all(&there));
        Ok(())
    }

    /// Of some rows that are about to go, those that steps trained on are counted for them.
    fn count_deleted_of(&mut self, table: u32, rows: &[u32]) {
        let steps: Vec<u32> = rows.iter().map(|&row| self.tables[table as usize].status(row).step).collect();
        steps.chunk_by(|a, b| a == b).for_each(|same| self.count_deleted(same[0], same.len()));
    }

    /// The values of some rows of one chunk are dead.
    fn let_go_of_all(&mut self, table: u32, rows: &[u32]) -> Result<(), String> {
        let State { tables, liveness, commits, .. } = self;
        let state = &tables[table as usize];
        let mut columns = state.schema.data_columns().iter().enumerate();
        columns.try_for_each(|(number, column)| {
            liveness.remove_all(state.located(number, rows), column.shared, *commits)
        })
    }

    fn delete_row(
        &mut self,
        table: u32,
        row: u32,
        back_to: u64,
        effects: &mut Effects,
    ) -> Result<(), String> {
        if self.tables[table as usize].is_removed(row) {
            return Ok(());
        }
        self.exclude(table, row, DELETED, effects);
        self.change_consumers(table, effects, |consumer, table, fallout| {
            consumer.row_removed(table, row, (DELETED, back_to), fallout);
        });
        let state = &mut self.tables[table as usize];
        let meta = state.meta(row);
        // Of a version that is gone for good nobody asks.
        let latest =
            !state.rare.is_retired(meta.policy_version) && state.find(Identity::of(&meta)) == Some(row);
        state.rare.row_deleted(row, &meta, latest);
        self.remove_row(table, row)
    }
}

/// The rows from `first` to `last`, apart for each chunk that they lie in.
fn parts_by_chunk(first: u32, last: u32) -> impl Iterator<Item = Range<u32>> {
    let of_chunk = CHUNK_ROWS as u32;
    (first / of_chunk..=last / of_chunk).map(move |chunk| {
        let start = chunk * of_chunk;
        start.max(first)..start.saturating_add(of_chunk).min(last.saturating_add(1))
    })
}

/// Rows in their order as runs, first and last of each.
pub(crate) fn runs_of(rows: &[u32]) -> Vec<(u32, u32)> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &row in rows {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == row => *last = row,
            _ => runs.push((row, row)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_the_rows_and_none_lies_in_two_chunks() {
        let parts =
            |first, last| parts_by_chunk(first, last).map(|part| (part.start, part.end)).collect::<Vec<_>>();
        assert_eq!(parts(3, 3), [(3, 4)]);
        assert_eq!(parts(4000, 8192), [(4000, 4096), (4096, 8192), (8192, 8193)]);
        assert_eq!(parts(u32::MAX - 1, u32::MAX - 1), [(u32::MAX - 1, u32::MAX)]);
    }

    #[test]
    fn rows_that_follow_on_each_other_are_one_run() {
        assert_eq!(runs_of(&[]), []);
        assert_eq!(runs_of(&[3, 4, 5, 7, 9, 10]), [(3, 5), (7, 7), (9, 10)]);
    }
}
