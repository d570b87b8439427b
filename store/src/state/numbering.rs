//! Numbers of trajectories that the store gives out.
//!
//! A number is reserved before the row's values are stored, since a value carries the identity of its row; the record
//! of the insert then holds it like any other. What is reserved here is a hint where to look for the next free number
//! and is gone with the process: a number whose insert failed was never used, and comes again.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::State;
use crate::batch::NewRow;
use crate::error::{Cause, Result};
use crate::heap::HeapBytes;
use crate::sample_id::SampleId;
use crate::shared::Shared;
use crate::sync::Mutex;

/// Reserved numbers: for a table, version, input and turn, the next one to try.
#[derive(Debug, Default)]
pub(crate) struct Numbering(Mutex<Hints>);

#[derive(Debug)]
struct Hints {
    of: HashMap<Key, u32>,
    /// Bytes of the inputs in it.
    input_bytes: usize,
    /// How many there are when those of versions left behind are dropped the next time.
    prune_at: usize,
}

/// Table, version, input and turn.
type Key = (u32, u64, String, u32);

/// Hints that are kept whatever their versions.
const HINTS_KEPT: usize = 1 << 16;

impl Default for Hints {
    fn default() -> Self {
        Hints { of: HashMap::new(), input_bytes: 0, prune_at: HINTS_KEPT }
    }
}

impl Hints {
    /// Drops those of versions left behind, each time that there are twice as many as were left by the time before: what is of the
    /// current version stays, and is not looked through for every row.
    fn prune(&mut self, state: &State) {
        if self.of.len() > self.prune_at {
            self.of.retain(|(table, version, ..), _| *version >= state.current_version(*table));
            self.of.shrink_to_fit();
            self.input_bytes = self.of.keys().map(|(_, _, input, _)| input.capacity()).sum();
            self.prune_at = HINTS_KEPT.max(2 * self.of.len());
        }
    }

    /// The next number to try of an input.
    fn next_of(&mut self, key: Key) -> &mut u32 {
        let bytes = key.2.capacity();
        match self.of.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                self.input_bytes += bytes;
                new.insert(0)
            }
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
    /// Bytes of memory.
    pub(crate) fn heap_bytes(&self) -> usize {
        let hints = self.0.lock();
        hints.of.heap_bytes() + hints.input_bytes
    }

    fn next(&self, state: &State, table: u32, row: &NewRow) -> Result<SampleId> {
        let mut hints = self.0.lock();
        hints.prune(state);
        let version = row.policy_version;
        let key = (table, version, row.sample.input().to_owned(), row.sample.turn());
        let next = hints.next_of(key);
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::{NewRow, Options, Schema, SimulatedDisk, Store};

    #[test]
    fn numbers_that_are_given_out_count_as_memory_until_their_version_is_left_behind() {
        let store =
            Store::open("/store", Options::default().disk(Arc::new(SimulatedDisk::default()))).unwrap();
        let table = store.create_table("solver", Schema::new()).unwrap();
        let number = |i: usize| {
            let row = NewRow::next_trajectory(0, &format!("{i:0>100}"), 0).unwrap();
            store.0.number_trajectory(table.id(), &row).unwrap()
        };
        let before = store.0.memory_bytes();
        for _ in 0..2 {
            (0..10_000).for_each(|i| _ = number(i));
            let taken = store.0.memory_bytes() - before;
            assert!((1_000_000..2_200_000).contains(&taken), "{taken} bytes for 10,000 inputs of 100 bytes");
        }
        store.0.state.lock().policies[0].version = 1;
        (0..super::HINTS_KEPT + 2).for_each(|i| _ = number(i));
        assert!(store.0.memory_bytes() - before < 1_000_000, "they are dropped, and no longer counted");
    }
}
