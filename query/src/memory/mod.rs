//! The memory that the queries of a session share: equal parts for what can spill, and what each of them needs to go on.
//!
//! A sort that finds no memory writes what it has to a file, and needs memory to merge what it wrote. So a sort and its merge are
//! one *unit*, and so is each grouping: it may always take its part, whoever else came first, and what it fills with rows leaves room
//! to merge them. What cannot spill (a side of a join by hash) takes what is left.
//!
//! Invariants
//! - A part is the memory by the number of units: those that are there, or those that the plans under way announce, for most of
//!   them begin after others have taken theirs.
//! - A unit keeps its part until it holds nothing, also when more come. Until then what all hold together may be more than the limit, at
//!   most by the parts of those who came; what cannot spill never makes it so.

mod units;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};

pub(crate) use self::units::Announced;

/// What the engine calls those who ask.
const SORT: &str = "ExternalSorter[";
const MERGE_OF_SORT: &str = "ExternalSorterMerge[";
const MERGE: &str = "SortPreservingMergeExec[";
/// It writes to files whatever it finds no memory for, and is no unit.
const CHANNEL: &str = "RepartitionExec";

/// The share of the memory that units leave to those who cannot spill, and that those leave to units.
const LEFT: usize = 8;
/// The share of its part that a sort fills with rows. They are counted twice until they are sorted, and the keys of narrow rows take
/// up to three times as much as the rows.
const ROWS: usize = 2;

/// The memory of a session.
pub(crate) struct SharedMemory {
    bytes: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By the consumer that it began with.
    units: HashMap<usize, Unit>,
    /// The unit of each consumer that is of one.
    members: HashMap<usize, usize>,
    /// A sort that waits for its merge, which the same thread makes next.
    begun: HashMap<ThreadId, usize>,
    /// Units of the plans under way.
    announced: usize,
    /// What units hold, and what the others do.
    held: usize,
    others: usize,
}

#[derive(Debug, Default)]
struct Unit {
    consumers: usize,
    rows: usize,
    held: usize,
    /// What it may hold until it holds nothing.
    part: usize,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    /// Spills all that it holds.
    #[default]
    Spiller,
    /// Spills its rows, and merges them.
    Sort,
    /// Cannot spill, and needs little.
    Merge,
}

impl SharedMemory {
    pub(crate) fn new(bytes: usize) -> Self {
        SharedMemory { bytes, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An error that the engine takes for one of its own, so that who can spill does.
    fn refused(&self, reservation: &MemoryReservation, bytes: usize) -> DataFusionError {
        let (name, holds) = (reservation.consumer().name(), reservation.size());
        DataFusionError::ResourcesExhausted(format!(
            "{name} holds {holds} bytes and wants {bytes} more, of {} bytes in all",
            self.bytes
        ))
    }
}

impl State {
    /// What a unit may hold that begins now.
    fn part(&self, bytes: usize) -> usize {
        let units = self.units.len().max(self.announced).max(1);
        (bytes - self.others.max(bytes / LEFT).min(bytes)) / units
    }

    /// Whether a consumer may take so much, and takes it.
    fn take(&mut self, consumer: &MemoryConsumer, more: usize, bytes: usize) -> bool {
        let (part, total) = (self.part(bytes), self.held + self.others);
        let is_free = total + more <= bytes;
        let Some(unit) = self.members.get(&consumer.id()).and_then(|unit| self.units.get_mut(unit)) else {
            let kept = if self.units.is_empty() && self.announced == 0 { 0 } else { bytes / LEFT };
            let may = is_free && self.others + more + kept <= bytes;
            self.others += if may { more } else { 0 };
            return may;
        };
        unit.part = if unit.held == 0 { part } else { unit.part.max(part) };
        let is_rows = unit.kind == Kind::Sort && consumer.can_spill();
        let may = match unit.kind {
            Kind::Merge if is_free => true,
            Kind::Sort if is_rows => unit.rows + more <= unit.part / ROWS && unit.held + more <= unit.part,
            _ => unit.held + more <= unit.part,
        };
        if may {
            self.add(consumer, more);
        }
        may
    }

    fn add(&mut self, consumer: &MemoryConsumer, more: usize) {
        match self.members.get(&consumer.id()).and_then(|unit| self.units.get_mut(unit)) {
            None => self.others += more,
            Some(unit) => {
                unit.held += more;
                unit.rows += if consumer.can_spill() { more } else { 0 };
                self.held += more;
            }
        }
    }

    fn give_back(&mut self, consumer: &MemoryConsumer, less: usize) {
        match self.members.get(&consumer.id()).and_then(|unit| self.units.get_mut(unit)) {
            None => self.others = self.others.saturating_sub(less),
            Some(unit) => {
                unit.held = unit.held.saturating_sub(less);
                unit.rows = unit.rows.saturating_sub(if consumer.can_spill() { less } else { 0 });
                self.held = self.held.saturating_sub(less);
            }
        }
    }
}

impl MemoryPool for SharedMemory {
    fn name(&self) -> &str {
        "shared"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        let (name, id, thread) = (consumer.name(), consumer.id(), std::thread::current().id());
        let mut state = self.state();
        let unit = match state.begun.remove(&thread) {
            Some(sort) if name.starts_with(MERGE_OF_SORT) => sort,
            _ if name.starts_with(CHANNEL) => return,
            _ if consumer.can_spill() || name.starts_with(MERGE) => id,
            _ => return,
        };
        if name.starts_with(SORT) {
            state.begun.insert(thread, id);
        }
        state.members.insert(id, unit);
        let unit = state.units.entry(unit).or_default();
        unit.consumers += 1;
        unit.kind = match name {
            _ if name.starts_with(MERGE) => Kind::Merge,
            _ if name.starts_with(SORT) || name.starts_with(MERGE_OF_SORT) => Kind::Sort,
            _ => Kind::Spiller,
        };
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        let mut state = self.state();
        let Some(id) = state.members.remove(&consumer.id()) else { return };
        state.begun.retain(|_, sort| *sort != id);
        if let Some(unit) = state.units.get_mut(&id) {
            unit.consumers -= 1;
            if unit.consumers == 0 {
                state.units.remove(&id);
            }
        }
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.state().add(reservation.consumer(), additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.state().give_back(reservation.consumer(), shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> PlanResult<()> {
        match self.state().take(reservation.consumer(), additional, self.bytes) {
            true => Ok(()),
            false => Err(self.refused(reservation, additional)),
        }
    }

    fn reserved(&self) -> usize {
        let state = self.state();
        state.held + state.others
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.bytes)
    }
}

impl fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedMemory").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl fmt::Display for SharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes, shared", self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const BYTES: usize = 8000;

    fn shared() -> (Arc<dyn MemoryPool>, impl Fn(&str, bool) -> MemoryReservation) {
        let memory: Arc<dyn MemoryPool> = Arc::new(SharedMemory::new(BYTES));
        let from = memory.clone();
        (memory, move |name: &str, can_spill| {
            MemoryConsumer::new(name).with_can_spill(can_spill).register(&from)
        })
    }

    /// The most that a consumer gets, a byte at a time.
    fn fill(reservation: &MemoryReservation) -> usize {
        while reservation.try_grow(1).is_ok() {}
        reservation.size()
    }

    #[test]
    fn a_sort_that_comes_later_has_its_part_and_room_to_merge() {
        let (_memory, consumer) = shared();
        let sort = || (consumer("ExternalSorter[0]", true), consumer("ExternalSorterMerge[0]", false));
        let (first, first_merge) = sort();
        assert_eq!(fill(&first), 3500, "half of seven eighths");
        let (second, second_merge) = sort();
        assert_eq!((fill(&second), fill(&second_merge)), (1750, 1750), "a half of a half of them");
        // What the first holds it has room to merge, as its rows go.
        first.shrink(1750);
        assert_eq!(fill(&first_merge), 5250);
        first.free();
        first_merge.free();
        assert_eq!(fill(&first), 1750, "it begins anew with its part of two");
    }

    #[test]
    fn what_cannot_spill_takes_what_is_left_and_leaves_something() {
        let (memory, consumer) = shared();
        let table = consumer("HashJoinInput", false);
        assert_eq!(fill(&table), BYTES, "nobody else is there");
        table.free();
        let groups = consumer("FinalHashAggregateStream[0]", true);
        assert_eq!(fill(&table), 7000);
        assert_eq!(fill(&groups), 1000);
        drop((groups, table));
        assert_eq!(memory.reserved(), 0);
    }

    #[test]
    fn a_channel_between_threads_is_no_unit() {
        let (_memory, consumer) = shared();
        let (_channel, groups) = (consumer("RepartitionExec[0]", true), consumer("Groups", true));
        assert_eq!(fill(&groups), 7000);
    }
}
