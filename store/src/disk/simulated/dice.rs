//! Chance, from a seed.

use crate::randomness::{Randomness, SeededRandomness};

/// Throws that are a function of a seed.
#[derive(Debug)]
pub(super) struct Dice(SeededRandomness);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Dice(SeededRandomness::new(seed))
    }

    pub(super) fn word(&self) -> u64 {
        self.0.next_u64()
    }

    /// A number from 0 to `most`.
    pub(super) fn up_to(&self, most: usize) -> usize {
        (self.word() % (most as u64 + 1)) as usize
    }

    /// True once in `times`.
    pub(super) fn once_in(&self, times: u64) -> bool {
        self.word().is_multiple_of(times)
    }
}
