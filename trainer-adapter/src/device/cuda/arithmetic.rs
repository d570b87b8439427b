//! [`Device`] over the GPU: views are checked here, and given to the kernels.

use std::sync::Arc;

use super::product::{self, CudaPrepared};
use super::view::View;
use super::{CudaBuffer, CudaDevice, CudaSums, attention};
use crate::device::copies::lies_in;
use crate::device::{
    AdamWStep, AttentionHeads, AttentionMemory, CacheRow, Device, Direction, Linear, Matrix, MatrixMut,
    RowRule, SharedAttention,
};
use crate::error::Error;

type In<'a> = Matrix<'a, CudaBuffer>;
type Out<'a> = MatrixMut<'a, CudaBuffer>;

const VALUE: usize = size_of::<f32>();

impl CudaDevice {
    /// The address of `length` values from `offset` on.
    fn range(buffer: &CudaBuffer, offset: usize, length: usize) -> u64 {
        assert!(
            lies_in(offset, length, buffer.length),
            "{length} values from {offset} on lie in a buffer of {}",
            buffer.length
        );
        buffer.memory.address() + (VALUE * offset) as u64
    }
}

#[allow(unsafe_code, reason = "copies inside of buffers, ordered by the stream that computes")]
impl Device for CudaDevice {
    type Buffer = CudaBuffer;
    type Prepared = CudaPrepared;
    type Sums = CudaSums;

    const ROW_TILE: usize = product::ROW_TILE;

    fn check(&self) -> Result<(), Error> {
        self.queue.check().map_err(Error::Device)
    }

    /// Waits for the device, so that copies in other streams need not come after it.
    fn allocate(&self, length: usize) -> CudaBuffer {
        let memory = Arc::new(self.queue.allocate_values(length, VALUE));
        let mut buffer = CudaBuffer { memory, length };
        self.clear(&mut buffer, 0, length);
        if length > 0 {
            self.queue.attempt(|| self.queue.stream.wait());
        }
        buffer
    }

    fn length(&self, buffer: &CudaBuffer) -> usize {
        buffer.length
    }

    /// Waits for the device, so that copies in other streams need not come after it.
    fn upload(&self, values: &[f32], buffer: &mut CudaBuffer, offset: usize) {
        let target = Self::range(buffer, offset, values.len());
        self.queue.attempt(|| {
            // SAFETY: inside of the buffer.
            unsafe { self.queue.give(bytemuck::cast_slice(values), target)? };
            self.queue.stream.wait()
        });
    }

    fn download(&self, buffer: &CudaBuffer, offset: usize, values: &mut [f32]) {
        let source = Self::range(buffer, offset, values.len());
        // SAFETY: inside of the buffer.
        let taken =
            self.queue.attempt(|| unsafe { self.queue.take(source, bytemuck::cast_slice_mut(values)) });
        if taken.is_none() {
            values.fill(f32::NAN);
        }
    }

    fn copy(&self, source: &CudaBuffer, target: &mut CudaBuffer) {
        let (from, into) = (Self::range(source, 0, source.length), Self::range(target, 0, source.length));
        if source.length > 0 {
            // SAFETY: inside of both buffers.
            self.queue.attempt(|| unsafe { self.queue.stream.on_device(from, into, VALUE * source.length) });
        }
    }

    fn clear(&self, buffer: &mut CudaBuffer, offset: usize, length: usize) {
        let place = Self::range(buffer, offset, length);
        if length > 0 {
            // SAFETY: inside of the buffer.
            self.queue.attempt(|| unsafe { self.queue.stream.clear(place, VALUE * length) });
        }
    }

    /// On the calling thread: the device has one queue.
    fn for_each(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        (0..count).for_each(work);
    }

    fn prepare(&self, parameters: &CudaBuffer, linears: &[Linear]) -> CudaPrepared {
        self.prepare_on(parameters, linears)
    }

    fn linear(&self, prepared: &CudaPrepared, index: usize, input: In<'_>, output: Out<'_>, rule: RowRule) {
        let rows = product::rows_of(input.rows, rule);
        let (input, output) = (Matrix { rows, ..input }, MatrixMut { rows, ..output });
        self.linear_on(prepared, index, input, View::out(&output), rule);
    }

    fn multiply(&self, alpha: f32, left: In<'_>, right: In<'_>, beta: f32, output: Out<'_>) {
        self.multiply_on(alpha, left, right, beta, View::out(&output));
    }

    fn add_row(&self, row: In<'_>, matrix: Out<'_>) {
        self.add_row_on(row.into(), View::out(&matrix));
    }

    fn sum_rows(&self, matrix: In<'_>, row: Out<'_>) {
        self.sum_rows_on(matrix.into(), View::out(&row));
    }

    fn add(&self, source: In<'_>, target: Out<'_>) {
        self.add_on(source.into(), View::out(&target));
    }

    fn gather(&self, source: In<'_>, rows: &[u32], output: Out<'_>) {
        self.gather_on(source.into(), rows, View::out(&output));
    }

    fn scatter_add(&self, source: In<'_>, rows: &[u32], target: Out<'_>) {
        self.scatter_add_on(source.into(), rows, View::out(&target));
    }

    fn rms_norm(
        &self,
        input: In<'_>,
        weight: In<'_>,
        epsilon: f32,
        output: Out<'_>,
        scales: &mut CudaBuffer,
    ) {
        self.rms_norm_on(input.into(), weight.into(), epsilon, View::out(&output), scales);
    }

    fn rms_norm_backward(
        &self,
        input: In<'_>,
        weight: In<'_>,
        scales: &CudaBuffer,
        output_gradient: In<'_>,
        input_gradient: Out<'_>,
        weight_gradient: Out<'_>,
    ) {
        let into = [View::out(&input_gradient), View::out(&weight_gradient)];
        self.rms_norm_backward_on(input.into(), weight.into(), scales, output_gradient.into(), into);
    }

    fn head_norm(
        &self,
        heads: AttentionHeads,
        input: In<'_>,
        weights: In<'_>,
        epsilon: f32,
        output: Out<'_>,
        scales: &mut CudaBuffer,
    ) {
        self.head_norm_on(heads, input.into(), weights.into(), epsilon, View::out(&output), scales);
    }

    fn head_norm_backward(
        &self,
        heads: AttentionHeads,
        input: In<'_>,
        weights: In<'_>,
        scales: &CudaBuffer,
        gradient: Out<'_>,
        weights_gradient: Out<'_>,
    ) {
        let into = [View::out(&gradient), View::out(&weights_gradient)];
        self.head_norm_backward_on(heads, input.into(), weights.into(), scales, into);
    }

    fn rotary(&self, matrix: Out<'_>, positions: &[u32], table: In<'_>, direction: Direction) {
        self.rotary_on(View::out(&matrix), positions, table.into(), direction);
    }

    fn swiglu(&self, gate_up: In<'_>, output: Out<'_>) {
        self.swiglu_on(gate_up.into(), View::out(&output));
    }

    fn swiglu_backward(&self, gate_up: In<'_>, output_gradient: In<'_>, gate_up_gradient: Out<'_>) {
        self.swiglu_backward_on(gate_up.into(), output_gradient.into(), View::out(&gate_up_gradient));
    }

    fn attention_memory(&self, shape: &SharedAttention) -> AttentionMemory {
        attention::memory_of(shape)
    }

    fn attention(&self, shape: &SharedAttention, qkv: In<'_>, kept: &mut CudaBuffer, output: Out<'_>) {
        self.attention_on(shape, qkv.into(), kept, View::out(&output));
    }

    fn attention_backward(
        &self,
        shape: &SharedAttention,
        qkv: In<'_>,
        kept: &CudaBuffer,
        output: In<'_>,
        output_gradient: In<'_>,
        scratch: &mut CudaBuffer,
        qkv_gradient: Out<'_>,
    ) {
        let outputs = [output.into(), output_gradient.into()];
        self.attention_backward_on(shape, qkv.into(), [kept, scratch], outputs, View::out(&qkv_gradient));
    }

    fn cache_store(&self, heads: AttentionHeads, rows: &[CacheRow], qkv: In<'_>, cache: &mut CudaBuffer) {
        self.cache_store_on(heads, rows, qkv.into(), cache);
    }

    fn cache_attention(
        &self,
        heads: AttentionHeads,
        rows: &[CacheRow],
        qkv: In<'_>,
        cache: &CudaBuffer,
        output: Out<'_>,
    ) {
        self.cache_attention_on(heads, rows, qkv.into(), cache, View::out(&output));
    }

    fn token_statistics(&self, logits: In<'_>, targets: &[u32], statistics: Out<'_>) {
        self.token_statistics_on(logits.into(), targets, View::out(&statistics));
    }

    fn token_gradient(
        &self,
        logits: Out<'_>,
        targets: &[u32],
        statistics: In<'_>,
        log_prob_weights: &[f32],
        entropy_weights: &[f32],
    ) {
        let weights = [log_prob_weights, entropy_weights];
        self.token_gradient_on(View::out(&logits), targets, statistics.into(), weights);
    }

    fn allocate_sums(&self, length: usize, fraction_bits: u32, terms_max: usize) -> CudaSums {
        self.allocate_sums_on(length, fraction_bits, terms_max)
    }

    fn add_to_sums(&self, factor: f64, source: &CudaBuffer, sums: &mut CudaSums) {
        self.add_to_sums_on(factor, source, sums);
    }

    fn combine_sums(&self, terms: &[(f64, &CudaSums)], output: &mut CudaBuffer) {
        self.combine_sums_on(terms, output);
    }

    /// After a failure every sum is lost.
    fn download_sums(&self, sums: &CudaSums, units: &mut [i64]) {
        assert_eq!(units.len(), sums.length, "a place for every sum");
        let (source, bytes) = (sums.memory.address(), bytemuck::cast_slice_mut(units));
        // SAFETY: as long as the sums.
        if self.queue.attempt(|| unsafe { self.queue.take(source, bytes) }).is_none() {
            units.fill(i64::MIN);
        }
    }

    fn upload_sums(&self, units: &[i64], sums: &mut CudaSums) {
        assert_eq!(units.len(), sums.length, "a value for every sum");
        // SAFETY: as long as the sums.
        self.queue.attempt(|| unsafe { self.queue.give(bytemuck::cast_slice(units), sums.memory.address()) });
    }

    fn accumulate(&self, source: &CudaBuffer, target: &mut CudaBuffer) {
        self.accumulate_on(source, target);
    }

    fn sum_of_squares(&self, buffer: &CudaBuffer) -> f64 {
        self.sum_of_squares_on(buffer)
    }

    fn adamw(
        &self,
        step: &AdamWStep,
        gradient: &CudaBuffer,
        parameters: &mut CudaBuffer,
        first_moments: &mut CudaBuffer,
        second_moments: &mut CudaBuffer,
    ) {
        self.adamw_on(step, [gradient, parameters, first_moments, second_moments]);
    }
}
