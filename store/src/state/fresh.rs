//! What the move of a policy means for the rows of its tables: which are left behind, which may be taken now.
//!
//! `Freshness` in the table says which rows are fresh; the floors of the consumers follow from it, so a
//! consumer holds queues and groups of the versions from its floor on and of no others.

use std::ops::RangeInclusive;

use super::apply::STALE;
use super::{Effects, State};
use crate::consumer::Back;

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
                for row in self.tables[table].rows_left_behind() {
                    self.exclude(index, row, STALE, effects);
                }
            }
            for row in caught_up {
                self.change_consumers(index, effects, |consumer, table, fallout| {
                    consumer.row_changed(table, row, fallout);
                });
            }
        }
    }

    /// The table's trainer has just been declared, with a window: rows that others had done with are served again.
    pub(super) fn open_window(&mut self, table: u32, trainer: usize, effects: &mut Effects) {
        let floor = self.tables[table as usize].oldest_own_version();
        for slot in 0..self.tables[table as usize].consumers.len() {
            let consumer = self.tables[table as usize].consumers[slot];
            if consumer == trainer || self.consumers[consumer].floor(table) <= Some(floor) {
                continue;
            }
            let held = self.rows_held(consumer, table);
            self.change_consumer(consumer, table, effects, |consumer, table, fallout| {
                let back = Back { version: floor, first: &[], held: &held, exact: false };
                consumer.reindex(table, &back, fallout);
            });
            effects.wake.push(consumer);
        }
    }
}
