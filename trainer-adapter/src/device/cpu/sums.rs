//! 64-bit fixed-point sums: addition of integers, so that no order of the terms changes a bit.

use super::simd::{LANES, vectorised};

/// Marks a value that cannot be represented; whatever is added, it stays. No sum of representable terms reaches it.
const LOST: i64 = i64::MIN;

/// Sums of values in units of `2^-fraction_bits`.
#[derive(Debug)]
pub struct CpuSums {
    pub(super) values: Vec<i64>,
    /// `2^fraction_bits`.
    unit: f64,
    /// Terms of this size and above are lost: `terms_max` smaller ones cannot overflow.
    limit: f64,
}

impl CpuSums {
    pub(super) fn zeros(length: usize, fraction_bits: u32, terms_max: usize) -> Self {
        let limit = (1_u64 << 62) as f64 / terms_max.max(1) as f64;
        Self { values: vec![0; length], unit: (1_u64 << fraction_bits) as f64, limit }
    }

    pub(super) fn add(&mut self, factor: f64, source: &[f32]) {
        add(factor * self.unit, self.limit, source, &mut self.values);
    }

    /// `target += factor . sums`, in 64 bits.
    pub(super) fn weigh(&self, factor: f64, target: &mut [f64]) {
        weigh(factor / self.unit, &self.values, target);
    }
}

vectorised! {
    fn add<'a>(factor: f64, limit: f64, source: &'a [f32], sums: &'a mut [i64]) {
        // 1.5 . 2^52: adding it to a number below 2^51 rounds that to an integer, ties to even, and leaves it in the low bits.
        const ROUND: f64 = 6_755_399_441_055_744.0;
        let small = limit.min((1_u64 << 51) as f64);
        let (groups, rest) = sums.as_chunks_mut::<LANES>();
        let (sources, rest_source) = source.as_chunks::<LANES>();
        for (sums, source) in groups.iter_mut().zip(sources) {
            let terms = source.map(|value| factor * f64::from(value));
            let mut fits = true;
            for lane in 0..LANES {
                fits &= (terms[lane].abs() < small) & (sums[lane] != LOST);
            }
            if fits {
                for lane in 0..LANES {
                    sums[lane] += (terms[lane] + ROUND).to_bits() as i64 - ROUND.to_bits() as i64;
                }
            } else {
                add_each(factor, limit, source, sums);
            }
        }
        add_each(factor, limit, rest_source, rest);
    }
}

/// Whatever the terms are.
#[inline(always)]
fn add_each(factor: f64, limit: f64, source: &[f32], sums: &mut [i64]) {
    for (sum, &value) in sums.iter_mut().zip(source) {
        let term = (factor * f64::from(value)).round_ties_even();
        // The comparison is false for what is not a number.
        let fits = term.abs() < limit && *sum != LOST;
        *sum = if fits { *sum + term as i64 } else { LOST };
    }
}

vectorised! {
    fn weigh<'a>(factor: f64, sums: &'a [i64], target: &'a mut [f64]) {
        for (value, &sum) in target.iter_mut().zip(sums) {
            *value += if sum == LOST { f64::NAN } else { factor * sum as f64 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_order_changes_a_bit() {
        let terms = [0.1_f32, -3.7e4, 1e-9, 0.3, 3.7e4, -0.1, 5e-13];
        let sum_of = |order: &[usize]| {
            let mut sums = CpuSums::zeros(1, 40, terms.len());
            order.iter().for_each(|&index| sums.add(1.5, &[terms[index]]));
            sums.values[0]
        };
        let expected = sum_of(&[0, 1, 2, 3, 4, 5, 6]);
        for order in [[6, 5, 4, 3, 2, 1, 0], [1, 0, 3, 2, 5, 6, 4], [4, 1, 6, 2, 0, 5, 3]] {
            assert_eq!(sum_of(&order), expected);
        }
        let mut value = [0.0];
        let mut sums = CpuSums::zeros(1, 40, terms.len());
        terms.iter().for_each(|&term| sums.add(1.5, &[term]));
        sums.weigh(2.0, &mut value);
        assert!((value[0] - 0.9).abs() < 1e-7, "{value:?}");
    }

    /// Groups of lanes take a shorter way than single values; both round alike, at every size and at ties.
    #[test]
    fn groups_and_single_values_round_alike() {
        let mut terms: Vec<f32> = (-62..63).map(|power| 1.25 * 2.0_f32.powi(power)).collect();
        terms.extend([0.5, 1.5, 2.5, -0.5, -1.5, 8_388_607.5, -0.0]);
        for factor in [1.0, -1.0, 0.1] {
            for &term in &terms {
                let mut together = CpuSums::zeros(LANES, 16, 4);
                let mut alone = CpuSums::zeros(1, 16, 4);
                for _ in 0..3 {
                    together.add(factor / 65536.0, &[term; LANES]);
                    alone.add(factor / 65536.0, &[term]);
                }
                assert_eq!(together.values, [alone.values[0]; LANES], "{factor} . {term}");
            }
        }
    }

    /// What does not fit is never a number again, whenever it came.
    #[test]
    fn what_cannot_be_represented_is_not_a_number() {
        for bad in [f32::NAN, f32::INFINITY, 1e30, -1e30] {
            for order in [[bad, 1.0], [1.0, bad]] {
                let mut sums = CpuSums::zeros(1, 40, 2);
                order.iter().for_each(|&term| sums.add(1.0, &[term]));
                let mut value = [0.0];
                sums.weigh(1.0, &mut value);
                assert!(value[0].is_nan(), "{bad}");
            }
        }
    }
}
