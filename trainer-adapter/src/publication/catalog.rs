//! What a publisher has, and who reads it: a state machine without threads, clocks or descriptors.
//!
//! A key has two slots and perhaps a barrier (a version in place). What is held is never written: a slot is taken to be written when
//! nobody holds it, and has no version from then until it is filled. The slot of the newest snapshot is never the one taken.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::form::Form;

/// Where a class of a version lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// A memory of the publisher's, by a number that never comes again.
    pub(super) memory: u64,
    /// The first value.
    pub(super) offset: u64,
}

/// A version that can be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) number: u64,
    pub(super) form: Form,
    pub(super) fingerprint: Option<u64>,
    /// One a class.
    pub(super) places: Vec<Place>,
}

/// Which version is asked for. How long to wait for it is the reader's affair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    Latest,
    Exact(u64),
    AtLeast(u64),
}

/// Why a slot cannot be had.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoSlot {
    /// The version is not after this one.
    Old(u64),
    /// Processes that read what is in it.
    Held(Vec<u32>),
}

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
    newest: Option<u64>,
    slots: [Slot; 2],
    barrier: Option<Barrier>,
}

/// A reader's use of a version.
#[derive(Debug)]
struct Hold {
    key: String,
    seat: Seat,
    connection: u64,
    process: u32,
}

/// A version that was given to a reader.
#[derive(Debug)]
pub(super) struct Granted {
    pub(super) hold: u64,
    pub(super) is_in_place: bool,
    pub(super) version: Arc<Version>,
}

/// What was done so far, and what there is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PublisherCounts {
    /// Snapshots that were published.
    pub snapshots: u64,
    /// Versions that could be had in place.
    pub in_place: u64,
    /// Gets that were granted.
    pub granted: u64,
    /// Connections that were made: a domain a reader, however often it gets, and one for each wait.
    pub domains_made: u64,
    /// Readers that were refused: of another user, or without the protocol.
    pub refused: u64,
    /// Domains that are there now, those included whose reader has gone without an end of its holds.
    pub domains: usize,
    /// Versions that are held now.
    pub holds: usize,
    /// Memories that were made for slots so far. It stands still while versions fit.
    pub memories_made: u64,
}

#[derive(Debug, Default)]
pub(super) struct Catalog {
    keys: BTreeMap<String, Key>,
    holds: HashMap<u64, Hold>,
    /// Holds, barriers and memories have numbers that never come again.
    numbers: u64,
    pub(super) counts: PublisherCounts,
}

impl Catalog {
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// A number for a memory.
    pub(super) fn memory(&mut self) -> u64 {
        self.number()
    }

    fn key(&mut self, key: &str) -> &mut Key {
        self.keys.entry(key.to_owned()).or_default()
    }

    /// Refuses a version that is not after all that were there.
    pub(super) fn check_new(&self, key: &str, version: u64) -> Result<(), NoSlot> {
        match self.keys.get(key).and_then(|key| key.newest) {
            Some(newest) if newest >= version => Err(NoSlot::Old(newest)),
            _ => Ok(()),
        }
    }

    /// Takes the slot that is to be written: from now on it has no version.
    pub(super) fn take_slot(&mut self, key: &str, version: u64) -> Result<usize, NoSlot> {
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
    pub(super) fn set_memory(&mut self, key: &str, slot: usize, memory: Option<u64>) {
        self.key(key).slots[slot].memory = memory;
        self.counts.memories_made += u64::from(memory.is_some());
    }

    /// What was written to a slot can be had.
    pub(super) fn fill(&mut self, key: &str, slot: usize, version: Version) {
        let key = self.key(key);
        key.newest = Some(version.number);
        key.slots[slot].version = Some(Arc::new(version));
        self.counts.snapshots += 1;
    }

    /// A version can be had in place. Gives the barrier's number.
    pub(super) fn open_barrier(&mut self, key: &str, version: Version) -> u64 {
        let number = self.number();
        let key = self.key(key);
        key.newest = Some(version.number);
        key.barrier = Some(Barrier { number, version: Arc::new(version), is_open: true, holds: 0 });
        self.counts.in_place += 1;
        number
    }

    /// Whether a version of the key is in place.
    pub(super) fn has_barrier(&self, key: &str) -> bool {
        self.keys.get(key).is_some_and(|key| key.barrier.is_some())
    }

    /// Nobody begins any more to read the version in place. Gives the processes that still do.
    pub(super) fn close_barrier(&mut self, key: &str) -> Vec<u32> {
        let Some(barrier) = self.keys.get_mut(key).and_then(|key| key.barrier.as_mut()) else {
            return Vec::new();
        };
        barrier.is_open = false;
        let seat = Seat::Barrier(barrier.number);
        self.readers_of(key, seat)
    }

    /// The barrier is over. Who still reads is told when he is done.
    pub(super) fn remove_barrier(&mut self, key: &str) {
        self.key(key).barrier = None;
    }

    fn readers_of(&self, key: &str, seat: Seat) -> Vec<u32> {
        let of = |hold: &&Hold| hold.key == key && hold.seat == seat;
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
    pub(super) fn newest(&self, key: &str) -> Option<u64> {
        let there = self.keys.get(key).into_iter().flat_map(Self::there);
        there.map(|(_, version)| version.number).max()
    }

    /// Finds a version without holding it.
    pub(super) fn find(&self, key: &str, ask: Ask) -> Option<&Arc<Version>> {
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
    pub(super) fn grant(
        &mut self,
        key: &str,
        ask: Ask,
        (connection, process): (u64, u32),
    ) -> Option<Granted> {
        let (seat, version) = self.seat(key, ask)?;
        let version = Arc::clone(version);
        let hold = self.number();
        self.holds.insert(hold, Hold { key: key.to_owned(), seat, connection, process });
        self.change_holds(key, seat, |holds| holds + 1);
        self.counts.granted += 1;
        Some(Granted { hold, is_in_place: matches!(seat, Seat::Barrier(_)), version })
    }

    fn change_holds(&mut self, key: &str, seat: Seat, change: impl FnOnce(usize) -> usize) {
        let Some(key) = self.keys.get_mut(key) else { return };
        match (seat, &mut key.barrier) {
            (Seat::Slot(at), _) => key.slots[at].holds = change(key.slots[at].holds),
            (Seat::Barrier(number), Some(barrier)) if barrier.number == number => {
                barrier.holds = change(barrier.holds);
            }
            (Seat::Barrier(_), _) => {} // it is over
        }
    }

    /// Ends a hold of a connection. Gives the version that still lies where the reader read, if one does; an error when the
    /// connection has no such hold.
    pub(super) fn release(&mut self, hold: u64, connection: u64) -> Result<Option<u64>, ()> {
        match self.holds.get(&hold) {
            Some(found) if found.connection == connection => {}
            _ => return Err(()),
        }
        let Some(Hold { key, seat, .. }) = self.holds.remove(&hold) else { return Err(()) };
        self.change_holds(&key, seat, |holds| holds.saturating_sub(1));
        let there = self.keys.get(&key).and_then(|key| match seat {
            Seat::Slot(at) => key.slots[at].version.as_ref(),
            Seat::Barrier(number) => {
                key.barrier.as_ref().filter(|barrier| barrier.number == number).map(|b| &b.version)
            }
        });
        Ok(there.map(|version| version.number))
    }

    /// Ends all holds of a connection. Whether there were any.
    pub(super) fn release_all(&mut self, connection: u64) -> bool {
        let of = |(number, hold): (&u64, &Hold)| (hold.connection == connection).then_some(*number);
        let holds: Vec<u64> = self.holds.iter().filter_map(of).collect();
        holds.iter().for_each(|hold| _ = self.release(*hold, connection));
        !holds.is_empty()
    }

    /// Whether a connection holds anything.
    pub(super) fn is_holding(&self, connection: u64) -> bool {
        self.holds.values().any(|hold| hold.connection == connection)
    }

    /// The memories in which a version lies or may come to lie.
    pub(super) fn memories(&self) -> HashSet<u64> {
        let of = |key: &Key| {
            let slots = key.slots.iter().filter_map(|slot| slot.memory);
            let barrier = key.barrier.iter().flat_map(|barrier| &barrier.version.places);
            slots.chain(barrier.map(|place| place.memory)).collect::<Vec<u64>>()
        };
        self.keys.values().flat_map(of).collect()
    }

    pub(super) fn counts(&self) -> PublisherCounts {
        PublisherCounts { holds: self.holds.len(), ..self.counts }
    }
}

#[cfg(test)]
mod tests {
    use super::super::form::ClassForm;
    use super::*;

    fn version(number: u64) -> Version {
        let classes = vec![ClassForm { name: "weights".into(), values: 5 }];
        let places = vec![Place { memory: 1, offset: 0 }];
        Version { number, form: Form { layout: 7, classes }, fingerprint: None, places }
    }

    fn publish(catalog: &mut Catalog, number: u64) -> Result<usize, NoSlot> {
        let slot = catalog.take_slot("solver", number)?;
        catalog.fill("solver", slot, version(number));
        Ok(slot)
    }

    #[test]
    fn slots_rotate_and_the_newest_is_never_the_one_that_is_taken() {
        let mut catalog = Catalog::default();
        let slots: Vec<usize> = (1..=5).map(|number| publish(&mut catalog, number).unwrap()).collect();
        assert_eq!(slots, [0, 1, 0, 1, 0]);
        let has = |ask| catalog.find("solver", ask).map(|version| version.number);
        assert_eq!((has(Ask::Latest), has(Ask::Exact(4)), has(Ask::Exact(3))), (Some(5), Some(4), None));
        assert_eq!((has(Ask::AtLeast(4)), has(Ask::AtLeast(6))), (Some(5), None));
        assert_eq!(catalog.take_slot("solver", 5), Err(NoSlot::Old(5)));
    }

    // A slot whose filling failed is the next to be tried, and the version before it goes on being served.
    #[test]
    fn a_slot_that_was_taken_and_not_filled_costs_no_version_but_the_one_it_had() {
        let mut catalog = Catalog::default();
        (1..=2).for_each(|number| _ = publish(&mut catalog, number));
        assert_eq!(catalog.take_slot("solver", 3), Ok(0));
        assert_eq!(catalog.newest("solver"), Some(2));
        assert!(catalog.find("solver", Ask::Exact(1)).is_none(), "what it had is gone");
        assert_eq!(publish(&mut catalog, 3), Ok(0));
    }

    #[test]
    fn a_slot_is_not_taken_while_anybody_holds_it() {
        let mut catalog = Catalog::default();
        publish(&mut catalog, 1).unwrap();
        let one = catalog.grant("solver", Ask::Latest, (1, 100)).unwrap();
        let two = catalog.grant("solver", Ask::Latest, (2, 90)).unwrap();
        publish(&mut catalog, 2).unwrap();
        assert_eq!(catalog.take_slot("solver", 3), Err(NoSlot::Held(vec![90, 100])));
        assert_eq!(catalog.release(one.hold, 2), Err(()), "it is not his");
        assert_eq!(catalog.release(one.hold, 1), Ok(Some(1)));
        assert_eq!(catalog.release(one.hold, 1), Err(()), "once");
        assert_eq!(catalog.take_slot("solver", 3), Err(NoSlot::Held(vec![90])));
        assert!(catalog.is_holding(2) && catalog.release_all(2) && !catalog.release_all(2));
        assert_eq!(catalog.release(two.hold, 2), Err(()));
        assert_eq!(catalog.take_slot("solver", 3), Ok(0));
        assert_eq!(catalog.counts().holds, 0);
    }

    #[test]
    fn a_barrier_that_is_over_is_told_to_who_still_read() {
        let mut catalog = Catalog::default();
        publish(&mut catalog, 1).unwrap();
        catalog.open_barrier("solver", version(2));
        let [early, late] = [1, 2].map(|c| catalog.grant("solver", Ask::Latest, (c, 100)).unwrap());
        assert!(early.is_in_place && early.version.number == 2);
        assert_eq!(catalog.release(early.hold, 1), Ok(Some(2)));
        assert_eq!(catalog.close_barrier("solver"), [100]);
        assert_eq!(catalog.newest("solver"), Some(1), "nobody begins any more");
        catalog.remove_barrier("solver");
        catalog.open_barrier("solver", version(3));
        assert_eq!(catalog.release(late.hold, 2), Ok(None), "another barrier is not his");
        assert_eq!(catalog.check_new("solver", 3), Err(NoSlot::Old(3)));
    }

    /// Random calls: who holds a version finds it where it was, and the newest snapshot can always be had.
    #[test]
    fn no_order_of_calls_writes_what_is_held() {
        for seed in 0..200_u64 {
            let (mut catalog, mut random, mut number) = (Catalog::default(), seed, 0);
            let mut held: Vec<(u64, u64, u64)> = Vec::new();
            for _ in 0..200 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                match random >> 61 {
                    0..=2 => number += u64::from(publish(&mut catalog, number + 1).is_ok()),
                    3..=4 => {
                        let connection = random >> 20 & 3;
                        if let Some(granted) = catalog.grant("solver", Ask::Latest, (connection, 1)) {
                            held.push((granted.hold, connection, granted.version.number));
                        }
                    }
                    5 => {
                        let connection = random >> 20 & 3;
                        let any = held.iter().any(|(_, owner, _)| *owner == connection);
                        assert_eq!(catalog.release_all(connection), any, "seed {seed}");
                        held.retain(|(_, owner, _)| *owner != connection);
                    }
                    _ if held.is_empty() => {}
                    _ => {
                        let (hold, owner, version) = held.swap_remove((random >> 20) as usize % held.len());
                        assert_eq!(catalog.release(hold, owner), Ok(Some(version)), "seed {seed}");
                    }
                }
                assert_eq!(catalog.newest("solver").unwrap_or(0), number, "seed {seed}");
                assert_eq!(catalog.counts().holds, held.len());
            }
        }
    }
}
