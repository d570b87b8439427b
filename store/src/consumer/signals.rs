//! The signals of all consumers of a store.

use std::sync::Arc;

use super::signal::Signal;
use crate::clock::Timestamp;
use crate::state::{Effects, State};
use crate::sync::atomic::{AtomicI64, Ordering};
use crate::sync::{Rank, RwLock};

/// What claimers look at and wait on without taking the state's lock.
#[derive(Debug)]
pub(crate) struct Signals {
    of_consumers: RwLock<Vec<Arc<Signal>>>,
    /// When the next lease ends, in microseconds since the Unix epoch.
    next_deadline: AtomicI64,
}

impl Default for Signals {
    fn default() -> Self {
        let of_consumers = RwLock::ranked(Rank::Signals, Vec::new());
        Signals { of_consumers, next_deadline: AtomicI64::new(i64::MAX) }
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
        // Also of what touches no consumer: a claim that is extended, accumulated or finished ends at another time, or at none.
        let deadline = state.claims.next_deadline().map_or(i64::MAX, |deadline| deadline.0);
        self.next_deadline.store(deadline, Ordering::SeqCst);
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use crate::*;

    const LEASE: Duration = Duration::from_secs(100);

    fn store() -> (Store, ConsumerHandle, ConsumerHandle) {
        let options = Options::default().disk(Arc::new(SimulatedDisk::default())).lease(LEASE);
        let clock = Arc::new(SimulatedClock::new(Timestamp(1_000_000)));
        let store = Store::open("/store", options.clock(clock)).unwrap();
        let schema = Schema::new().data("reward", DataType::Float32);
        let table = store.create_table("solver", schema).unwrap();
        let judge = store.create_consumer("judge", Consumer::task(["solver"])).unwrap();
        let train = store.create_consumer("train", Consumer::trainer(["solver"])).unwrap();
        table.insert(0, "q_0_0", []).unwrap();
        (store, judge, train)
    }

    // Or whoever waits would look again and again at the deadline of a claim that has none any more.
    #[test]
    fn a_deadline_is_gone_as_soon_as_its_claim_is_finished_accumulated_or_extended() {
        let (store, judge, train) = store();
        let shared = &store.0;
        let next = || shared.signals.next_deadline();
        let of_judge = judge.claim(MicroBatch::of(1), "me", Wait::No).unwrap().unwrap();
        let first = next().unwrap();
        of_judge.finish(|_| Ok(())).unwrap();
        assert_eq!(next(), None);
        let step = store.begin_step(StepPlan::new().rows(&train, 1)).unwrap();
        let claim = step.next(&train, MicroBatch::of(1), Wait::No).unwrap().unwrap();
        assert_eq!(next(), Some(first));
        let extended = claim.extend(LEASE * 36).unwrap();
        assert_eq!(next(), Some(extended));
        claim.accumulated().unwrap();
        assert_eq!(next(), None);
        assert_eq!(judge.claim(MicroBatch::of(1), "me", Wait::For(LEASE * 3)).unwrap().map(drop), None);
    }

    #[test]
    fn who_waits_sleeps_no_longer_than_a_lease_given_now_would_last() {
        let (store, judge, _train) = store();
        let claim = judge.claim(MicroBatch::of(1), "me", Wait::No).unwrap().unwrap();
        claim.extend(LEASE * 36).unwrap();
        assert_eq!(store.0.next_look(), Some(store.clock().now().after(LEASE)));
    }
}
