//! How those who insert rows wait for a consumer whose rate limiter holds them back.
//!
//! A [`Throttle`] stands beside a consumer's [`Signal`], outside of the state's lock. It knows what
//! claimers asked for in vain: each who stands in line, and each who went away empty-handed, until as much is handed out.
//! Whether that still cannot be had is for the state to say, and inserts go on as long as it cannot.
//!
//! # No wake-up is lost
//! Who inserts listens first and looks afterwards, with the state locked. What may let inserts in is told after it has
//! happened: by every change of the state that leaves room, which is found out with the state locked while
//! somebody waits, and by every claimer that comes away empty-handed. As many are woken as there is room for rows; who
//! leaves, inserted or not, tells the others what room there is left.

use std::sync::Arc;

use super::signal::Signal;
use crate::clock::{Clock, Timestamp};
use crate::state::{Ask, State};
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Event, EventListener, Mutex};

/// How many different things that were asked for and not had are remembered of those who went away.
const ASKED_MAX: usize = 16;

/// What those who insert for one consumer look at and wait on.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    /// The consumer has a limiter.
    limited: AtomicBool,
    /// How many wait to insert.
    waiting: AtomicUsize,
    /// How many rows may come, as of the last change while somebody waited.
    room: AtomicU64,
    /// Notified when rows may come.
    may_insert: Event,
    wanted: Mutex<Wanted>,
}

/// What claimers asked for in vain.
#[derive(Debug, Default)]
struct Wanted {
    /// Those who stand in line, and how many there are of each.
    in_line: Vec<(Ask, usize)>,
    /// Those who went away.
    asked: Vec<Ask>,
}

impl Throttle {
    /// Tells how the consumer stands. Called with the state locked, in the order of its changes.
    pub(super) fn publish(&self, state: &State, consumer: usize) {
        let limited = state.consumers[consumer].limiter.is_some();
        self.limited.store(limited, Ordering::SeqCst);
        if limited && self.waiting.load(Ordering::SeqCst) > 0 {
            let room = if self.is_wanting(state, consumer) { u64::MAX } else { state.may_insert(consumer) };
            self.room.store(room, Ordering::SeqCst);
        }
    }

    /// Wakes as many of those who wait as there is room for.
    pub(super) fn announce(&self) {
        let room = self.room.load(Ordering::SeqCst);
        if room > 0 && self.waiting.load(Ordering::SeqCst) > 0 {
            self.may_insert.notify(usize::try_from(room).unwrap_or(usize::MAX));
        }
    }

    /// Wakes everyone.
    pub(super) fn wake_all(&self) {
        self.may_insert.notify(usize::MAX);
    }

    /// Whether a claimer asked for something that still cannot be had.
    pub(crate) fn is_wanting(&self, state: &State, consumer: usize) -> bool {
        let wanted = self.wanted.lock();
        let asks = wanted.in_line.iter().map(|(ask, _)| ask).chain(&wanted.asked);
        asks.into_iter().any(|ask| state.is_wanting(consumer, ask))
    }

    /// A claimer has come away empty-handed: whoever inserts looks again.
    pub(super) fn asked_in_vain(&self, ask: Ask) {
        if !self.limited.load(Ordering::SeqCst) {
            return;
        }
        let mut wanted = self.wanted.lock();
        wanted.asked.retain(|other| *other != ask && other.step == ask.step);
        if wanted.asked.len() == ASKED_MAX {
            wanted.asked.remove(0);
        }
        wanted.asked.push(ask);
        drop(wanted);
        self.wake_all();
    }

    /// A claimer got what it had asked for.
    pub(super) fn got(&self, ask: Ask) {
        if self.limited.load(Ordering::SeqCst) {
            self.wanted.lock().asked.retain(|other| *other != ask);
        }
    }

    /// A claimer begins to wait. False where that matters to nobody.
    pub(super) fn stands_in_line(&self, ask: Ask) -> bool {
        if !self.limited.load(Ordering::SeqCst) {
            return false;
        }
        let mut wanted = self.wanted.lock();
        match wanted.in_line.iter_mut().find(|(other, _)| *other == ask) {
            Some((_, count)) => *count += 1,
            None => wanted.in_line.push((ask, 1)),
        }
        true
    }

    /// A claimer waits no longer.
    pub(super) fn leaves_line(&self, ask: Ask) {
        let mut wanted = self.wanted.lock();
        wanted.in_line.iter_mut().filter(|(other, _)| *other == ask).for_each(|(_, count)| *count -= 1);
        wanted.in_line.retain(|(_, count)| *count > 0);
    }
}

/// Somebody who waits to insert. Dropping it ends the wait, and tells the others what room there is.
#[derive(Debug)]
pub(crate) struct Inserting {
    signal: Arc<Signal>,
    consumer: usize,
    listener: Option<EventListener>,
}

impl Inserting {
    /// Begins to wait for a consumer. Look again before [waiting](Inserting::wait).
    pub(crate) fn begin(signal: Arc<Signal>, consumer: usize) -> Self {
        signal.throttle().waiting.fetch_add(1, Ordering::SeqCst);
        let listener = Some(signal.throttle().may_insert.listen());
        Inserting { signal, consumer, listener }
    }

    /// The consumer that is waited for.
    pub(crate) fn consumer(&self) -> usize {
        self.consumer
    }

    /// Waits until there may be room, or until `deadline`. Look again before the next wait.
    pub(crate) fn wait(&mut self, clock: &dyn Clock, deadline: Option<Timestamp>) {
        if let Some(listener) = self.listener.take() {
            clock.wait(listener, deadline);
        }
        self.listener = Some(self.signal.throttle().may_insert.listen());
    }
}

impl Drop for Inserting {
    fn drop(&mut self) {
        drop(self.listener.take()); // hands a wake-up on
        let throttle = self.signal.throttle();
        throttle.waiting.fetch_sub(1, Ordering::SeqCst);
        throttle.announce();
    }
}
