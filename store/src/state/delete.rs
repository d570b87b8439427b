//! Rows that go for good.
//!
//! A version that retention takes may have a hundred thousand rows, and everybody waits while its record is applied. Rows
//! of versions that are over for every consumer go a chunk at a time: pages are changed once, counts once, what lives in
//! an extent once for each run of values that lie together. Any other row goes alone, for its groups and queues have to know.

use std::ops::Range;

use super::{Effects, State};
use crate::error::{Cause, Result};
use crate::extent::View;
use crate::log::record::DeleteRecord;
use crate::state::apply::{DELETED, STALE};
use crate::table::{CHUNK_ROWS, Delete, Deleted, Identity, Progress};

impl State {
    /// The rows that a rule deletes and the versions that it retires.
    pub(crate) fn decide_delete(
        &self,
        table: u32,
        rule: &Delete,
        kept: usize,
    ) -> Result<(DeleteRecord, Deleted)> {
        let state = &self.tables[table as usize];
        if rule.versions.is_none() && rule.rows.is_none() && !rule.all {
            let reason = "it names neither a version nor rows, which would be the whole table; confirm that in so many \
                          words if it is meant"
                .to_owned();
            return Err(Cause::Argument { what: "delete", reason }.into());
        }
        let (current, oldest) = (self.current_version(table), state.freshness.oldest());
        if let Some(versions) =
            rule.versions.as_ref().filter(|versions| !rule.force && *versions.end() >= oldest)
        {
            let (table, version) = (state.name.to_string(), *versions.end());
            return Err(Cause::VersionCurrent { table, version, current }.into());
        }
        let mut rows: Vec<u32> = match &rule.rows {
            Some(rows) => rows.iter().map(|row| row.index).collect(),
            None => state.rows_of(rule.versions.clone().unwrap_or(0..=u64::MAX)).collect(),
        };
        rows.sort_unstable();
        rows.dedup();
        let in_versions = |row: u32| {
            rule.versions.as_ref().is_none_or(|versions| versions.contains(&state.meta(row).policy_version))
        };
        rows.retain(|&row| row < state.row_count() && !state.is_removed(row) && in_versions(row));
        if !rule.force {
            let needed = NeededByRewind::new(self, table, kept);
            rows.iter().try_for_each(|&row| needed.check(self, table, row))?;
        }
        let open = rows.iter().filter(|&&row| state.is_open(row)).count() as u64;
        let deleted = Deleted { rows: rows.len() as u64, open };
        let retired = rule.versions.as_ref().map(|versions| (*versions.start(), *versions.end()));
        let retired = retired.filter(|_| rule.rows.is_none());
        let new =
            |versions: &(u64, u64)| !state.rare.is_retired(versions.0) || !state.rare.is_retired(versions.1);
        let retired = retired.filter(new);
        Ok((DeleteRecord { table, rows: runs_of(&rows), retired, consumed_up_to: 0 }, deleted))
    }

    /// A live claim that a row is in.
    pub(crate) fn holder_of(&self, table: u32, row: u32) -> Option<u64> {
        let of = &self.tables[table as usize];
        let mut words = (0..of.consumers.len()).map(|slot| of.word(slot, row));
        let held = words.find(|word| matches!(word.progress, Progress::Leased | Progress::Accumulated));
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
        let there = rows.filter(|&row| !of.is_removed(row)).map(|row| of.meta(row).lane());
        let Some((oldest, newest)) = there.fold(None, |known, lane| {
            let (oldest, newest) = known.unwrap_or((lane, lane));
            Some((lane.min(oldest), lane.max(newest)))
        }) else {
            return true;
        };
        let is_over = |consumer: &usize| self.consumers[*consumer].is_over(table, newest);
        (first..=last).contains(&oldest) && newest <= last && of.consumers.iter().all(is_over)
    }

    /// Deletes rows of one chunk that are [nobody's](Self::is_nobodys): what [`delete_row`](Self::delete_row) does to each,
    /// without asking anybody. The index is left to the caller.
    fn delete_rows(&mut self, table: u32, rows: Range<u32>, effects: &mut Effects) -> Result<(), String> {
        let reason = self.texts.intern(DELETED);
        let state = &mut self.tables[table as usize];
        let there: Vec<u32> = rows.filter(|&row| !state.is_removed(row)).collect();
        let steps: Vec<u32> =
            there.iter().map(|&row| state.status(row).step).filter(|step| *step != 0).collect();
        for &row in &there {
            let meta = state.meta(row);
            state.rare.row_deleted(row, &meta, false);
        }
        if state.leave_out_all(&there, reason, &self.texts) {
            effects.wake.extend(&state.consumers);
        }
        for (slot, consumer) in state.consumers.clone().into_iter().enumerate() {
            effects.touch(consumer);
            state.all_out(slot, &there);
        }
        let freed = state.remove_all(&there);
        steps.into_iter().for_each(|step| self.count_deleted(step));
        let freed = freed.into_iter().filter(|(column, view)| self.lies_in_extent(table, *column, *view));
        let freed: Vec<View> = freed.map(|(_, view)| view).collect();
        self.liveness.remove_all(&freed, self.commits)
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

/// What a row may be needed for.
struct NeededByRewind {
    /// The oldest step that a rewind can go back to.
    oldest: u64,
    /// Where the table's policy stood then.
    version: u64,
}

impl NeededByRewind {
    fn new(state: &State, table: u32, kept: usize) -> Self {
        let oldest = state.oldest_rewind(kept);
        let policy = state.tables[table as usize].policy;
        NeededByRewind { oldest, version: state.moment_at(policy, oldest).version }
    }

    fn holds(&self, state: &State, table: u32, row: u32) -> bool {
        let of = &state.tables[table as usize];
        let status = of.status(row);
        let stale = state.texts.get(status.excluded) == STALE
            && of.counting_version(row) >= of.freshness.oldest_at(self.version);
        u64::from(status.step) > self.oldest || stale
    }

    fn check(&self, state: &State, table: u32, row: u32) -> Result<()> {
        let of = &state.tables[table as usize];
        if let Some(claim) = state.holder_of(table, row) {
            return Err(Cause::RowHeld { table: of.name.to_string(), row: row.into(), claim }.into());
        }
        if self.holds(state, table, row) {
            let (table, step) = (of.name.to_string(), self.oldest);
            return Err(Cause::RowNeeded { table, row: row.into(), step }.into());
        }
        Ok(())
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
