//! The arithmetic of the stand-in: the processor's, over the memory as it is seen.

use std::sync::atomic::Ordering;

use super::{StandInBuffer, StandInDevice};
use crate::device::cpu::{CpuBuffer, CpuDevice, CpuPrepared, CpuSums};
use crate::device::cuda::CudaError;
use crate::device::{
    AdamWStep, AttentionHeads, CacheRow, Device, Direction, Linear, Matrix, MatrixMut, RowRule,
    SharedAttention,
};
use crate::error::Error;

type In<'a> = Matrix<'a, StandInBuffer>;
type Out<'a> = MatrixMut<'a, StandInBuffer>;

/// The same view of other memory.
fn over<'a>(matrix: In<'_>, buffer: &'a CpuBuffer) -> Matrix<'a, CpuBuffer> {
    let Matrix { offset, rows, columns, row_stride, column_stride, .. } = matrix;
    Matrix { buffer, offset, rows, columns, row_stride, column_stride }
}

impl StandInDevice {
    /// Calls `work` with the same view of the memory behind it.
    fn out(&self, matrix: Out<'_>, work: impl FnOnce(MatrixMut<'_, CpuBuffer>)) {
        let MatrixMut { buffer, offset, rows, columns, row_stride } = matrix;
        let mut memory = self.changed(buffer);
        work(MatrixMut { buffer: &mut memory, offset, rows, columns, row_stride });
    }
}

impl Device for StandInDevice {
    type Buffer = StandInBuffer;
    type Prepared = CpuPrepared;
    type Sums = CpuSums;

    const ROW_TILE: usize = CpuDevice::ROW_TILE;

    fn check(&self) -> Result<(), Error> {
        if !self.shared.is_out_of_memory.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let (call, name) = ("the stand-in", "CUDA_ERROR_OUT_OF_MEMORY".to_owned());
        Err(CudaError::Call { call, code: 2, name }.into())
    }

    fn allocate(&self, length: usize) -> StandInBuffer {
        self.memory(length).unwrap_or_else(|error| panic!("{error}"))
    }

    fn try_allocate(&self, length: usize) -> Result<StandInBuffer, Error> {
        self.memory(length)
    }

    fn length(&self, buffer: &StandInBuffer) -> usize {
        buffer.read().len()
    }

    fn upload(&self, values: &[f32], buffer: &mut StandInBuffer, offset: usize) {
        let mut memory = self.written(buffer, offset..offset + values.len());
        self.cpu.upload(values, &mut memory, offset);
    }

    fn download(&self, buffer: &StandInBuffer, offset: usize, values: &mut [f32]) {
        self.cpu.download(&self.seen(buffer), offset, values);
    }

    fn copy(&self, source: &StandInBuffer, target: &mut StandInBuffer) {
        self.cpu.copy(&self.seen(source), &mut self.changed(target));
    }

    fn clear(&self, buffer: &mut StandInBuffer, offset: usize, length: usize) {
        let mut memory = self.written(buffer, offset..offset + length);
        self.cpu.clear(&mut memory, offset, length);
    }

    fn for_each(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        self.cpu.for_each(count, work);
    }

    fn prepare(&self, parameters: &StandInBuffer, linears: &[Linear]) -> CpuPrepared {
        self.cpu.prepare(&self.seen(parameters), linears)
    }

    fn try_prepare(&self, parameters: &StandInBuffer, linears: &[Linear]) -> Result<CpuPrepared, Error> {
        self.cpu.try_prepare(&self.seen(parameters), linears)
    }

    fn linear(&self, prepared: &CpuPrepared, index: usize, input: In<'_>, output: Out<'_>, rule: RowRule) {
        let seen = self.seen(input.buffer);
        self.out(output, |output| self.cpu.linear(prepared, index, over(input, &seen), output, rule));
    }

    fn multiply(&self, alpha: f32, left: In<'_>, right: In<'_>, beta: f32, output: Out<'_>) {
        let (one, other) = (self.seen(left.buffer), self.seen(right.buffer));
        self.out(output, |output| {
            self.cpu.multiply(alpha, over(left, &one), over(right, &other), beta, output);
        });
    }

    fn add_row(&self, row: In<'_>, matrix: Out<'_>) {
        let seen = self.seen(row.buffer);
        self.out(matrix, |matrix| self.cpu.add_row(over(row, &seen), matrix));
    }

    fn sum_rows(&self, matrix: In<'_>, row: Out<'_>) {
        let seen = self.seen(matrix.buffer);
        self.out(row, |row| self.cpu.sum_rows(over(matrix, &seen), row));
    }

    fn add(&self, source: In<'_>, target: Out<'_>) {
        let seen = self.seen(source.buffer);
        self.out(target, |target| self.cpu.add(over(source, &seen), target));
    }

    fn gather(&self, source: In<'_>, rows: &[u32], output: Out<'_>) {
        let seen = self.seen(source.buffer);
        self.out(output, |output| self.cpu.gather(over(source, &seen), rows, output));
    }

    fn scatter_add(&self, source: In<'_>, rows: &[u32], target: Out<'_>) {
        let seen = self.seen(source.buffer);
        self.out(target, |target| self.cpu.scatter_add(over(source, &seen), rows, target));
    }

    fn rms_norm(
        &self,
        input: In<'_>,
        weight: In<'_>,
        epsilon: f32,
        output: Out<'_>,
        scales: &mut StandInBuffer,
    ) {
        let (seen, weights) = (self.seen(input.buffer), self.seen(weight.buffer));
        let mut kept = self.changed(scales);
        self.out(output, |output| {
            self.cpu.rms_norm(over(input, &seen), over(weight, &weights), epsilon, output, &mut kept);
        });
    }

    fn rms_norm_backward(
        &self,
        input: In<'_>,
        weight: In<'_>,
        scales: &StandInBuffer,
        output_gradient: In<'_>,
        input_gradient: Out<'_>,
        weight_gradient: Out<'_>,
    ) {
        let (seen, weights, kept) = (self.seen(input.buffer), self.seen(weight.buffer), self.seen(scales));
        let outer = self.seen(output_gradient.buffer);
        self.out(input_gradient, |input_gradient| {
            self.out(weight_gradient, |weight_gradient| {
                self.cpu.rms_norm_backward(
                    over(input, &seen),
                    over(weight, &weights),
                    &kept,
                    over(output_gradient, &outer),
                    input_gradient,
                    weight_gradient,
                );
            });
        });
    }

    fn head_norm(
        &self,
        heads: AttentionHeads,
        input: In<'_>,
        weights: In<'_>,
        epsilon: f32,
        output: Out<'_>,
        scales: &mut StandInBuffer,
    ) {
        let (seen, weight) = (self.seen(input.buffer), self.seen(weights.buffer));
        let mut kept = self.changed(scales);
        self.out(output, |output| {
            let (input, weights) = (over(input, &seen), over(weights, &weight));
            self.cpu.head_norm(heads, input, weights, epsilon, output, &mut kept);
        });
    }

    fn head_norm_backward(
        &self,
        heads: AttentionHeads,
        input: In<'_>,
        weights: In<'_>,
        scales: &StandInBuffer,
        gradient: Out<'_>,
        weights_gradient: Out<'_>,
    ) {
        let (seen, weight, kept) = (self.seen(input.buffer), self.seen(weights.buffer), self.seen(scales));
        self.out(gradient, |gradient| {
            self.out(weights_gradient, |weights_gradient| {
                let (input, weights) = (over(input, &seen), over(weights, &weight));
                self.cpu.head_norm_backward(heads, input, weights, &kept, gradient, weights_gradient);
            });
        });
    }

    fn rotary(&self, matrix: Out<'_>, positions: &[u32], table: In<'_>, direction: Direction) {
        let seen = self.seen(table.buffer);
        self.out(matrix, |matrix| self.cpu.rotary(matrix, positions, over(table, &seen), direction));
    }

    fn swiglu(&self, gate_up: In<'_>, output: Out<'_>) {
        let seen = self.seen(gate_up.buffer);
        self.out(output, |output| self.cpu.swiglu(over(gate_up, &seen), output));
    }

    fn swiglu_backward(&self, gate_up: In<'_>, output_gradient: In<'_>, gate_up_gradient: Out<'_>) {
        let (seen, outer) = (self.seen(gate_up.buffer), self.seen(output_gradient.buffer));
        self.out(gate_up_gradient, |gradient| {
            self.cpu.swiglu_backward(over(gate_up, &seen), over(output_gradient, &outer), gradient);
        });
    }

    fn attention(&self, shape: &SharedAttention, qkv: In<'_>, weights: &mut StandInBuffer, output: Out<'_>) {
        let seen = self.seen(qkv.buffer);
        let mut kept = self.changed(weights);
        self.out(output, |output| self.cpu.attention(shape, over(qkv, &seen), &mut kept, output));
    }

    fn attention_backward(
        &self,
        shape: &SharedAttention,
        qkv: In<'_>,
        weights: &StandInBuffer,
        output: In<'_>,
        output_gradient: In<'_>,
        scratch: &mut StandInBuffer,
        qkv_gradient: Out<'_>,
    ) {
        let (seen, kept, outer) =
            (self.seen(qkv.buffer), self.seen(weights), self.seen(output_gradient.buffer));
        let (attended, mut scratch) = (self.seen(output.buffer), self.changed(scratch));
        self.out(qkv_gradient, |gradient| {
            let (qkv, output, outer) =
                (over(qkv, &seen), over(output, &attended), over(output_gradient, &outer));
            self.cpu.attention_backward(shape, qkv, &kept, output, outer, &mut scratch, gradient);
        });
    }

    fn cache_store(&self, heads: AttentionHeads, rows: &[CacheRow], qkv: In<'_>, cache: &mut StandInBuffer) {
        let seen = self.seen(qkv.buffer);
        self.cpu.cache_store(heads, rows, over(qkv, &seen), &mut self.changed(cache));
    }

    fn cache_attention(
        &self,
        heads: AttentionHeads,
        rows: &[CacheRow],
        qkv: In<'_>,
        cache: &StandInBuffer,
        output: Out<'_>,
    ) {
        let (seen, kept) = (self.seen(qkv.buffer), self.seen(cache));
        self.out(output, |output| self.cpu.cache_attention(heads, rows, over(qkv, &seen), &kept, output));
    }

    fn token_statistics(&self, logits: In<'_>, targets: &[u32], statistics: Out<'_>) {
        let seen = self.seen(logits.buffer);
        self.out(statistics, |statistics| {
            self.cpu.token_statistics(over(logits, &seen), targets, statistics);
        });
    }

    fn token_gradient(
        &self,
        logits: Out<'_>,
        targets: &[u32],
        statistics: In<'_>,
        log_prob_weights: &[f32],
        entropy_weights: &[f32],
    ) {
        let seen = self.seen(statistics.buffer);
        self.out(logits, |logits| {
            let statistics = over(statistics, &seen);
            self.cpu.token_gradient(logits, targets, statistics, log_prob_weights, entropy_weights);
        });
    }

    fn allocate_sums(&self, length: usize, fraction_bits: u32, terms_max: usize) -> CpuSums {
        self.cpu.allocate_sums(length, fraction_bits, terms_max)
    }

    fn add_to_sums(&self, factor: f64, source: &StandInBuffer, sums: &mut CpuSums) {
        self.cpu.add_to_sums(factor, &self.seen(source), sums);
    }

    fn combine_sums(&self, terms: &[(f64, &CpuSums)], output: &mut StandInBuffer) {
        self.cpu.combine_sums(terms, &mut self.changed(output));
    }

    fn download_sums(&self, sums: &CpuSums, units: &mut [i64]) {
        self.cpu.download_sums(sums, units);
    }

    fn upload_sums(&self, units: &[i64], sums: &mut CpuSums) {
        self.cpu.upload_sums(units, sums);
    }

    fn accumulate(&self, source: &StandInBuffer, target: &mut StandInBuffer) {
        self.cpu.accumulate(&self.seen(source), &mut self.changed(target));
    }

    fn sum_of_squares(&self, buffer: &StandInBuffer) -> f64 {
        self.cpu.sum_of_squares(&self.seen(buffer))
    }

    fn adamw(
        &self,
        step: &AdamWStep,
        gradient: &StandInBuffer,
        parameters: &mut StandInBuffer,
        first_moments: &mut StandInBuffer,
        second_moments: &mut StandInBuffer,
    ) {
        let (mut parameters, mut first) = (self.changed(parameters), self.changed(first_moments));
        let mut second = self.changed(second_moments);
        self.cpu.adamw(step, &self.seen(gradient), &mut parameters, &mut first, &mut second);
    }
}
