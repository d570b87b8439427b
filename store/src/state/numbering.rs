//! Numbers of trajectories that the store gives out.
//!
//! A number is reserved before the row's values are stored, since a value carries the identity of its row; the record
//! of the insert then holds it like any other. What is reserved here is a hint where to look for the next free number
//! and is gone with the process: a number whose insert failed was never used, and comes again.

use std::collections::HashMap;

use super::State;
use crate::batch::NewRow;
use crate::error::{Cause, Result};
use crate::sample_id::SampleId;
use crate::shared::Shared;
use crate::sync::Mutex;

/// Reserved numbers: for a table, version, input and turn, the next one to try.
#[derive(Debug, Default)]
pub(crate) struct Numbering(Mutex<Hints>);

#[derive(Debug)]
struct Hints {
    of: HashMap<(u32, u64, String, u32), u32>,
    /// How many there are when those of versions left behind are dropped the next time.
    prune_at: usize,
}

/// Hints that are kept whatever their versions.
const HINTS_KEPT: usize = 1 << 16;

impl Default for Hints {
    fn default() -> Self {
        Hints { of: HashMap::new(), prune_at: HINTS_KEPT }
    }
}

impl Hints {
    /// Drops those of versions left behind, each time that there are twice as many as were left by the time before: what is of the
    /// current version stays, and is not looked through for every row.
    fn prune(&mut self, state: &State) {
        if self.of.len() > self.prune_at {
            self.of.retain(|(table, version, ..), _| *version >= state.current_version(*table));
            self.prune_at = HINTS_KEPT.max(2 * self.of.len());
        }
    }
}

impl Shared {
    /// The identity of a row that leaves its number to the store: that of the row which the same token made before, or
    /// one with the next free number.
    pub(crate) fn number_trajectory(&self, table: u32, row: &NewRow) -> Result<SampleId> {
        let state = self.state.lock();
        let of = &state.tables[table as usize];
        if let Some(there) = of.rare.row_of_token(row.token) {
            return Ok(state.sample_of(table, there));
        }
        self.numbering.next(&state, table, row)
    }
}

impl Numbering {
    fn next(&self, state: &State, table: u32, row: &NewRow) -> Result<SampleId> {
        let mut hints = self.0.lock();
        hints.prune(state);
        let version = row.policy_version;
        let key = (table, version, row.sample.input().to_owned(), row.sample.turn());
        let next = hints.of.entry(key).or_default();
        let taken = |number: u32| {
            let sample = row.sample.on_trajectory(number);
            state.find_row(table, version, &sample).is_some() || state.is_deleted(table, version, &sample)
        };
        while taken(*next) && *next < u32::MAX {
            *next += 1;
        }
        let number = *next;
        *next = number.checked_add(1).ok_or_else(|| {
            let reason = format!("every number is taken for {} of version {version}", row.sample);
            Cause::Argument { what: "trajectory", reason }
        })?;
        Ok(row.sample.on_trajectory(number))
    }
}
