//! Who holds back recycling: readers of an instant of the state.
//!
//! A reader that looks views up in the state and reads their values later takes a [`Pin`] while the state is locked. It
//! carries the number of records that the reader has seen. A generation that was first named before that and emptied
//! after it may still be read by it, whatever else the generation held in between.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::clock::Timestamp;
use crate::sync::Mutex;

/// Every pin that is held.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    next: u64,
    pins: BTreeMap<u64, PinState>,
}

/// One pin, as it is shown.
#[derive(Clone, Debug)]
pub(crate) struct PinState {
    pub(crate) id: u64,
    /// How many records its holder has seen.
    pub(crate) commit: u64,
    pub(crate) owner: Arc<str>,
    /// `None` for one that lasts for a call only.
    pub(crate) since: Option<Timestamp>,
}

/// Holds back recycling for as long as it lives.
#[derive(Debug)]
pub(crate) struct Pin {
    pins: Arc<Pins>,
    id: u64,
}

impl PinState {
    /// Whether the holder may read a generation that was named from record `first` on and emptied by record `last`.
    pub(crate) fn covers(&self, first: u64, last: u64) -> bool {
        first < self.commit && self.commit <= last
    }
}

impl Pins {
    /// Takes a pin; to be called with the state locked, `commit` being the number of its records.
    pub(crate) fn take(self: &Arc<Self>, commit: u64, owner: Arc<str>, since: Option<Timestamp>) -> Pin {
        let mut held = self.held.lock();
        let id = held.next;
        held.next += 1;
        held.pins.insert(id, PinState { id, commit, owner, since });
        Pin { pins: self.clone(), id }
    }

    /// The pins that are held now.
    pub(crate) fn held(&self) -> Vec<PinState> {
        self.held.lock().pins.values().cloned().collect()
    }
}

impl Pin {
    pub(crate) fn id(&self) -> u64 {
        self.id
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.pins.held.lock().pins.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_covers_what_its_holder_saw_alive() {
        let pins = Arc::new(Pins::default());
        let pin = pins.take(10, "reader".into(), None);
        let cases = [(9, 10, true), (3, 50, true), (10, 12, false), (3, 9, false)];
        for (first, last, covered) in cases {
            assert_eq!(pins.held()[0].covers(first, last), covered, "named by {first}, emptied by {last}");
        }
        drop(pin);
        assert!(pins.held().is_empty());
    }
}
