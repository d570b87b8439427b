//! How much of training ran while rollouts were still running.

use std::time::Instant;

use forebay_rollout_adapter::environment::Observer;
use parking_lot::Mutex;

/// Seconds of training, and how many of them fell before the last reward of their step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Overlap {
    /// Seconds that trainers computed gradients, over all policies.
    pub training_s: f64,
    /// Seconds of those in which rollouts of the same step were still running.
    pub training_during_rollout_s: f64,
}

impl Overlap {
    /// The share of training that ran during rollouts; 0 without any training.
    pub fn share(&self) -> f64 {
        if self.training_s > 0.0 { self.training_during_rollout_s / self.training_s } else { 0.0 }
    }

    /// Adds the training of one step, given as spans of time, whose rollouts ended at `rollout_end`.
    pub(super) fn add(&mut self, spans: &[(Instant, Instant)], rollout_end: Option<Instant>) {
        for &(start, end) in spans {
            self.training_s += (end - start).as_secs_f64();
            let during =
                rollout_end.map_or(0.0, |over| end.min(over).saturating_duration_since(start).as_secs_f64());
            self.training_during_rollout_s += during;
        }
    }
}

/// Notes when the last reward was written.
#[derive(Debug, Default)]
pub(super) struct RolloutClock(Mutex<Option<Instant>>);

impl RolloutClock {
    /// When the rollouts so far ended; forgets it.
    pub(super) fn take(&self) -> Option<Instant> {
        self.0.lock().take()
    }
}

impl Observer for RolloutClock {
    fn rewarded(&self, _agent: &str, _rows: usize, _reward_sum: f64) {
        *self.0.lock() = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_training_before_the_last_reward_counts_as_overlap() {
        let zero = Instant::now();
        let at = |s: u64| zero + Duration::from_secs(s);
        let mut overlap = Overlap::default();
        overlap.add(&[(at(0), at(2)), (at(3), at(5)), (at(6), at(7))], Some(at(4)));
        assert_eq!(overlap, Overlap { training_s: 5.0, training_during_rollout_s: 3.0 });
        overlap.add(&[(at(0), at(5))], None);
        assert_eq!(overlap.share(), 0.3);
    }
}
