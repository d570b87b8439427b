//! What is forgotten of a step: its membership, once nobody can ask for it.
//!
//! A step's plan, claims and micro-batches say which rows it was made of. They are needed while it may be undone, and for
//! its provenance while a row of it is there. Behind that a step is one line of history: its number, its times, how many
//! rows it had and what it moved. So a run that trains and retires for months grows by a line a step. That a row was deleted is
//! remembered for as long as it could come again: not when it would be stale, as far back as a rewind may go.
//!
//! # Invariants
//! - A step's `deleted_rows` are those of its rows that were removed, before it was committed or after; so it follows from the records like everything else.
//! - Only a committed step at or below the rewind floor forgets, and only when no row of it is left.
//!
//! What was said of the groups of a version (how many members, that it is closed), and which members of them were deleted, goes the
//! same way, with the floor alone.

use std::ops::RangeInclusive;

use super::{StepProgress, StepState};
use crate::state::State;

impl State {
    /// So many rows that a step trained on are removed. `step` is 0 for those that none did.
    pub(crate) fn count_deleted(&mut self, step: u32, rows: usize) {
        let floor = self.rewind_floor;
        if let Some(state) = self.steps.get_mut(&step.into()) {
            state.deleted_rows += rows as u64;
            state.forget_if_over(step.into(), floor);
        }
    }

    /// No rewind goes back to a step before `floor` from here on.
    pub(crate) fn raise_rewind_floor(&mut self, floor: u64) {
        let steps: RangeInclusive<u64> = self.rewind_floor..=floor;
        self.rewind_floor = floor.max(self.rewind_floor);
        self.forget_deleted();
        if !steps.is_empty() {
            self.steps.range_mut(steps).for_each(|(number, step)| step.forget_if_over(*number, floor));
            self.forget_what_was_said();
        }
    }

    /// What was said of the groups of a version is kept for as long as a rewind may bring that version back.
    fn forget_what_was_said(&mut self) {
        for table in 0..self.tables.len() {
            let oldest = self.oldest_to_come_back(table);
            for &consumer in &self.tables[table].consumers {
                self.consumers[consumer].forget_said_before(table as u32, oldest);
            }
        }
    }

    /// No rewind brings back a version of a table before this one.
    pub(crate) fn oldest_to_come_back(&self, table: usize) -> u64 {
        let of = &self.tables[table];
        of.oldest_own_version_at(self.moment_at(of.policy, self.rewind_floor).version)
    }

    /// Forgets the identities of deleted rows that would be stale if they came again, wherever a rewind may go.
    fn forget_deleted(&mut self) {
        for table in 0..self.tables.len() {
            let state = &self.tables[table];
            if state.trainer.is_none() {
                continue; // its window is still to be declared
            }
            let version = self.moment_at(state.policy, self.rewind_floor).version;
            let oldest = state.freshness.oldest_at(version);
            self.tables[table].rare.forget_deleted_below(oldest);
        }
    }
}

impl StepState {
    /// Forgets what it was made of where nobody can ask for that any more.
    pub(crate) fn forget_if_over(&mut self, number: u64, rewind_floor: u64) {
        let is_over = self.progress == StepProgress::Committed && number <= rewind_floor;
        if is_over && self.deleted_rows >= self.rows {
            self.membership = None;
        }
    }
}
