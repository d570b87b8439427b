//! The counter generator: random words as a pure function of what they are for.
//!
//! Philox4x32-10 (Salmon, Moraes, Dror and Shaw, *Parallel random numbers: as easy as 1, 2, 3*, SC 2011): ten rounds of
//! two 32-bit multiplications over a 128-bit counter with a 64-bit key. There is no state to advance, so the token sampled
//! at a position is the same whichever thread samples it, and in whatever order.

/// Names a random draw: which sample of which run, and which attempt at it.
///
/// The fields make the generator's key and counter; two keys that differ in any field draw independent numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SampleKey {
    /// The run's seed.
    pub seed: u64,
    /// The policy version that generates.
    pub version: u64,
    /// The sample, as a number or a hash of its id.
    pub sample: u64,
    /// The attempt at this sample, from 0.
    pub attempt: u32,
}

impl SampleKey {
    /// A number in [0, 1) with 53 random bits, for the token at `position` of the response.
    pub fn uniform(&self, position: u32) -> f64 {
        // Two blocks: the first folds version and attempt into a key, the second draws.
        let [a, b, _, _] = philox([low(self.version), high(self.version), self.attempt, 0], split(self.seed));
        let words = philox([low(self.sample), high(self.sample), position, 1], [a, b]);
        let bits = (u64::from(words[0]) << 32 | u64::from(words[1])) >> 11;
        bits as f64 / (1_u64 << 53) as f64
    }
}

fn low(value: u64) -> u32 {
    value as u32
}

fn high(value: u64) -> u32 {
    (value >> 32) as u32
}

fn split(value: u64) -> [u32; 2] {
    [low(value), high(value)]
}

/// Philox4x32-10 of one counter block.
pub fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    const MULTIPLIERS: [u64; 2] = [0xD251_1F53, 0xCD9E_8D57];
    const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    for round in 0..10 {
        if round > 0 {
            key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
        }
        let first = MULTIPLIERS[0] * u64::from(counter[0]);
        let second = MULTIPLIERS[1] * u64::from(counter[2]);
        counter =
            [high(second) ^ counter[1] ^ key[0], low(second), high(first) ^ counter[3] ^ key[1], low(first)];
    }
    counter
}

/// A standard normal number: draw `index` of stream `stream` under a seed (Box and Muller 1958).
pub(crate) fn normal(seed: u64, stream: u32, index: u64) -> f32 {
    let words = philox([low(index), high(index), stream, 2], split(seed));
    let unit =
        |high: u32, low: u32| ((u64::from(high) << 32 | u64::from(low)) >> 11) as f64 / (1_u64 << 53) as f64;
    let radius = (-2.0 * (1.0 - unit(words[0], words[1])).ln()).sqrt();
    (radius * (std::f64::consts::TAU * unit(words[2], words[3])).cos()) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The three known answers that the authors ship with Random123 (kat_vectors, philox4x32 10).
    #[test]
    fn philox_gives_its_authors_known_answers() {
        let ones = u32::MAX;
        let cases = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([ones; 4], [ones; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, expected) in cases {
            assert_eq!(philox(counter, key), expected);
        }
    }

    #[test]
    fn a_draw_depends_on_every_field_of_its_key() {
        let key = SampleKey { seed: 7, version: 3, sample: 11, attempt: 0 };
        let changed = [
            SampleKey { seed: 8, ..key },
            SampleKey { seed: key.seed | 1 << 40, ..key },
            SampleKey { version: 4, ..key },
            SampleKey { sample: 12, ..key },
            SampleKey { attempt: 1, ..key },
        ];
        for other in changed {
            assert_ne!(key.uniform(0), other.uniform(0), "{other:?}");
        }
        assert_ne!(key.uniform(0), key.uniform(1));
        assert_eq!(key.uniform(5), key.uniform(5));
    }

    #[test]
    fn draws_fill_the_unit_interval_evenly() {
        let key = SampleKey { seed: 1, ..SampleKey::default() };
        let mut counts = [0_usize; 10];
        for position in 0..100_000 {
            let draw = key.uniform(position);
            assert!((0.0..1.0).contains(&draw));
            counts[(draw * 10.0) as usize] += 1;
        }
        assert!(counts.iter().all(|&count| count.abs_diff(10_000) < 500), "{counts:?}");
    }
}
