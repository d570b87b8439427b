//! Run-time choice of vector instructions, and the two functions that every kernel leans on.
//!
//! Kernels are plain loops over lanes of [`LANES`] values. [`vectorised!`] compiles the loop once for each instruction
//! set and takes the best one that the processor has. No kernel fuses or reorders: the bits are the same on all of them.

/// Values per lane group: one AVX-512 register of f32, and the alignment of buffers.
pub(crate) const LANES: usize = 16;

/// Defines a function whose body is compiled for each instruction set. References in its signature live for `'a`.
///
/// The arguments travel in a struct with an always-inlined call: a closure would be compiled apart from the function that
/// has the instruction set, and run without it. For the same reason bodies call always-inlined functions only.
macro_rules! vectorised {
    ($(#[$meta:meta])* $visibility:vis fn $name:ident<$life:lifetime>($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block) => {
        $(#[$meta])*
        $visibility fn $name<$life>($($argument: $type),*) $(-> $result)? {
            struct Call<$life> {
                $($argument: $type),*
            }
            impl<$life> pulp::NullaryFnOnce for Call<$life> {
                type Output = vectorised!(@output $($result)?);
                #[inline(always)]
                fn call(self) -> Self::Output {
                    #[allow(unused_mut, reason = "only some bodies write through their arguments")]
                    let Self { $(mut $argument),* } = self;
                    $body
                }
            }
            pulp::Arch::new().dispatch(Call { $($argument),* })
        }
    };
    (@output) => { () };
    (@output $result:ty) => { $result };
}
pub(crate) use vectorised;

/// `e^x` to 2 units in the last place, for x in [-87.3, 88.3]; beyond, the value at the nearer end.
///
/// Splits x into n ln 2 + r with |r| <= ln 2 / 2, takes the degree-6 polynomial of Cephes' `expf` (S. Moshier,
/// *Methods and Programs for Mathematical Functions*) for r and puts n into the exponent.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
    let x = x.clamp(-87.3, 88.3);
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * 0.693_359_4) - n * -2.121_944_4e-4;
    let mut p = 1.987_569_1e-4_f32;
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = p * r + coefficient;
    }
    let power = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32 - 127) << 23;
    (p * (r * r) + r + 1.0) * f32::from_bits(power as u32)
}

/// Sums lanes pairwise: the one order in which a lane group becomes a number.
#[inline(always)]
pub(crate) fn sum_lanes(mut lanes: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// The largest of the lanes.
#[inline(always)]
pub(crate) fn max_lanes(lanes: [f32; LANES]) -> f32 {
    lanes.into_iter().fold(f32::NEG_INFINITY, f32::max)
}

/// `sum of term(a[i], b[i])`, value i in lane i modulo [`LANES`].
#[inline(always)]
pub(crate) fn sum_of(a: &[f32], b: &[f32], term: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [0.0; LANES];
    let (a_groups, a_rest) = a.as_chunks::<LANES>();
    let (b_groups, b_rest) = b.as_chunks::<LANES>();
    for (a, b) in a_groups.iter().zip(b_groups) {
        for lane in 0..LANES {
            lanes[lane] += term(a[lane], b[lane]);
        }
    }
    for (lane, (&a, &b)) in a_rest.iter().zip(b_rest).enumerate() {
        lanes[lane] += term(a, b);
    }
    sum_lanes(lanes)
}

/// The largest value, or minus infinity of none.
#[inline(always)]
pub(crate) fn max_of(values: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (groups, rest) = values.as_chunks::<LANES>();
    for group in groups {
        for lane in 0..LANES {
            lanes[lane] = if group[lane] > lanes[lane] { group[lane] } else { lanes[lane] };
        }
    }
    for (lane, &value) in rest.iter().enumerate() {
        lanes[lane] = if value > lanes[lane] { value } else { lanes[lane] };
    }
    max_lanes(lanes)
}

/// Replaces each value by `e^(value - shift)` and returns the sum.
#[inline(always)]
pub(crate) fn exp_in_place(values: &mut [f32], shift: f32) -> f32 {
    let mut lanes = [0.0; LANES];
    let (groups, rest) = values.as_chunks_mut::<LANES>();
    for group in groups {
        for lane in 0..LANES {
            group[lane] = exp(group[lane] - shift);
            lanes[lane] += group[lane];
        }
    }
    for (lane, value) in rest.iter_mut().enumerate() {
        *value = exp(*value - shift);
        lanes[lane] += *value;
    }
    sum_lanes(lanes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_within_two_units_in_the_last_place() {
        let mut worst = 0.0_f64;
        for index in 0..2_000_000 {
            let x = -87.3 + index as f32 * (88.3 + 87.3) / 2e6;
            let exact = f64::from(x).exp();
            let unit = f64::from(f32::EPSILON) * 2.0_f64.powf(exact.log2().floor());
            worst = worst.max((f64::from(exp(x)) - exact).abs() / unit);
        }
        assert!(worst < 2.0, "{worst} units");
    }

    #[test]
    fn exp_has_no_odd_values_at_the_ends() {
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(f32::NEG_INFINITY) < 1.3e-38 && exp(f32::NEG_INFINITY) >= 0.0);
        assert!(exp(f32::INFINITY).is_finite());
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn sums_and_maxima_of_any_length_are_right() {
        for length in 0..70_usize {
            let values: Vec<f32> = (0..length).map(|index| ((index * 37) % 41) as f32 - 20.0).collect();
            assert_eq!(sum_of(&values, &values, |a, _| a), values.iter().sum::<f32>(), "{length}");
            assert_eq!(max_of(&values), values.iter().copied().fold(f32::NEG_INFINITY, f32::max), "{length}");
        }
    }
}
