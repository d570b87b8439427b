//! RMSNorm of each head of queries and keys (Qwen3), by row; values pass through.

use super::buffer::{Rows, RowsMut};
use super::simd::{sum_of, vectorised};
use crate::device::AttentionHeads;

/// Which of the two weights a head has: queries come first.
#[inline(always)]
fn kind(heads: AttentionHeads, head: usize) -> usize {
    usize::from(head >= heads.queries)
}

vectorised! {
    pub(super) fn forward<'a>(
        heads: AttentionHeads,
        input: Rows<'a>,
        weights: Rows<'a>,
        epsilon: f32,
        output: RowsMut<'a>,
        scales: &'a mut [f32],
    ) {
        let normed = heads.queries + heads.keys;
        for row in 0..input.rows {
            let (source, target) = (input.row(row), output.row(row));
            target.copy_from_slice(source);
            for head in 0..normed {
                let range = head * heads.dimension..(head + 1) * heads.dimension;
                let x = &source[range.clone()];
                let mean = sum_of(x, x, |a, b| a * b) / heads.dimension as f32;
                let scale = 1.0 / (mean + epsilon).sqrt();
                scales[row * normed + head] = scale;
                let weight = weights.row(kind(heads, head));
                for ((y, &x), &w) in target[range].iter_mut().zip(x).zip(weight) {
                    *y = x * scale * w;
                }
            }
        }
    }
}

vectorised! {
    // As in the norm of a row: with s the inverse root and g = dy w, dx = s (g - x s^2 mean(g x)); dw = sum of dy x s.
    pub(super) fn backward<'a>(
        heads: AttentionHeads,
        input: Rows<'a>,
        weights: Rows<'a>,
        scales: &'a [f32],
        gradient: RowsMut<'a>,
        weights_gradient: RowsMut<'a>,
    ) {
        let normed = heads.queries + heads.keys;
        (0..2).for_each(|kind| weights_gradient.row(kind).fill(0.0));
        for row in 0..input.rows {
            let (source, target) = (input.row(row), gradient.row(row));
            for head in 0..normed {
                let range = head * heads.dimension..(head + 1) * heads.dimension;
                let (x, dy, scale) = (&source[range.clone()], &mut target[range], scales[row * normed + head]);
                let of_weight = weights_gradient.row(kind(heads, head));
                for (((sum, dy), &x), &w) in of_weight.iter_mut().zip(dy.iter_mut()).zip(x).zip(weights.row(kind(heads, head))) {
                    *sum += *dy * x * scale;
                    *dy *= w;
                }
                let projection = sum_of(dy, x, |g, x| g * x) / heads.dimension as f32 * scale * scale;
                for (dy, &x) in dy.iter_mut().zip(x) {
                    *dy = scale * (*dy - x * projection);
                }
            }
        }
    }
}
