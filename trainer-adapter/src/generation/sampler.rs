//! From logits to a token.

use crate::device::cpu::simd::{exp_in_place, max_of, vectorised};

/// A sampled token and its log-probability.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Draw {
    pub(super) token: u32,
    pub(super) log_prob: f32,
}

/// Draws from `softmax(logits / temperature)`: the first token at which the running sum of probabilities exceeds
/// `uniform`, a number in [0, 1). Temperature 0 takes the largest logit, the first of equals.
///
/// Sums of probabilities run from the first token to the last in 64 bits.
pub(super) fn sample(logits: &[f32], temperature: f32, uniform: f64, scratch: &mut Vec<f32>) -> Draw {
    let greedy = temperature == 0.0;
    let inverse = if greedy { 1.0 } else { 1.0 / temperature };
    scratch.clear();
    scratch.extend(logits.iter().map(|logit| logit * inverse));
    let max = exponentials(scratch);
    let total: f64 = scratch.iter().map(|&e| f64::from(e)).sum();
    let token = if greedy { first_largest(scratch) } else { inverse_distribution(scratch, uniform * total) };
    let log_prob = f64::from(logits[token] * inverse - max) - total.ln();
    Draw { token: token as u32, log_prob: log_prob as f32 }
}

vectorised! {
    /// Replaces each z by e^(z - max) and returns max.
    fn exponentials<'a>(values: &'a mut [f32]) -> f32 {
        let max = max_of(values);
        exp_in_place(values, max);
        max
    }
}

fn first_largest(values: &[f32]) -> usize {
    let mut best = 0;
    for (index, &value) in values.iter().enumerate() {
        if value > values[best] {
            best = index;
        }
    }
    best
}

fn inverse_distribution(weights: &[f32], target: f64) -> usize {
    let mut sum = 0.0;
    for (index, &weight) in weights.iter().enumerate() {
        sum += f64::from(weight);
        if sum > target {
            return index;
        }
    }
    // Only rounding of `uniform * total` leads here: the draw lies at the upper end.
    first_largest_from_the_end(weights)
}

fn first_largest_from_the_end(weights: &[f32]) -> usize {
    weights.iter().rposition(|&weight| weight > 0.0).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f32; 5] = [0.5, -1.0, 2.0, 2.0, -30.0];

    fn probabilities(temperature: f64) -> [f64; 5] {
        let weights = LOGITS.map(|logit| (f64::from(logit) / temperature).exp());
        weights.map(|weight| weight / weights.iter().sum::<f64>())
    }

    #[test]
    fn each_token_gets_its_share_of_the_unit_interval() {
        for temperature in [0.5, 1.0, 2.0] {
            let expected = probabilities(f64::from(temperature));
            let mut counts = [0_u32; 5];
            for index in 0..100_000 {
                let draw = sample(&LOGITS, temperature, (f64::from(index) + 0.5) / 1e5, &mut Vec::new());
                counts[draw.token as usize] += 1;
                let log_prob = expected[draw.token as usize].ln();
                assert!(
                    (f64::from(draw.log_prob) - log_prob).abs() < 1e-6,
                    "{temperature} {draw:?} {log_prob}"
                );
            }
            for (count, expected) in counts.iter().zip(expected) {
                assert!((f64::from(*count) / 1e5 - expected).abs() < 2e-5, "{temperature} {counts:?}");
            }
        }
    }

    #[test]
    fn temperature_zero_takes_the_first_of_the_likeliest() {
        let draw = sample(&LOGITS, 0.0, 0.999, &mut Vec::new());
        assert_eq!(draw.token, 2);
        assert!((f64::from(draw.log_prob) - probabilities(1.0)[2].ln()).abs() < 1e-6);
    }

    #[test]
    fn a_draw_at_the_upper_end_takes_a_token_that_has_probability() {
        let logits = [1.0, 0.0, -500.0];
        assert_eq!(sample(&logits, 1.0, 1.0 - f64::EPSILON / 2.0, &mut Vec::new()).token, 1);
        assert_eq!(sample(&logits, 1.0, 0.0, &mut Vec::new()).token, 0);
    }
}
