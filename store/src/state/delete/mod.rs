//! Rows that go for good.
//!
//! A version that retention takes may have a hundred thousand rows, in as many runs where others wrote in between, and everybody
//! waits while its record is applied. Rows of versions that are over for every consumer go a chunk at a time: pages are
//! changed once, counts once, what lives in an extent once for each run of values that lie together; many leave the index by one pass
//! over it. Any other row goes alone, for its groups and queues have to know.

mod decide;
mod runs;

pub(crate) use runs::runs_of;

use super::{Effects, State};
use crate::log::record::DeleteRecord;
use crate::state::apply::DELETED;
use crate::table::{Identity, Progress};

/// A deletion that is applied.
struct Deletion {
    table: u32,
    /// The versions that are deleted with all that is in them.
    retired: Option<(u64, u64)>,
    /// No rewind brings back a version before this one.
    back_to: u64,
    /// Whether so many rows go that the index is passed over for them at the end.
    passes_index: bool,
}

impl State {
    /// A live claim that a row is in.
    pub(crate) fn holder_of(&self, table: u32, row: u32) -> Option<u64> {
        let of = &self.tables[table as usize];
        let mut words = (0..of.consumers.len()).map(|slot| of.word(slot, row));
        let held = words.find(|word| word.is_held());
        held.map(|word| word.ticket_or_claim)
    }

    /// Applies a deletion.
    pub(crate) fn delete(&mut self, record: DeleteRecord, effects: &mut Effects) -> Result<(), String> {
        let DeleteRecord { table, rows, retired, consumed_up_to } = record;
        let count = self.tables.get(table as usize).ok_or_else(|| format!("no table {table}"))?.row_count();
        if let Some((first, last)) = rows.iter().find(|(first, last)| first > last || *last >= count) {
            return Err(format!("rows {first} to {last} of table {table} are deleted, which has {count}"));
        }
        let rare = &mut self.tables[table as usize].rare;
        if let Some((first, last)) = retired {
            if rows.is_empty() && rare.are_retired(first, last) {
                rare.note_moved_out(first, last); // there is nothing else that it could say
                return Ok(());
            }
            rare.retire(first, last);
        }
        rare.note_consumed_deleted(consumed_up_to);
        let deletion = Deletion {
            table,
            retired,
            back_to: self.oldest_to_come_back(table as usize),
            passes_index: self.tables[table as usize].index.is_passed_over_for(runs::length(&rows)),
        };
        for mut of_chunk in runs::by_chunk(&rows) {
            of_chunk.retain(|&row| !self.tables[table as usize].is_removed(row));
            if self.are_nobodys(&of_chunk, &deletion) {
                self.delete_rows(&of_chunk, &deletion, effects)?;
            } else {
                of_chunk.into_iter().try_for_each(|row| self.delete_row(row, &deletion, effects))?;
            }
        }
        if deletion.passes_index {
            self.tables[table as usize].index.remove_all(&rows);
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

    /// Whether rows of one chunk are all of versions that are over for every consumer, and that are deleted with them or come
    /// back by no rewind: then nobody counts them, waits for them or has them in a queue, and they may go all at once.
    fn are_nobodys(&self, rows: &[u32], deletion: &Deletion) -> bool {
        let Some(&first) = rows.first() else { return true };
        let of = &self.tables[deletion.table as usize];
        let are_over = |oldest: u64, newest: u64| {
            let go = |&(from, to): &(u64, u64)| from <= oldest && newest <= to;
            let never_return = newest < deletion.back_to || deletion.retired.as_ref().is_some_and(go);
            never_return && self.is_over(deletion.table, newest)
        };
        let chunk = of.chunk(first).summary;
        if are_over(chunk.version_min, chunk.version_max) {
            return true;
        }
        let versions = rows.iter().map(|&row| of.meta(row).lane());
        let versions =
            versions.fold((u64::MAX, 0), |(oldest, newest), lane| (lane.min(oldest), lane.max(newest)));
        are_over(versions.0, versions.1)
    }

    /// Deletes rows of one chunk that are [nobody's](Self::are_nobodys): what [`delete_row`](Self::delete_row) does to each,
    /// without asking anybody.
    fn delete_rows(
        &mut self,
        rows: &[u32],
        deletion: &Deletion,
        effects: &mut Effects,
    ) -> Result<(), String> {
        self.leave_out_together(deletion.table, rows, DELETED, effects);
        let state = &mut self.tables[deletion.table as usize];
        for (slot, consumer) in state.consumers.clone().into_iter().enumerate() {
            effects.touch(consumer);
            let is_done = |row: &u32| state.word(slot, *row).progress == Progress::Done;
            let not_done: Vec<u32> = rows.iter().copied().filter(|row| !is_done(row)).collect();
            state.all_out(slot, &not_done);
        }
        self.remove_rows(rows, deletion, effects)
    }

    fn delete_row(&mut self, row: u32, deletion: &Deletion, effects: &mut Effects) -> Result<(), String> {
        self.exclude(deletion.table, row, DELETED, effects);
        self.change_consumers(deletion.table, effects, |consumer, table, fallout| {
            consumer.row_removed(table, row, (DELETED, deletion.back_to), fallout);
        });
        self.remove_rows(&[row], deletion, effects)
    }

    /// Removes rows of one chunk from their table, and their values are dead. Open ones have been left out.
    ///
    /// # Errors
    /// When their values were not live: the record cannot follow on this state.
    fn remove_rows(
        &mut self,
        rows: &[u32],
        deletion: &Deletion,
        effects: &mut Effects,
    ) -> Result<(), String> {
        let table = deletion.table;
        rows.iter().for_each(|&row| self.forget_row(row, deletion));
        self.count_deleted_of(table, rows);
        self.let_go_of_all(table, rows)?;
        effects.gone.extend(self.tables[table as usize].remove_all(rows));
        Ok(())
    }

    /// Nobody finds a row by its identity any more, which is remembered where it might come again.
    fn forget_row(&mut self, row: u32, deletion: &Deletion) {
        let state = &mut self.tables[deletion.table as usize];
        let meta = state.meta(row);
        // Of a version that is gone for good nobody asks.
        let is_latest =
            !state.rare.is_retired(meta.policy_version) && state.find(Identity::of(&meta)) == Some(row);
        state.rare.row_deleted(row, &meta, is_latest);
        if !deletion.passes_index {
            state.index.remove(Identity::of(&meta).hash(), row);
        }
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
}
