//! Log-softmax over the vocabulary: log-probabilities, entropies, and the gradient of the logits.

use super::buffer::{Rows, RowsMut};
use super::simd::{LANES, exp, max_of, sum_lanes, vectorised};

/// Columns of a row of statistics.
pub(super) const LOG_PROB: usize = 0;
pub(super) const ENTROPY: usize = 1;
pub(super) const NORMALISER: usize = 2;

vectorised! {
    // With z' = z - max and S = sum e^z': log p_t = z'_t - ln S and H = ln S - (sum e^z' z') / S.
    pub(super) fn statistics<'a>(logits: Rows<'a>, targets: &'a [u32], output: RowsMut<'a>) {
        for (row, &target) in targets.iter().enumerate() {
            let z = logits.row(row);
            let max = max_of(z);
            let (sum, weighted) = exponential_sums(z, max);
            let log_sum = sum.ln();
            let statistics = output.row(row);
            statistics[LOG_PROB] = z[target as usize] - max - log_sum;
            statistics[ENTROPY] = log_sum - weighted / sum;
            statistics[NORMALISER] = max + log_sum;
        }
    }
}

/// `sum e^(z - max)` and `sum e^(z - max) (z - max)`.
#[inline(always)]
fn exponential_sums(z: &[f32], max: f32) -> (f32, f32) {
    let (mut sums, mut weighted) = ([0.0; LANES], [0.0; LANES]);
    let (groups, rest) = z.as_chunks::<LANES>();
    for group in groups {
        for lane in 0..LANES {
            let e = exp(group[lane] - max);
            sums[lane] += e;
            weighted[lane] += e * (group[lane] - max);
        }
    }
    for (lane, &z) in rest.iter().enumerate() {
        let e = exp(z - max);
        sums[lane] += e;
        weighted[lane] += e * (z - max);
    }
    (sum_lanes(sums), sum_lanes(weighted))
}

vectorised! {
    // d(c log p_t)/dz_j = c ([j = t] - p_j); d(e H)/dz_j = -e p_j (log p_j + H).
    pub(super) fn gradient<'a>(
        logits: RowsMut<'a>,
        targets: &'a [u32],
        statistics: Rows<'a>,
        log_prob_weights: &'a [f32],
        entropy_weights: &'a [f32],
    ) {
        for (row, &target) in targets.iter().enumerate() {
            let (normaliser, entropy) = (statistics.row(row)[NORMALISER], statistics.row(row)[ENTROPY]);
            let (c, e) = (log_prob_weights[row], entropy_weights[row]);
            let z = logits.row(row);
            for value in z.iter_mut() {
                let log_p = *value - normaliser;
                *value = -exp(log_p) * (c + e * (log_p + entropy));
            }
            z[target as usize] += c;
        }
    }
}
