//! Who holds back recycling: readers of an instant of the state.
//!
//! A reader that looks views up in the state and reads their values later takes a [`Pin`] while the state is locked. It
//! carries the number of records that the reader has seen. A generation that was first named before that and emptied
//! after it may still be read by it, whatever else the generation held in between.
//!
//! Where snapshots have a greatest age, a pin that was taken to last is let go when it is older: from then on it holds back
//! nothing, and its holder reads no more. Both are decided under the lock of the pins, and a pin that is being read from is
//! not let go before that is over; what was read holds its extents itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, Timestamp};
use crate::error::{Cause, Result};
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
    /// How many calls read from it now.
    reading: usize,
    /// It was older than it may be, and holds back nothing any more.
    let_go: bool,
}

/// How old pins may be that were taken to last.
#[derive(Clone, Debug)]
pub(crate) struct AgeLimit {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) age_max: Duration,
}

/// Holds back recycling for as long as it lives, or as it is no older than it may be.
#[derive(Debug)]
pub(crate) struct Pin {
    pins: Arc<Pins>,
    id: u64,
    limit: Option<AgeLimit>,
}

/// A pin is not let go before this is dropped.
#[derive(Debug)]
pub(crate) struct PinReading<'a>(Option<&'a Pin>);

impl PinState {
    /// Whether the holder may read a generation that was named from record `first` on and emptied by record `last`.
    pub(crate) fn covers(&self, first: u64, last: u64) -> bool {
        !self.let_go && first < self.commit && self.commit <= last
    }

    /// Its age where that is more than it may be.
    pub(crate) fn overdue(&self, now: Timestamp, age_max: Duration) -> Option<Duration> {
        self.since.map(|since| now.since(since)).filter(|age| *age > age_max)
    }
}

impl Pins {
    /// Takes a pin; to be called with the state locked, `commit` being the number of its records.
    pub(crate) fn take(self: &Arc<Self>, commit: u64, owner: Arc<str>, since: Option<Timestamp>) -> Pin {
        let mut held = self.held.lock();
        let id = held.next;
        held.next += 1;
        held.pins.insert(id, PinState { id, commit, owner, since, reading: 0, let_go: false });
        Pin { pins: self.clone(), id, limit: None }
    }

    /// Lets pins go that are older than they may be and that nobody reads from just now.
    pub(crate) fn let_overdue_go(&self, now: Timestamp, age_max: Duration) {
        for pin in self.held.lock().pins.values_mut() {
            pin.let_go |= pin.reading == 0 && pin.overdue(now, age_max).is_some();
        }
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

    /// The same, which may be only so old.
    pub(crate) fn limited(mut self, limit: Option<AgeLimit>) -> Self {
        self.limit = limit;
        self
    }

    /// Begins to read what the pin holds back.
    ///
    /// # Errors
    /// `state` when it is older than it may be: what it held back may be gone, and is from here on.
    pub(crate) fn read(&self) -> Result<PinReading<'_>> {
        let Some(AgeLimit { clock, age_max }) = &self.limit else { return Ok(PinReading(None)) };
        let now = clock.now();
        let mut held = self.pins.held.lock();
        let Some(pin) = held.pins.get_mut(&self.id) else { return Ok(PinReading(None)) };
        let age = pin.since.map_or(Duration::ZERO, |since| now.since(since));
        if pin.let_go || age > *age_max {
            pin.let_go |= pin.reading == 0;
            let (owner, age_max) = (pin.owner.to_string(), *age_max);
            return Err(Cause::SnapshotOverdue { owner, age, age_max }.into());
        }
        pin.reading += 1;
        Ok(PinReading(Some(self)))
    }
}

impl Drop for PinReading<'_> {
    fn drop(&mut self) {
        let Some(of) = self.0 else { return };
        if let Some(pin) = of.pins.held.lock().pins.get_mut(&of.id) {
            pin.reading -= 1;
        }
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
    use crate::clock::SimulatedClock;

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

    #[test]
    fn a_pin_that_is_read_from_is_let_go_when_that_is_over() {
        let (pins, clock) = (Arc::new(Pins::default()), Arc::new(SimulatedClock::new(Timestamp(0))));
        let age_max = Duration::from_secs(60);
        let limit = AgeLimit { clock: clock.clone(), age_max };
        let pin = pins.take(10, "export".into(), Some(clock.now())).limited(Some(limit));
        let reading = pin.read().unwrap();
        clock.advance(age_max);
        drop(pin.read().unwrap());
        clock.advance(Duration::from_secs(1));
        let covers = || pins.held()[0].covers(9, 10);
        pins.let_overdue_go(clock.now(), age_max);
        assert!(covers(), "somebody is about to map what it holds back");
        let refused = pin.read().unwrap_err();
        assert!(
            matches!(refused.cause(), Cause::SnapshotOverdue { age, .. } if age.as_secs() == 61),
            "{refused}"
        );
        assert!(covers());
        drop(reading);
        pins.let_overdue_go(clock.now(), age_max);
        assert!(!covers());
        assert!(pin.read().is_err(), "for good");
    }
}
