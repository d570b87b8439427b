//! The CPU device: kernels over vectors, products over the `gemm` crate, threads over whole units.
//!
//! A kernel or a product runs on the thread that calls it. The one place with threads is [`Device::for_each`], whose
//! pool belongs to this handle and its clones; with one thread everything stays on the caller's. Rollout threads call
//! the same handle at the same time: it has no state besides the pool.

mod adamw;
mod attention;
mod buffer;
mod cache;
mod copies;
mod elementwise;
mod head_norm;
mod norm;
mod product;
pub(crate) mod shared;
pub(crate) mod simd;
mod sums;
mod tokens;

use std::sync::Arc;

pub use buffer::CpuBuffer;
use buffer::Rows;
pub use product::CpuPrepared;
use rayon::prelude::*;
pub use sums::CpuSums;

use super::{
    AdamWStep, AttentionHeads, CacheRow, Device, Direction, Linear, Matrix, MatrixMut, RowRule,
    SharedAttention,
};
use crate::error::Error;

type In<'a> = Matrix<'a, CpuBuffer>;
type Out<'a> = MatrixMut<'a, CpuBuffer>;

/// Values whose squares are summed as one block, whatever the number of threads.
const SQUARES_BLOCK: usize = 1 << 16;

/// The processor, as a [`Device`].
#[derive(Debug, Clone, Default)]
pub struct CpuDevice {
    pool: Option<Arc<rayon::ThreadPool>>,
}

impl CpuDevice {
    /// A device that works on the calling thread only: what a rollout thread uses.
    pub fn inline() -> Self {
        Self::default()
    }

    /// A device with `threads` threads of its own (named `forebay-train-N`); 0 and 1 mean the calling thread.
    ///
    /// If the system refuses the threads, the device works on the calling thread: the results are the same.
    pub fn new(threads: usize) -> Self {
        if threads < 2 {
            return Self::inline();
        }
        let name = |index| format!("forebay-train-{index}");
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).thread_name(name).build();
        Self { pool: pool.ok().map(Arc::new) }
    }

    /// Threads that units are shared out over.
    pub fn threads(&self) -> usize {
        self.pool.as_ref().map_or(1, |pool| pool.current_num_threads())
    }
}

fn vector<'a>(matrix: &In<'a>) -> &'a [f32] {
    &matrix.buffer[matrix.offset..][..matrix.columns]
}

fn vector_mut<'a>(matrix: Out<'a>) -> &'a mut [f32] {
    &mut matrix.buffer[matrix.offset..][..matrix.columns]
}

impl Device for CpuDevice {
    type Buffer = CpuBuffer;
    type Prepared = CpuPrepared;
    type Sums = CpuSums;

    const ROW_TILE: usize = product::ROW_TILE;

    fn allocate(&self, length: usize) -> CpuBuffer {
        CpuBuffer::zeros(length)
    }

    fn try_allocate(&self, length: usize) -> Result<CpuBuffer, Error> {
        CpuBuffer::try_zeros(length)
    }

    fn length(&self, buffer: &CpuBuffer) -> usize {
        buffer.len()
    }

    fn upload(&self, values: &[f32], buffer: &mut CpuBuffer, offset: usize) {
        buffer[offset..offset + values.len()].copy_from_slice(values);
    }

    fn download(&self, buffer: &CpuBuffer, offset: usize, values: &mut [f32]) {
        values.copy_from_slice(&buffer[offset..offset + values.len()]);
    }

    fn in_host_memory<'a>(&self, buffer: &'a CpuBuffer) -> Option<&'a [f32]> {
        Some(buffer)
    }

    fn in_host_memory_mut<'a>(&self, buffer: &'a mut CpuBuffer) -> Option<&'a mut [f32]> {
        Some(buffer)
    }

    fn copy(&self, source: &CpuBuffer, target: &mut CpuBuffer) {
        target[..source.len()].copy_from_slice(source);
    }

    fn clear(&self, buffer: &mut CpuBuffer, offset: usize, length: usize) {
        buffer[offset..offset + length].fill(0.0);
    }

    fn for_each(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        match &self.pool {
            Some(pool) if count > 1 => {
                pool.install(|| (0..count).into_par_iter().with_max_len(1).for_each(work));
            }
            _ => (0..count).for_each(work),
        }
    }

    fn prepare(&self, parameters: &CpuBuffer, linears: &[Linear]) -> CpuPrepared {
        self.try_prepare(parameters, linears).unwrap_or_else(|error| panic!("{error}"))
    }

    fn try_prepare(&self, parameters: &CpuBuffer, linears: &[Linear]) -> Result<CpuPrepared, Error> {
        CpuPrepared::new(parameters, linears)
    }

    fn linear(&self, prepared: &CpuPrepared, index: usize, input: In<'_>, output: Out<'_>, rule: RowRule) {
        prepared.linear(index, input, output, rule);
    }

    fn multiply(&self, alpha: f32, left: In<'_>, right: In<'_>, beta: f32, output: Out<'_>) {
        product::multiply(alpha, left, right, beta, output);
    }

    fn add_row(&self, row: In<'_>, matrix: Out<'_>) {
        elementwise::add_row(vector(&row), matrix.into());
    }

    fn sum_rows(&self, matrix: In<'_>, row: Out<'_>) {
        elementwise::sum_rows(matrix.into(), vector_mut(row));
    }

    fn add(&self, source: In<'_>, target: Out<'_>) {
        elementwise::add(source.into(), target.into());
    }

    fn gather(&self, source: In<'_>, rows: &[u32], output: Out<'_>) {
        elementwise::gather(source.into(), rows, output.into());
    }

    fn scatter_add(&self, source: In<'_>, rows: &[u32], target: Out<'_>) {
        elementwise::scatter_add(source.into(), rows, target.into());
    }

    fn rms_norm(&self, input: In<'_>, weight: In<'_>, epsilon: f32, output: Out<'_>, scales: &mut CpuBuffer) {
        norm::forward(input.into(), vector(&weight), epsilon, output.into(), scales);
    }

    fn rms_norm_backward(
        &self,
        input: In<'_>,
        weight: In<'_>,
        scales: &CpuBuffer,
        output_gradient: In<'_>,
        input_gradient: Out<'_>,
        weight_gradient: Out<'_>,
    ) {
        let (weight, outer) = (vector(&weight), Rows::from(output_gradient));
        norm::backward(
            input.into(),
            weight,
            scales,
            outer,
            input_gradient.into(),
            vector_mut(weight_gradient),
        );
    }

    fn head_norm(
        &self,
        heads: AttentionHeads,
        input: In<'_>,
        weights: In<'_>,
        epsilon: f32,
        output: Out<'_>,
        scales: &mut CpuBuffer,
    ) {
        head_norm::forward(heads, input.into(), weights.into(), epsilon, output.into(), scales);
    }

    fn head_norm_backward(
        &self,
        heads: AttentionHeads,
        input: In<'_>,
        weights: In<'_>,
        scales: &CpuBuffer,
        gradient: Out<'_>,
        weights_gradient: Out<'_>,
    ) {
        let (gradient, weights_gradient) = (gradient.into(), weights_gradient.into());
        head_norm::backward(heads, input.into(), weights.into(), scales, gradient, weights_gradient);
    }

    fn rotary(&self, matrix: Out<'_>, positions: &[u32], table: In<'_>, direction: Direction) {
        elementwise::rotary(matrix.into(), positions, table.into(), direction);
    }

    fn swiglu(&self, gate_up: In<'_>, output: Out<'_>) {
        elementwise::swiglu(gate_up.into(), output.into());
    }

    fn swiglu_backward(&self, gate_up: In<'_>, output_gradient: In<'_>, gate_up_gradient: Out<'_>) {
        elementwise::swiglu_backward(gate_up.into(), output_gradient.into(), gate_up_gradient.into());
    }

    fn attention(&self, shape: &SharedAttention, qkv: In<'_>, weights: &mut CpuBuffer, output: Out<'_>) {
        attention::forward(shape, qkv, weights, output);
    }

    fn attention_backward(
        &self,
        shape: &SharedAttention,
        qkv: In<'_>,
        weights: &CpuBuffer,
        _output: In<'_>,
        output_gradient: In<'_>,
        scratch: &mut CpuBuffer,
        qkv_gradient: Out<'_>,
    ) {
        attention::backward(shape, qkv, weights, output_gradient, scratch, qkv_gradient);
    }

    fn cache_store(&self, heads: AttentionHeads, rows: &[CacheRow], qkv: In<'_>, cache: &mut CpuBuffer) {
        cache::store(heads, rows, qkv.into(), cache);
    }

    fn cache_attention(
        &self,
        heads: AttentionHeads,
        rows: &[CacheRow],
        qkv: In<'_>,
        cache: &CpuBuffer,
        output: Out<'_>,
    ) {
        let mut scores = Vec::new();
        cache::attention(heads, rows, qkv.into(), cache, &mut scores, output.into());
    }

    fn token_statistics(&self, logits: In<'_>, targets: &[u32], statistics: Out<'_>) {
        tokens::statistics(logits.into(), targets, statistics.into());
    }

    fn token_gradient(
        &self,
        logits: Out<'_>,
        targets: &[u32],
        statistics: In<'_>,
        log_prob_weights: &[f32],
        entropy_weights: &[f32],
    ) {
        tokens::gradient(logits.into(), targets, statistics.into(), log_prob_weights, entropy_weights);
    }

    fn allocate_sums(&self, length: usize, fraction_bits: u32, terms_max: usize) -> CpuSums {
        CpuSums::zeros(length, fraction_bits, terms_max)
    }

    fn add_to_sums(&self, factor: f64, source: &CpuBuffer, sums: &mut CpuSums) {
        sums.add(factor, source);
    }

    fn combine_sums(&self, terms: &[(f64, &CpuSums)], output: &mut CpuBuffer) {
        let mut wide = vec![0.0; output.len()];
        terms.iter().for_each(|(factor, sums)| sums.weigh(*factor, &mut wide));
        output.iter_mut().zip(wide).for_each(|(value, sum)| *value = sum as f32);
    }

    fn download_sums(&self, sums: &CpuSums, units: &mut [i64]) {
        units.copy_from_slice(&sums.values);
    }

    fn upload_sums(&self, units: &[i64], sums: &mut CpuSums) {
        sums.values.copy_from_slice(units);
    }

    fn accumulate(&self, source: &CpuBuffer, target: &mut CpuBuffer) {
        elementwise::accumulate(source, target);
    }

    fn sum_of_squares(&self, buffer: &CpuBuffer) -> f64 {
        buffer.chunks(SQUARES_BLOCK).map(elementwise::sum_of_squares).sum()
    }

    fn adamw(
        &self,
        step: &AdamWStep,
        gradient: &CpuBuffer,
        parameters: &mut CpuBuffer,
        first_moments: &mut CpuBuffer,
        second_moments: &mut CpuBuffer,
    ) {
        adamw::update(step, gradient, parameters, first_moments, second_moments);
    }
}
