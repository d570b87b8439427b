//! Where every number of a workload comes from.

const RESPONSE_TOKENS_MEAN: f64 = 1_024.0;
/// The spread of the lognormal: half of the responses are shorter than 744 tokens, one in a hundred longer than 4,780.
const RESPONSE_SIGMA: f64 = 0.8;
const VOCABULARY: u64 = 151_936;

/// SplitMix64 (Steele, Lea and Flood, 2014): the same numbers for the same seed, on every machine.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// The most tokens of a response.
    pub const RESPONSE_TOKENS_MAX: usize = 8_192;

    /// Numbers that follow from a seed.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// Any 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Evenly above 0, up to 1.
    pub fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// A normal deviate (Box and Muller, 1958).
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.unit().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// How long a response is: lognormal with a mean of 1,024 tokens, at most [`Random::RESPONSE_TOKENS_MAX`].
    pub fn response_tokens(&mut self) -> usize {
        let mu = RESPONSE_TOKENS_MEAN.ln() - RESPONSE_SIGMA * RESPONSE_SIGMA / 2.0;
        let length = (mu + RESPONSE_SIGMA * self.normal()).exp() as usize;
        length.clamp(1, Self::RESPONSE_TOKENS_MAX)
    }

    /// So many tokens of a vocabulary of 151,936.
    pub fn tokens(&mut self, count: usize) -> impl Iterator<Item = i32> {
        (0..count).map(|_| (self.bits() % VOCABULARY) as i32)
    }
}
