//! The seam between the model and what computes it.
//!
//! Model, generation and trainer are written against [`Device`] and its flat buffers of f32; a second device is a
//! second implementation of this trait, not a second model. [`CpuDevice`] computes; [`CudaDevice`] does on a GPU;
//! [`StandInDevice`] gives the processor the manners of one, for tests of order. Copies that run beside the arithmetic are a trait of their own, [`Copies`],
//! and so is memory that other processes may map, [`Share`].
//!
//! Conventions
//! - Matrices are row-major views into a buffer ([`Matrix`], [`MatrixMut`]); a *row* is one token.
//! - Token ids, positions and row indices are host slices: they are small and the host makes them.
//! - A view outside its buffer, or shapes that do not fit, is a bug of the caller inside this crate and panics. What a
//!   user can cause is checked before a device is called.
//! - Every operation has one order of summation, fixed by the shapes of its arguments.
//! - An operation cannot say that the device has failed: it may only be queued. What comes out after a failure is undefined, and
//!   [`Device::check`] says so; whoever is about to keep a result asks first.

mod attention;
mod copies;
pub mod cpu;
pub mod cuda;
mod exchange;
mod foreign;
mod matrix;
mod share;
pub mod stand_in;

pub use attention::{AttentionHeads, AttentionMemory, Branch, CacheRow, Family, SharedAttention};
pub use copies::{Copies, CopyRange, crc32c};
pub use cpu::CpuDevice;
pub use cuda::{CudaDevice, CudaOptions};
pub use exchange::{Exchanged, exchange};
pub use foreign::ForeignMemory;
pub use matrix::{Linear, Matrix, MatrixMut};
pub use share::{DeviceRange, Share, fingerprint};
pub use stand_in::{StandInDevice, StandInOptions};

use crate::error::Error;

/// Which way a rotation or an update goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// As in the forward pass.
    Forward,
    /// The transposed operation, as in the backward pass.
    Backward,
}

/// How the rows of a product may be computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowRule {
    /// All rows in one multiplication: fastest; a row's bits may depend on how many rows there are.
    Together,
    /// A row's bits are a function of that row alone. Input and output have room for the number of rows rounded up to
    /// a multiple of [`Device::ROW_TILE`].
    Alone,
}

/// The numbers of one AdamW update, bias corrections already worked out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamWStep {
    /// What the gradient is multiplied by first (one over the denominator, times the clip factor).
    pub gradient_scale: f32,
    /// Step length over `1 - beta1^t`.
    pub rate: f32,
    /// `1 - learning rate * weight decay`.
    pub keep: f32,
    /// Decay of the first moment.
    pub beta1: f32,
    /// `1 - beta1`.
    pub one_minus_beta1: f32,
    /// Decay of the second moment.
    pub beta2: f32,
    /// `1 - beta2`.
    pub one_minus_beta2: f32,
    /// `1 / sqrt(1 - beta2^t)`.
    pub second_scale: f32,
    /// Added to the root of the second moment.
    pub epsilon: f32,
}

impl AdamWStep {
    /// Whether all of them are numbers, and none is infinite.
    pub(crate) fn is_finite(&self) -> bool {
        let Self { gradient_scale, rate, keep, beta1, one_minus_beta1, .. } = *self;
        let Self { beta2, one_minus_beta2, second_scale, epsilon, .. } = *self;
        let all = [
            gradient_scale,
            rate,
            keep,
            beta1,
            one_minus_beta1,
            beta2,
            one_minus_beta2,
            second_scale,
            epsilon,
        ];
        all.iter().all(|factor| factor.is_finite())
    }
}

/// The arithmetic of the reference policy.
///
/// A handle: cheap to clone, shared by trainer and rollout threads.
pub trait Device: Clone + Send + Sync + 'static {
    /// A flat run of f32 in the device's memory.
    type Buffer: Send + Sync;
    /// A version's weight matrices in the form that the device multiplies fastest by.
    type Prepared: Send + Sync;
    /// 64-bit fixed-point sums of f32 values: adding to them in another order changes no bit.
    type Sums: Send + Sync;

    /// Rows per tile of a product under [`RowRule::Alone`].
    const ROW_TILE: usize;

    /// Whether everything that was read from the device so far is what it should be.
    ///
    /// # Errors
    /// [`Error::Device`] once the device has failed. It stays so: take another device, and restore a stored state on it.
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    /// A buffer of `length` zeros. A device without memory for it has failed, as [`Self::check`] says.
    ///
    /// # Panics
    /// If the device's memory is the host's, and there is none. [`Self::try_allocate`] is for lengths that a caller decides.
    fn allocate(&self, length: usize) -> Self::Buffer;
    /// The same for who can say that it is not to be had: for a length that a configuration or a state decides.
    ///
    /// # Errors
    /// [`Error::HostMemory`] if the device's memory is the host's, and there is none; the device goes on. [`Error::Device`] if the device has
    /// failed, for want of memory too.
    fn try_allocate(&self, length: usize) -> Result<Self::Buffer, Error> {
        let buffer = self.allocate(length);
        self.check().map(|()| buffer)
    }
    /// How many values the buffer has room for.
    fn length(&self, buffer: &Self::Buffer) -> usize;
    /// Copies host values into the buffer from `offset` on.
    fn upload(&self, values: &[f32], buffer: &mut Self::Buffer, offset: usize);
    /// Copies values from `offset` on into host memory.
    fn download(&self, buffer: &Self::Buffer, offset: usize, values: &mut [f32]);
    /// The values where they lie, of a device whose memory is the host's: for whoever writes them elsewhere and needs no copy on the
    /// way. Default: nothing, they have to be downloaded.
    fn in_host_memory<'a>(&self, _buffer: &'a Self::Buffer) -> Option<&'a [f32]> {
        None
    }
    /// The same to be written to. Default: nothing, they have to be uploaded.
    fn in_host_memory_mut<'a>(&self, _buffer: &'a mut Self::Buffer) -> Option<&'a mut [f32]> {
        None
    }
    /// Copies all of `source` to the start of `target`.
    fn copy(&self, source: &Self::Buffer, target: &mut Self::Buffer);
    /// Sets `length` values from `offset` on to zero.
    fn clear(&self, buffer: &mut Self::Buffer, offset: usize, length: usize);

    /// Calls `work` once for each index below `count`, in any order, on the device's threads.
    ///
    /// Used for whole units only, so that the number of threads changes no sum.
    fn for_each(&self, count: usize, work: &(dyn Fn(usize) + Sync));

    /// Lays the matrices named by `linears` out for [`Self::linear`].
    ///
    /// # Panics
    /// If the device's memory is the host's, and there is none for them.
    fn prepare(&self, parameters: &Self::Buffer, linears: &[Linear]) -> Self::Prepared;
    /// The same for who can say that there is no memory for them.
    ///
    /// # Errors
    /// As [`Self::try_allocate`].
    fn try_prepare(&self, parameters: &Self::Buffer, linears: &[Linear]) -> Result<Self::Prepared, Error> {
        let prepared = self.prepare(parameters, linears);
        self.check().map(|()| prepared)
    }
    /// `output = input . W^T` with the prepared matrix `index`; `input` is `[rows, in]`, `output` is `[rows, out]`.
    fn linear(
        &self,
        prepared: &Self::Prepared,
        index: usize,
        input: Matrix<'_, Self::Buffer>,
        output: MatrixMut<'_, Self::Buffer>,
        rule: RowRule,
    );
    /// `output = alpha . left . right + beta . output`; transposes are taken by [`Matrix::transposed`].
    fn multiply(
        &self,
        alpha: f32,
        left: Matrix<'_, Self::Buffer>,
        right: Matrix<'_, Self::Buffer>,
        beta: f32,
        output: MatrixMut<'_, Self::Buffer>,
    );

    /// `matrix[row] += vector` for each row; the vector is one row.
    fn add_row(&self, vector: Matrix<'_, Self::Buffer>, matrix: MatrixMut<'_, Self::Buffer>);
    /// `vector[column] = sum of matrix[.., column]`.
    fn sum_rows(&self, matrix: Matrix<'_, Self::Buffer>, vector: MatrixMut<'_, Self::Buffer>);
    /// `target += source`, value by value.
    fn add(&self, source: Matrix<'_, Self::Buffer>, target: MatrixMut<'_, Self::Buffer>);
    /// `output[i] = source[rows[i]]`.
    fn gather(&self, source: Matrix<'_, Self::Buffer>, rows: &[u32], output: MatrixMut<'_, Self::Buffer>);
    /// `target[rows[i]] += source[i]`, in the order of `i`.
    fn scatter_add(
        &self,
        source: Matrix<'_, Self::Buffer>,
        rows: &[u32],
        target: MatrixMut<'_, Self::Buffer>,
    );

    /// `output = input / sqrt(mean(input^2) + epsilon) * weight` by row. `scales[row]` receives the inverse root.
    fn rms_norm(
        &self,
        input: Matrix<'_, Self::Buffer>,
        weight: Matrix<'_, Self::Buffer>,
        epsilon: f32,
        output: MatrixMut<'_, Self::Buffer>,
        scales: &mut Self::Buffer,
    );
    /// Adds the gradient of the input to `input_gradient` and stores that of the weight.
    fn rms_norm_backward(
        &self,
        input: Matrix<'_, Self::Buffer>,
        weight: Matrix<'_, Self::Buffer>,
        scales: &Self::Buffer,
        output_gradient: Matrix<'_, Self::Buffer>,
        input_gradient: MatrixMut<'_, Self::Buffer>,
        weight_gradient: MatrixMut<'_, Self::Buffer>,
    );
    /// Normalises each head of the queries and of the keys of each row as [`Self::rms_norm`] does a row; values are copied.
    ///
    /// `weights` is `[2, dimension]`: that of the queries, that of the keys. `scales[row, head]` receives the inverse roots.
    fn head_norm(
        &self,
        heads: AttentionHeads,
        input: Matrix<'_, Self::Buffer>,
        weights: Matrix<'_, Self::Buffer>,
        epsilon: f32,
        output: MatrixMut<'_, Self::Buffer>,
        scales: &mut Self::Buffer,
    );
    /// Turns the gradient of the output into that of the input, and stores that of the weights.
    fn head_norm_backward(
        &self,
        heads: AttentionHeads,
        input: Matrix<'_, Self::Buffer>,
        weights: Matrix<'_, Self::Buffer>,
        scales: &Self::Buffer,
        gradient: MatrixMut<'_, Self::Buffer>,
        weights_gradient: MatrixMut<'_, Self::Buffer>,
    );
    /// Turns each head of each row by the angles of the row's position, in the half-split form.
    ///
    /// `table` is `[positions, head_dim]`: the cosines of a position, then its sines.
    fn rotary(
        &self,
        matrix: MatrixMut<'_, Self::Buffer>,
        positions: &[u32],
        table: Matrix<'_, Self::Buffer>,
        direction: Direction,
    );
    /// `output = silu(gate) * up`, where a row of `gate_up` is the gates and then the ups.
    fn swiglu(&self, gate_up: Matrix<'_, Self::Buffer>, output: MatrixMut<'_, Self::Buffer>);
    /// The gradient of `gate_up`, from that of the output.
    fn swiglu_backward(
        &self,
        gate_up: Matrix<'_, Self::Buffer>,
        output_gradient: Matrix<'_, Self::Buffer>,
        gate_up_gradient: MatrixMut<'_, Self::Buffer>,
    );

    /// How much memory attention over such a batch takes. By default: all weights.
    fn attention_memory(&self, shape: &SharedAttention) -> AttentionMemory {
        AttentionMemory { kept: shape.weights_length(), scratch: shape.scratch_length() }
    }
    /// Causal attention over families of sequences that share a prompt.
    ///
    /// `qkv` has the queries of all heads, then the keys, then the values in each row. `kept` receives what the backward pass
    /// needs ([`AttentionMemory::kept`] values).
    fn attention(
        &self,
        shape: &SharedAttention,
        qkv: Matrix<'_, Self::Buffer>,
        kept: &mut Self::Buffer,
        output: MatrixMut<'_, Self::Buffer>,
    );
    /// The gradient of `qkv`. `output` is that of the forward pass; `scratch` has [`AttentionMemory::scratch`] values.
    #[allow(clippy::too_many_arguments, reason = "each is a tensor of the operation")]
    fn attention_backward(
        &self,
        shape: &SharedAttention,
        qkv: Matrix<'_, Self::Buffer>,
        kept: &Self::Buffer,
        output: Matrix<'_, Self::Buffer>,
        output_gradient: Matrix<'_, Self::Buffer>,
        scratch: &mut Self::Buffer,
        qkv_gradient: MatrixMut<'_, Self::Buffer>,
    );
    /// Puts the keys and values of each row into the cache at its place.
    fn cache_store(
        &self,
        heads: AttentionHeads,
        rows: &[CacheRow],
        qkv: Matrix<'_, Self::Buffer>,
        cache: &mut Self::Buffer,
    );
    /// Attention of each row over its prompt's and its own places in the cache. A row's bits depend on that row and its
    /// cache alone.
    fn cache_attention(
        &self,
        heads: AttentionHeads,
        rows: &[CacheRow],
        qkv: Matrix<'_, Self::Buffer>,
        cache: &Self::Buffer,
        output: MatrixMut<'_, Self::Buffer>,
    );

    /// Per row: log-probability of the target, entropy of the distribution (both in nats) and log of the normaliser.
    fn token_statistics(
        &self,
        logits: Matrix<'_, Self::Buffer>,
        targets: &[u32],
        statistics: MatrixMut<'_, Self::Buffer>,
    );
    /// Turns logits into the gradient of `sum_i log_prob_weights[i] . log p_i + entropy_weights[i] . H_i`.
    fn token_gradient(
        &self,
        logits: MatrixMut<'_, Self::Buffer>,
        targets: &[u32],
        statistics: Matrix<'_, Self::Buffer>,
        log_prob_weights: &[f32],
        entropy_weights: &[f32],
    );

    /// Sums of zero, in units of `2^-fraction_bits`. They hold up to `terms_max` terms, each below `2^62 / terms_max` units.
    fn allocate_sums(&self, length: usize, fraction_bits: u32, terms_max: usize) -> Self::Sums;
    /// `sums += factor . source`, each term rounded to a whole unit. A value that does not fit is lost for good.
    fn add_to_sums(&self, factor: f64, source: &Self::Buffer, sums: &mut Self::Sums);
    /// `output = sum of factor . sums` over the terms in their order, in 64 bits, rounded once. A lost value is NaN.
    fn combine_sums(&self, terms: &[(f64, &Self::Sums)], output: &mut Self::Buffer);
    /// Copies the units of all sums into host memory.
    fn download_sums(&self, sums: &Self::Sums, units: &mut [i64]);
    /// Copies the units of all sums from host memory.
    fn upload_sums(&self, units: &[i64], sums: &mut Self::Sums);

    /// `target += source` over whole buffers of the same length.
    fn accumulate(&self, source: &Self::Buffer, target: &mut Self::Buffer);
    /// The sum of squares, by fixed blocks in 64 bits.
    fn sum_of_squares(&self, buffer: &Self::Buffer) -> f64;
    /// One AdamW update, in place.
    fn adamw(
        &self,
        step: &AdamWStep,
        gradient: &Self::Buffer,
        parameters: &mut Self::Buffer,
        first_moments: &mut Self::Buffer,
        second_moments: &mut Self::Buffer,
    );
}
