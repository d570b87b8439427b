//! The randomness seam: the few random bits that a store needs (its identity).
//!
//! Everything random in the engine comes through here, so that a simulated store is a function of its seed.

use std::fmt;
use std::hash::{BuildHasher, RandomState};

use crate::sync::atomic::{AtomicU64, Ordering};

/// A source of random bits. Not for secrets.
pub trait Randomness: Send + Sync + fmt::Debug {
    /// Sixty-four random bits.
    fn next_u64(&self) -> u64;
}

/// Random bits seeded by the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRandomness;

impl Randomness for SystemRandomness {
    fn next_u64(&self) -> u64 {
        RandomState::new().hash_one(0_u8) // the standard library keys each state from the system's generator
    }
}

/// The splitmix64 sequence of a seed (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
#[derive(Debug)]
pub struct SeededRandomness(AtomicU64);

impl SeededRandomness {
    /// The sequence that belongs to `seed`.
    pub fn new(seed: u64) -> Self {
        SeededRandomness(AtomicU64::new(seed))
    }
}

impl Randomness for SeededRandomness {
    fn next_u64(&self) -> u64 {
        const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;
        let mut z = self.0.fetch_add(GAMMA, Ordering::Relaxed).wrapping_add(GAMMA);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_published_sequence() {
        let seeded = SeededRandomness::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| seeded.next_u64()).collect();
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }
}
