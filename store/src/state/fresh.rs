//! What the move of a policy means for the rows of its tables: which are left behind, which may be taken now.
//!
//! `Freshness` in the table says which rows are fresh; the floors of the consumers follow from it, so a
//! consumer holds queues and groups of the versions from its floor on and of no others.

use std::ops::RangeInclusive;

use super::apply::STALE;
use super::{Effects, State};
use crate::consumer::{Back, Recall};
use crate::table::chunk_of;

impl State {
    /// The versions of which a consumer can claim rows of a table.
    pub(crate) fn claimable_versions(&self, consumer: usize, table: u32) -> RangeInclusive<u64> {
        let current = self.current_version(table);
        self.consumers[consumer].floor(table).unwrap_or(current)..=current
    }

    /// The names of the groups that a consumer may take and has not been handed, in order.
    pub(crate) fn open_groups(&self, consumer: usize) -> Vec<String> {
        let state = &self.consumers[consumer];
        let Some(grouping) = state.grouping else { return Vec::new() };
        let open = state.open_groups(&grouping, |table| self.claimable_versions(consumer, table));
        let mut names: Vec<String> =
            open.map(|group| grouping.by.show(group.name, self.texts.pages())).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Rows that a consumer could claim if it asked for as many as there are.
    pub(crate) fn claimable_rows(&self, consumer: usize) -> usize {
        let state = &self.consumers[consumer];
        let of_table = |table| {
            state.ready_rows(table, self.claimable_versions(consumer, table))
                + state.external_ready_rows(table)
        };
        state.tables.iter().map(|consumed| of_table(consumed.table)).sum()
    }

    /// A policy stands at a later version: rows that are not fresh any more are left behind with their reason, and those
    /// that waited for this version wait no longer.
    pub(super) fn policy_moved(&mut self, policy: usize, version: u64, effects: &mut Effects) {
        for table in 0..self.tables.len() {
            if self.tables[table].policy != policy {
                continue;
            }
            let index = table as u32;
            let caught_up = self.tables[table].set_current_version(version);
            let floor = self.tables[table].oldest_own_version();
            for &consumer in &self.tables[table].consumers {
                self.consumers[consumer].forget_before(index, floor);
                effects.touch(consumer);
                effects.wake.push(consumer);
            }
            if self.tables[table].trainer.is_some() {
                self.leave_behind(index, effects);
            }
            for row in caught_up {
                self.change_consumers(index, effects, |consumer, table, fallout| {
                    consumer.row_changed(table, row, fallout);
                });
            }
        }
    }

    /// Leaves out the rows that are not fresh any more: everybody waits for it, and there may be a hundred thousand. Those that no
    /// consumer has in a queue or a group any more go a chunk at a time.
    fn leave_behind(&mut self, table: u32, effects: &mut Effects) {
        let rows = self.tables[table as usize].rows_left_behind();
        for of_chunk in rows.chunk_by(|a, b| chunk_of(*a) == chunk_of(*b)) {
            let newest = of_chunk.iter().map(|&row| self.tables[table as usize].meta(row).lane()).max();
            if newest.is_some_and(|newest| self.is_over(table, newest)) {
                self.leave_out_together(table, of_chunk, STALE, effects);
            } else {
                of_chunk.iter().for_each(|&row| self.exclude(table, row, STALE, effects));
            }
        }
    }

    /// Whether a version is over for every consumer: none has a row of it, or of one before it, in a queue or a group.
    pub(super) fn is_over(&self, table: u32, version: u64) -> bool {
        let mut consumers = self.tables[table as usize].consumers.iter();
        consumers.all(|&consumer| self.consumers[consumer].is_over(table, version))
    }

    /// Leaves out those of some rows of one chunk that are open, as [`exclude`](Self::exclude) does one after the other; their versions
    /// are [over](Self::is_over).
    pub(super) fn leave_out_together(
        &mut self,
        table: u32,
        rows: &[u32],
        reason: &str,
        effects: &mut Effects,
    ) {
        let reason = self.texts.intern(reason);
        let state = &mut self.tables[table as usize];
        let open: Vec<u32> = rows.iter().copied().filter(|&row| state.status(row).is_open()).collect();
        if open.is_empty() {
            return;
        }
        state.leave_out_all(&open, reason, &self.texts);
        effects.wake.extend(&state.consumers);
        for (slot, consumer) in state.consumers.clone().into_iter().enumerate() {
            effects.touch(consumer);
            state.all_out(slot, &open);
        }
    }

    /// The table's trainer has just been declared, with a window: rows that others had done with are served again.
    ///
    /// A consumer of single rows is counted anew only where there are such rows: else it stands as it would. One of groups is counted
    /// anew in any case. Its count knows no more than [`Recall::Said`], and forgets members that are deleted, or closed out, also of
    /// the versions that it served before: no record of a declaration says otherwise, and claims that follow in a log rest on it.
    pub(super) fn open_window(&mut self, table: u32, trainer: usize, effects: &mut Effects) {
        let floor = self.tables[table as usize].oldest_own_version();
        for slot in 0..self.tables[table as usize].consumers.len() {
            let consumer = self.tables[table as usize].consumers[slot];
            let served = self.consumers[consumer].floor(table).filter(|served| *served > floor);
            let Some(served) = served.filter(|_| consumer != trainer) else { continue };
            let is_single = self.consumers[consumer].grouping.is_none();
            if is_single && self.tables[table as usize].rows_of(floor..=served - 1).next().is_none() {
                self.consumers[consumer].serve_from(table, floor);
                continue;
            }
            let held = self.rows_held(consumer, table);
            self.change_consumer(consumer, table, effects, |consumer, table, fallout| {
                let back = Back { version: floor, first: &[], held: &held, recall: Recall::Said };
                consumer.reindex(table, &back, fallout);
            });
            effects.wake.push(consumer);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::*;

    #[test]
    fn a_window_that_brings_no_row_back_leaves_the_queues_as_they_are() {
        let options = Options::default().disk(Arc::new(SimulatedDisk::default()));
        let store = Store::open("/store", options).unwrap();
        store.create_policy("team", 1, &[]).unwrap();
        let schema = Schema::new().policy("team").data("reward", DataType::Float32);
        let table = store.create_table("solver", schema).unwrap();
        let task = store.create_consumer("task", Consumer::task(["solver"])).unwrap();
        (0..3).for_each(|at| _ = table.insert(1, &format!("q_0_{at}"), []).unwrap());
        let tickets = || {
            let state = store.0.state.lock();
            [0, 1, 2].map(|row| state.tables[0].word(0, row).ticket_or_claim)
        };
        let before = tickets();
        let train = Consumer::trainer(["solver"]).ready(["reward"]).staleness(1);
        store.create_consumer("train", train).unwrap();
        assert_eq!(tickets(), before);
        table.insert(0, "old_0_0", []).unwrap();
        let claim = || task.claim(MicroBatch::up_to(9), "me", Wait::No).unwrap().unwrap();
        let claims = [claim(), claim()];
        assert_eq!(claims.iter().map(Claim::len).sum::<usize>(), 4, "of both versions");
    }
}
