//! How long batches took, in a fixed number of bytes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Steps of a power of two: a bucket is a sixteenth wide.
const STEPS: usize = 16;
const BUCKETS: usize = 64 * STEPS;

/// Counts of times. Any number of threads may add.
#[derive(Debug)]
pub(super) struct Histogram {
    buckets: Vec<AtomicU64>,
    total_ns: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        let buckets = (0..BUCKETS).map(|_| AtomicU64::new(0)).collect();
        Histogram { buckets, total_ns: AtomicU64::new(0) }
    }
}

impl Histogram {
    pub(super) fn add(&self, time: Duration) {
        let ns = (time.as_nanos() as u64).max(1);
        self.buckets[bucket(ns)].fetch_add(1, Ordering::Relaxed);
        self.total_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// The mean, in microseconds.
    pub(super) fn mean_us(&self) -> f64 {
        let count: u64 = self.buckets.iter().map(|count| count.load(Ordering::Relaxed)).sum();
        self.total_ns.load(Ordering::Relaxed) as f64 / 1e3 / count.max(1) as f64
    }

    /// The time that a share of all do not exceed, in microseconds, to a sixteenth of it.
    pub(super) fn percentile_us(&self, share: f64) -> f64 {
        let counts: Vec<u64> = self.buckets.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let wanted = (counts.iter().sum::<u64>() as f64 * share) as u64;
        let mut seen = 0;
        for (at, count) in counts.iter().enumerate() {
            seen += count;
            if seen > wanted {
                return upper_ns(at) / 1e3;
            }
        }
        0.0
    }
}

fn bucket(ns: u64) -> usize {
    let power = ns.ilog2() as usize;
    let within = ((u128::from(ns) << 4) >> power) as usize - STEPS;
    power * STEPS + within
}

fn upper_ns(bucket: usize) -> f64 {
    let (power, within) = (bucket / STEPS, bucket % STEPS);
    (power as f64).exp2() * (1.0 + (within + 1) as f64 / STEPS as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_known_to_a_sixteenth() {
        let times = Histogram::default();
        (1..=1000).for_each(|us| times.add(Duration::from_micros(us)));
        let (median, most) = (times.percentile_us(0.5), times.percentile_us(0.999));
        assert!((500.0..=535.0).contains(&median), "{median}");
        assert!((1000.0..=1065.0).contains(&most), "{most}");
        assert!((times.mean_us() - 500.5).abs() < 0.01);
        assert_eq!(Histogram::default().percentile_us(0.9), 0.0);
    }
}
