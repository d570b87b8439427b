//! What a publisher has, and who reads it: a state machine without threads, clocks or descriptors.
//!
//! A key has two slots and perhaps a barrier (a version in place). What is held is never written: a slot is taken to be written when
//! nobody holds it, and has no version from then until it is filled. The slot of the newest snapshot is never the one taken.
//!
//! A key lives from its first version until it is forgotten. A hold is of one life of its key, and says nothing of the next.

mod counts;
mod version;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

pub use counts::PublisherCounts;
pub(in crate::publication) use version::{Ask, Granted, NoSlot, Place, Version};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seat {
    Slot(usize),
    Barrier(u64),
}

#[derive(Debug, Default)]
struct Slot {
    version: Option<Arc<Version>>,
    memory: Option<u64>,
    holds: usize,
}

#[derive(Debug)]
struct Barrier {
    number: u64,
    version: Arc<Version>,
    is_open: bool,
    holds: usize,
}

#[derive(Debug, Default)]
struct Key {
    /// A number that never comes again.
    life: u64,
    newest: Option<u64>,
    slots: [Slot; 2],
    barrier: Option<Barrier>,
}

/// A reader's use of a version.
#[derive(Debug)]
struct Hold {
    key: String,
    life: u64,
    seat: Seat,
    connection: u64,
    process: u32,
}

#[derive(Debug, Default)]
pub(in crate::publication) struct Catalog {
    keys: BTreeMap<String, Key>,
    holds: HashMap<u64, Hold>,
    /// Lives, holds, barriers and memories have numbers that never come again.
    numbers: u64,
    pub(in crate::publication) counts: PublisherCounts,
}

impl Catalog {
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// A number for a memory.
    pub(in crate::publication) fn memory(&mut self) -> u64 {
        self.number()
    }

    fn key(&mut self, key: &str) -> &mut Key {
        let Self { keys, numbers, .. } = self;
        keys.entry(key.to_owned()).or_insert_with(|| {
            *numbers += 1;
            Key { life: *numbers, ..Key::default() }
        })
    }

    /// Refuses a version that is not after all that were there.
    pub(in crate::publication) fn check_new(&self, key: &str, version: u64) -> Result<(), NoSlot> {
        match self.keys.get(key).and_then(|key| key.newest) {
            Some(newest) if newest >= version => Err(NoSlot::Old(newest)),
            _ => Ok(()),
        }
    }

    /// Takes the slot that is to be written: from now on it has no version.
    pub(in crate::publication) fn take_slot(&mut self, key: &str, version: u64) -> Result<usize, NoSlot> {
        self.check_new(key, version)?;
        let slots = &mut self.key(key).slots;
        let number = |slot: &Slot| slot.version.as_ref().map(|version| version.number);
        let chosen = usize::from(number(&slots[1]) < number(&slots[0]));
        if slots[chosen].holds > 0 {
            return Err(NoSlot::Held(self.readers_of(key, Seat::Slot(chosen))));
        }
        slots[chosen].version = None;
        Ok(chosen)
    }

    /// Another memory stands behind a slot.
    pub(in crate::publication) fn set_memory(&mut self, key: &str, slot: usize, memory: Option<u64>) {
        self.key(key).slots[slot].memory = memory;
        self.counts.memories_made += u64::from(memory.is_some());
    }

    /// What was written to a slot can be had.
    pub(in crate::publication) fn fill(&mut self, key: &str, slot: usize, version: Version) {
        let key = self.key(key);
        key.newest = Some(version.number);
        key.slots[slot].version = Some(Arc::new(version));
        self.counts.snapshots += 1;
    }

    /// A version can be had in place. Gives the barrier's number.
    pub(in crate::publication) fn open_barrier(&mut self, key: &str, version: Version) -> u64 {
        let number = self.number();
        let key = self.key(key);
        key.newest = Some(version.number);
        key.barrier = Some(Barrier { number, version: Arc::new(version), is_open: true, holds: 0 });
        self.counts.in_place += 1;
        number
    }

    /// Whether a version of the key is in place.
    pub(in crate::publication) fn has_barrier(&self, key: &str) -> bool {
        self.keys.get(key).is_some_and(|key| key.barrier.is_some())
    }

    /// Nobody begins any more to read the version in place. Gives the processes that still do.
    pub(in crate::publication) fn close_barrier(&mut self, key: &str) -> Vec<u32> {
        let Some(barrier) = self.keys.get_mut(key).and_then(|key| key.barrier.as_mut()) else {
            return Vec::new();
        };
        barrier.is_open = false;
        let seat = Seat::Barrier(barrier.number);
        self.readers_of(key, seat)
    }

    /// The barrier is over. Who still reads is told when he is done.
    pub(in crate::publication) fn remove_barrier(&mut self, key: &str) {
        if let Some(key) = self.keys.get_mut(key) {
            key.barrier = None;
        }
    }

    /// Nothing of the key can be had any more. Who still reads is told when he is done. Whether there was anything.
    pub(in crate::publication) fn forget(&mut self, key: &str) -> bool {
        self.keys.remove(key).is_some_and(|key| Self::there(&key).next().is_some())
    }

    fn readers_of(&self, key: &str, seat: Seat) -> Vec<u32> {
        let life = self.keys.get(key).map(|key| key.life);
        let of = |hold: &&Hold| hold.key == key && Some(hold.life) == life && hold.seat == seat;
        let mut readers: Vec<u32> = self.holds.values().filter(of).map(|hold| hold.process).collect();
        readers.sort_unstable();
        readers.dedup();
        readers
    }

    /// What can be had of a key.
    fn there(key: &Key) -> impl Iterator<Item = (Seat, &Arc<Version>)> {
        let slots = key.slots.iter().enumerate();
        let slots = slots.filter_map(|(at, slot)| Some((Seat::Slot(at), slot.version.as_ref()?)));
        let barrier = key.barrier.iter().filter(|barrier| barrier.is_open);
        slots.chain(barrier.map(|barrier| (Seat::Barrier(barrier.number), &barrier.version)))
    }

    /// The newest version that can be had.
    pub(in crate::publication) fn newest(&self, key: &str) -> Option<u64> {
        let there = self.keys.get(key).into_iter().flat_map(Self::there);
        there.map(|(_, version)| version.number).max()
    }

    /// Finds a version without holding it.
    pub(in crate::publication) fn find(&self, key: &str, ask: Ask) -> Option<&Arc<Version>> {
        self.seat(key, ask).map(|(_, version)| version)
    }

    fn seat(&self, key: &str, ask: Ask) -> Option<(Seat, &Arc<Version>)> {
        let there = self.keys.get(key).into_iter().flat_map(Self::there);
        let fits = |number: u64| match ask {
            Ask::Latest => true,
            Ask::Exact(exact) => number == exact,
            Ask::AtLeast(least) => number >= least,
        };
        there.filter(|(_, version)| fits(version.number)).max_by_key(|(_, version)| version.number)
    }

    /// Gives a version to a reader, who holds it from now on.
    pub(in crate::publication) fn grant(
        &mut self,
        key: &str,
        ask: Ask,
        (connection, process): (u64, u32),
    ) -> Option<Granted> {
        let life = self.keys.get(key)?.life;
        let (seat, version) = self.seat(key, ask)?;
        let version = Arc::clone(version);
        let given = Hold { key: key.to_owned(), life, seat, connection, process };
        self.change_holds(&given, |holds| holds + 1);
        let hold = self.number();
        self.holds.insert(hold, given);
        self.counts.granted += 1;
        Some(Granted { hold, is_in_place: matches!(seat, Seat::Barrier(_)), version })
    }

    /// Counts a hold, or counts it off. The one of a life or a barrier that is over is counted nowhere.
    fn change_holds(&mut self, hold: &Hold, change: impl FnOnce(usize) -> usize) {
        let Some(key) = self.keys.get_mut(&hold.key).filter(|key| key.life == hold.life) else { return };
        match (hold.seat, &mut key.barrier) {
            (Seat::Slot(at), _) => key.slots[at].holds = change(key.slots[at].holds),
            (Seat::Barrier(number), Some(barrier)) if barrier.number == number => {
                barrier.holds = change(barrier.holds);
            }
            (Seat::Barrier(_), _) => {} // it is over
        }
    }

    /// Ends a hold of a connection. Gives the version that still lies where the reader read, if one does; an error when the
    /// connection has no such hold.
    pub(in crate::publication) fn release(&mut self, hold: u64, connection: u64) -> Result<Option<u64>, ()> {
        match self.holds.get(&hold) {
            Some(found) if found.connection == connection => {}
            _ => return Err(()),
        }
        let Some(over) = self.holds.remove(&hold) else { return Err(()) };
        self.change_holds(&over, |holds| {
            debug_assert!(holds > 0, "what is counted off was counted");
            holds.saturating_sub(1)
        });
        let key = self.keys.get(&over.key).filter(|key| key.life == over.life);
        let there = key.and_then(|key| match over.seat {
            Seat::Slot(at) => key.slots[at].version.as_ref(),
            Seat::Barrier(number) => {
                key.barrier.as_ref().filter(|barrier| barrier.number == number).map(|b| &b.version)
            }
        });
        Ok(there.map(|version| version.number))
    }

    /// Ends all holds of a connection. Whether there were any.
    pub(in crate::publication) fn release_all(&mut self, connection: u64) -> bool {
        let of = |(number, hold): (&u64, &Hold)| (hold.connection == connection).then_some(*number);
        let holds: Vec<u64> = self.holds.iter().filter_map(of).collect();
        holds.iter().for_each(|hold| _ = self.release(*hold, connection));
        !holds.is_empty()
    }

    /// How many versions a connection holds.
    pub(in crate::publication) fn holds_of(&self, connection: u64) -> usize {
        self.holds.values().filter(|hold| hold.connection == connection).count()
    }

    /// The memories in which a version lies or may come to lie.
    pub(in crate::publication) fn memories(&self) -> HashSet<u64> {
        let of = |key: &Key| {
            let slots = key.slots.iter().filter_map(|slot| slot.memory);
            let barrier = key.barrier.iter().flat_map(|barrier| &barrier.version.places);
            slots.chain(barrier.map(|place| place.memory)).collect::<Vec<u64>>()
        };
        self.keys.values().flat_map(of).collect()
    }

    pub(in crate::publication) fn counts(&self) -> PublisherCounts {
        PublisherCounts { holds: self.holds.len(), ..self.counts }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests;
