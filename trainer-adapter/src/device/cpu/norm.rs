//! RMSNorm (Zhang and Sennrich 2019): `y = x / sqrt(mean(x^2) + epsilon) * w`.

use super::buffer::{Rows, RowsMut};
use super::simd::{sum_of, vectorised};

vectorised! {
    pub(super) fn forward<'a>(input: Rows<'a>, weight: &'a [f32], epsilon: f32, output: RowsMut<'a>, scales: &'a mut [f32]) {
        let width = input.columns as f32;
        for (row, kept) in scales[..input.rows].iter_mut().enumerate() {
            let x = input.row(row);
            let scale = 1.0 / (sum_of(x, x, |a, b| a * b) / width + epsilon).sqrt();
            *kept = scale;
            for ((y, &x), &w) in output.row(row).iter_mut().zip(x).zip(weight) {
                *y = x * scale * w;
            }
        }
    }
}

vectorised! {
    // With s the inverse root and g = dy w: dx = s (g - x s^2 mean(g x)); dw = sum over rows of dy x s.
    pub(super) fn backward<'a>(
        input: Rows<'a>,
        weight: &'a [f32],
        scales: &'a [f32],
        output_gradient: Rows<'a>,
        input_gradient: RowsMut<'a>,
        weight_gradient: &'a mut [f32],
    ) {
        let width = input.columns as f32;
        weight_gradient.fill(0.0);
        for (row, &scale) in scales[..input.rows].iter().enumerate() {
            let (x, dy) = (input.row(row), output_gradient.row(row));
            let dx = &mut input_gradient.row(row)[..x.len()];
            for ((sum, &dy), &x) in weight_gradient.iter_mut().zip(dy).zip(x) {
                *sum += dy * x * scale;
            }
            let projection = weighted_dot(dy, weight, x) / width * scale * scale;
            for (((dx, &dy), &x), &w) in dx.iter_mut().zip(dy).zip(x).zip(weight) {
                *dx += scale * (dy * w - x * projection);
            }
        }
    }
}

/// `sum of a[i] b[i] c[i]`, value i in lane i modulo the lanes.
#[inline(always)]
fn weighted_dot(a: &[f32], b: &[f32], c: &[f32]) -> f32 {
    use super::simd::{LANES, sum_lanes};
    let mut lanes = [0.0; LANES];
    for ((a, b), c) in a.chunks(LANES).zip(b.chunks(LANES)).zip(c.chunks(LANES)) {
        for (lane, ((&a, &b), &c)) in a.iter().zip(b).zip(c).enumerate() {
            lanes[lane] += a * b * c;
        }
    }
    sum_lanes(lanes)
}
