//! RMSNorm of rows, and of heads.
#![allow(
    unsafe_code,
    reason = "launches, each with the arguments of its kernel over views that were checked"
)]

use super::kernel::{Argument, Kernel, WARP};
use super::view::{View, count};
use super::{CudaBuffer, CudaDevice};
use crate::device::AttentionHeads;

fn scales_of(scales: &CudaBuffer, length: usize) -> Argument {
    assert!(length <= scales.length, "a scale for every norm: {length} of {}", scales.length);
    Argument::Address(scales.memory.address())
}

fn heads_of(heads: AttentionHeads) -> [Argument; 3] {
    [count(heads.queries), count(heads.keys), count(heads.dimension)]
}

impl CudaDevice {
    pub(super) fn rms_norm_on(
        &self,
        input: View,
        weight: View,
        epsilon: f32,
        output: View,
        scales: &CudaBuffer,
    ) {
        assert!(input.columns <= weight.columns, "a weight for every column");
        assert_eq!((input.rows, input.columns), (output.rows, output.columns), "shapes of a norm");
        let inputs = [input.place(), input.stride(), weight.place(), Argument::Single(epsilon)];
        let outputs = [output.place(), output.stride(), scales_of(scales, input.rows), input.columns()];
        let arguments = [inputs, outputs].concat();
        // SAFETY: as said above.
        unsafe { self.queue.launch(Kernel::RmsNorm, [input.rows, 1, 1], &arguments) };
    }

    pub(super) fn rms_norm_backward_on(
        &self,
        input: View,
        weight: View,
        scales: &CudaBuffer,
        outer: View,
        [gradient, weight_gradient]: [View; 2],
    ) {
        let shape = (input.rows, input.columns);
        assert_eq!(
            (shape, shape),
            ((outer.rows, outer.columns), (gradient.rows, gradient.columns)),
            "shapes of a norm"
        );
        assert!(input.columns <= weight.columns.min(weight_gradient.columns), "a weight for every column");
        let scales = scales_of(scales, input.rows);
        let inputs = [input.place(), input.stride(), weight.place(), scales, outer.place(), outer.stride()];
        let arguments = [&inputs[..], &[gradient.place(), gradient.stride(), input.columns()]].concat();
        // SAFETY: as said above.
        unsafe { self.queue.launch(Kernel::RmsNormBackward, [input.rows, 1, 1], &arguments) };
        let inputs = [input.place(), input.stride(), scales, outer.place(), outer.stride()];
        let arguments =
            [&inputs[..], &[count(input.rows), input.columns(), weight_gradient.place()]].concat();
        // SAFETY: as said above.
        unsafe { self.queue.launch(Kernel::RmsNormWeight, [input.columns.div_ceil(WARP), 1, 1], &arguments) };
    }

    pub(super) fn head_norm_on(
        &self,
        heads: AttentionHeads,
        input: View,
        weights: View,
        epsilon: f32,
        output: View,
        scales: &CudaBuffer,
    ) {
        check(heads, input, weights);
        assert_eq!((input.rows, input.columns), (output.rows, output.columns), "shapes of a norm");
        let scales = scales_of(scales, input.rows * (heads.queries + heads.keys));
        let inputs =
            [input.place(), input.stride(), weights.place(), weights.stride(), Argument::Single(epsilon)];
        let outputs = [output.place(), output.stride(), scales];
        let arguments = [&inputs[..], &outputs, &heads_of(heads)].concat();
        let grid = [input.rows, heads.queries + 2 * heads.keys, 1];
        // SAFETY: as said above.
        unsafe { self.queue.launch(Kernel::HeadNorm, grid, &arguments) };
    }

    /// The weights' gradient first: that of the input takes the place of what both are made from.
    pub(super) fn head_norm_backward_on(
        &self,
        heads: AttentionHeads,
        input: View,
        weights: View,
        scales: &CudaBuffer,
        [gradient, weights_gradient]: [View; 2],
    ) {
        check(heads, input, weights);
        assert_eq!((input.rows, input.columns), (gradient.rows, gradient.columns), "shapes of a norm");
        let normed = heads.queries + heads.keys;
        let scales = scales_of(scales, input.rows * normed);
        let partial = self.queue.allocate(size_of::<f32>() * normed * heads.dimension);
        let inputs = [input.place(), input.stride(), scales, gradient.place(), gradient.stride()];
        let sizes =
            [count(input.rows), count(normed), count(heads.dimension), Argument::Address(partial.address())];
        let grid = [heads.dimension.div_ceil(WARP), normed, 1];
        // SAFETY: as said above; a sum for every head and column.
        unsafe { self.queue.launch(Kernel::HeadNormWeight, grid, &[&inputs[..], &sizes].concat()) };
        for (kind, first, rows) in [(0, 0, heads.queries), (1, heads.queries, heads.keys)] {
            let address = |base: u64, values: usize| base + (size_of::<f32>() * values) as u64;
            let from = View {
                address: address(partial.address(), first * heads.dimension),
                stride: heads.dimension,
                rows,
                columns: heads.dimension,
            };
            let into = address(weights_gradient.address, kind * weights_gradient.stride);
            self.sum_rows_on(from, View { address: into, rows: 1, ..weights_gradient });
        }
        let inputs = [input.place(), input.stride(), weights.place(), weights.stride(), scales];
        let arguments = [&inputs[..], &[gradient.place(), gradient.stride()], &heads_of(heads)].concat();
        // SAFETY: as said above.
        unsafe { self.queue.launch(Kernel::HeadNormBackward, [input.rows, normed, 1], &arguments) };
    }
}

fn check(heads: AttentionHeads, input: View, weights: View) {
    assert!(heads.columns() <= input.columns, "queries, keys and values in each row");
    assert!(weights.rows == 2 && heads.dimension <= weights.columns, "a weight of queries and one of keys");
}
