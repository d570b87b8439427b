//! The signals of all consumers of a store.

use std::sync::Arc;

use super::signal::Signal;
use crate::clock::Timestamp;
use crate::state::{Effects, State};
use crate::sync::RwLock;
use crate::sync::atomic::{AtomicI64, Ordering};

/// What claimers look at and wait on without taking the state's lock.
#[derive(Debug)]
pub(crate) struct Signals {
    of_consumers: RwLock<Vec<Arc<Signal>>>,
    /// When the next lease ends, in microseconds since the Unix epoch.
    next_deadline: AtomicI64,
}

impl Default for Signals {
    fn default() -> Self {
        Signals { of_consumers: RwLock::default(), next_deadline: AtomicI64::new(i64::MAX) }
    }
}

impl Signals {
    /// The signal of a consumer, for as long as the store lives.
    pub(crate) fn of(&self, consumer: usize) -> Arc<Signal> {
        if let Some(signal) = self.of_consumers.read().get(consumer) {
            return signal.clone();
        }
        let mut signals = self.of_consumers.write();
        if signals.len() <= consumer {
            signals.resize_with(consumer + 1, Arc::default);
        }
        signals[consumer].clone()
    }

    /// Tells how those consumers stand that a change has touched. Called with the state locked.
    pub(crate) fn publish(&self, state: &State, effects: &Effects) {
        if effects.touched == 0 {
            return;
        }
        if self.of_consumers.read().len() < state.consumers.len() {
            self.of(state.consumers.len() - 1);
        }
        for (consumer, signal) in self.of_consumers.read().iter().enumerate() {
            if effects.touches(consumer) && consumer < state.consumers.len() {
                signal.publish(state.readiness(consumer));
                signal.throttle().publish(state, consumer);
            }
        }
        let deadline = state.claims.next_deadline().map_or(i64::MAX, |deadline| deadline.0);
        self.next_deadline.store(deadline, Ordering::SeqCst);
    }

    /// Wakes who has something to do after a change. Called with no lock held.
    pub(crate) fn announce(&self, effects: &Effects) {
        if effects.touched == 0 && effects.wake.is_empty() {
            return;
        }
        let consumers = self.of_consumers.read().len();
        for consumer in 0..consumers {
            let (is_touched, wakes) = (effects.touches(consumer), effects.wake.contains(&consumer));
            let wakes_all = effects.everyone.contains(&consumer);
            if !(is_touched || wakes || wakes_all) {
                continue;
            }
            let signal = self.of(consumer); // nobody is woken with the list held
            if is_touched {
                signal.announce();
                signal.throttle().announce();
            }
            if wakes_all {
                signal.wake_all();
            } else if wakes {
                signal.changed();
            }
        }
    }

    /// Wakes everyone.
    pub(crate) fn wake_all(&self) {
        let signals = self.of_consumers.read().clone();
        signals.iter().for_each(|signal| signal.wake_all());
    }

    /// When the next lease ends.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        let deadline = self.next_deadline.load(Ordering::SeqCst);
        (deadline != i64::MAX).then_some(Timestamp(deadline))
    }
}
