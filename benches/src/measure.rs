//! How many measurements become one number.

use std::time::{Duration, Instant};

use crate::Outcome;

/// One repetition: what the engine did and what its limit did right after it.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// What the engine did.
    pub value: f64,
    /// What its limit did.
    pub limit: f64,
}

/// The repetition whose ratio is the median: value and limit stay a pair, taken at the same moment of a busy machine. There has to be
/// one.
pub fn typical(mut pairs: Vec<Pair>) -> Pair {
    pairs.sort_by(|a, b| (a.value / a.limit).total_cmp(&(b.value / b.limit)));
    pairs[pairs.len() / 2]
}

/// Times in microseconds.
#[derive(Debug, Default)]
pub(crate) struct Times(Vec<f64>);

impl Times {
    pub(crate) fn add(&mut self, time: Duration) {
        self.0.push(time.as_secs_f64() * 1e6);
    }

    pub(crate) fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }

    /// Takes in the times of another thread.
    pub(crate) fn join(&mut self, other: Times) {
        self.0.extend(other.0);
    }

    /// The time that `percent` of all do not exceed.
    pub(crate) fn percentile(&mut self, percent: usize) -> f64 {
        self.percentile_of(percent as f64 / 100.0)
    }

    /// The same, by the share of all.
    pub(crate) fn percentile_of(&mut self, share: f64) -> f64 {
        self.0.sort_by(f64::total_cmp);
        self.0[((self.0.len() as f64 * share) as usize).min(self.0.len() - 1)]
    }
}

/// Runs `work` on so many threads at once. Gives the time until the last is done, and the sum of what they give.
pub(crate) fn on_threads(
    threads: usize,
    work: impl Fn(usize) -> Outcome<u64> + Sync,
) -> Outcome<(Duration, u64)> {
    let start = Instant::now();
    let outcomes: Vec<Outcome<u64>> = std::thread::scope(|scope| {
        let work = &work;
        let spawned: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        spawned
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".into())))
            .collect()
    });
    let time = start.elapsed();
    let mut sum = 0_u64;
    for outcome in outcomes {
        sum = sum.wrapping_add(outcome?);
    }
    Ok((time, sum))
}

/// Gives what `work` gives, and how long it took.
pub fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let outcome = work();
    (start.elapsed(), outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_typical_pair_is_the_one_in_the_middle() {
        let pairs = [(1.0, 1.0), (9.0, 1.0), (2.0, 1.0)].map(|(value, limit)| Pair { value, limit });
        assert_eq!(typical(pairs.to_vec()).value, 2.0);
        let mut times = Times::default();
        (1..=100).for_each(|us| times.add(Duration::from_micros(us)));
        assert_eq!((times.percentile(50).round(), times.percentile(99).round()), (51.0, 100.0));
    }
}
