//! Whole flat buffers: the cache, the norm, the update, fixed-point sums, packing.
#![allow(unsafe_code, reason = "launches and copies over lengths that were checked")]

use super::kernel::{Argument, Kernel, THREADS};
use super::{CudaBuffer, CudaDevice, CudaSums};
use crate::device::AdamWStep;
use crate::device::copies::lies_in;

/// Values whose squares are summed as one block.
const SQUARES_RUN: usize = 1 << 16;

/// Blocks of a launch over a flat buffer: enough to fill any GPU; each goes through the buffer in strides.
const BLOCKS_MAX: usize = 1 << 13;

/// A run of values that is to be copied into another buffer; see [`CudaDevice::copy_pieces`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// First value in the buffer that is read.
    pub source_offset: usize,
    /// First value in the buffer that is written.
    pub target_offset: usize,
    /// Number of values.
    pub length: usize,
}

fn grid(length: usize) -> [usize; 3] {
    [length.div_ceil(THREADS as usize).min(BLOCKS_MAX), 1, 1]
}

fn place(buffer: &CudaBuffer) -> Argument {
    Argument::Address(buffer.memory.address())
}

fn length(values: usize) -> Argument {
    Argument::Length(values as u64)
}

impl CudaDevice {
    pub(super) fn accumulate_on(&self, source: &CudaBuffer, target: &CudaBuffer) {
        let values = source.length.min(target.length);
        let arguments = [place(source), place(target), length(values)];
        // SAFETY: as said above.
        unsafe { self.queue.launch(Kernel::Accumulate, grid(values), &arguments) };
    }

    pub(super) fn sum_of_squares_on(&self, buffer: &CudaBuffer) -> f64 {
        let mut sums = vec![0.0_f64; buffer.length.div_ceil(SQUARES_RUN)];
        let memory = self.queue.allocate(size_of_val(&sums[..]));
        let run = Argument::Count(SQUARES_RUN as u32);
        let arguments = [place(buffer), length(buffer.length), run, Argument::Address(memory.address())];
        // SAFETY: as said above; one sum a run.
        unsafe { self.queue.launch(Kernel::SumOfSquares, [sums.len(), 1, 1], &arguments) };
        let bytes = bytemuck::cast_slice_mut(&mut sums);
        // SAFETY: as said above.
        let taken = self.queue.attempt(|| unsafe { self.queue.take(memory.address(), bytes) });
        taken.map_or(f64::NAN, |()| sums.iter().sum())
    }

    pub(super) fn adamw_on(&self, step: &AdamWStep, [gradient, parameters, first, second]: [&CudaBuffer; 4]) {
        let values = gradient.length.min(parameters.length).min(first.length).min(second.length);
        let factors = [
            step.gradient_scale,
            step.rate,
            step.keep,
            step.beta1,
            step.one_minus_beta1,
            step.beta2,
            step.one_minus_beta2,
            step.second_scale,
            step.epsilon,
        ];
        let places = [place(gradient), place(parameters), place(first), place(second), length(values)];
        let arguments = [&places[..], &factors.map(Argument::Single)].concat();
        // SAFETY: as said above.
        unsafe { self.queue.launch(Kernel::AdamW, grid(values), &arguments) };
    }

    pub(super) fn allocate_sums_on(&self, values: usize, fraction_bits: u32, terms_max: usize) -> CudaSums {
        let limit = (1_u64 << 62) as f64 / terms_max.max(1) as f64;
        let memory = self.queue.allocate_values(values, size_of::<i64>());
        if values > 0 {
            // SAFETY: as said above.
            self.queue
                .attempt(|| unsafe { self.queue.stream.clear(memory.address(), size_of::<i64>() * values) });
        }
        CudaSums { memory, length: values, unit: (1_u64 << fraction_bits) as f64, limit }
    }

    pub(super) fn add_to_sums_on(&self, factor: f64, source: &CudaBuffer, sums: &CudaSums) {
        let values = source.length.min(sums.length);
        let factors = [Argument::Double(factor * sums.unit), Argument::Double(sums.limit)];
        let target = [Argument::Address(sums.memory.address()), length(values)];
        let arguments = [&[place(source)], &factors[..], &target].concat();
        // SAFETY: as said above.
        unsafe { self.queue.launch(Kernel::AddToSums, grid(values), &arguments) };
    }

    pub(super) fn combine_sums_on(&self, terms: &[(f64, &CudaSums)], output: &CudaBuffer) {
        let values = output.length;
        assert!(terms.iter().all(|(_, sums)| sums.length >= values), "a sum for every value");
        if values == 0 {
            return;
        }
        let wide = self.queue.allocate(size_of::<f64>() * values);
        // SAFETY: as said above.
        self.queue.attempt(|| unsafe { self.queue.stream.clear(wide.address(), size_of::<f64>() * values) });
        let wide = Argument::Address(wide.address());
        for (factor, sums) in terms {
            let weight = Argument::Double(factor / sums.unit);
            let arguments = [Argument::Address(sums.memory.address()), weight, wide, length(values)];
            // SAFETY: as said above.
            unsafe { self.queue.launch(Kernel::WeighSums, grid(values), &arguments) };
        }
        // SAFETY: as said above.
        unsafe { self.queue.launch(Kernel::RoundSums, grid(values), &[wide, place(output), length(values)]) };
    }

    /// Copies runs of values from buffers into `target`, or out of one: with one launch, however many there are.
    ///
    /// This is how tensors that lie by themselves become one flat buffer. Runs of the target do not overlap.
    ///
    /// # Panics
    /// If a run lies outside of its buffer.
    pub fn copy_pieces(&self, pieces: &[(&CudaBuffer, Piece)], target: &mut CudaBuffer) {
        let mut table = Vec::with_capacity(pieces.len());
        let mut values = 0;
        for (source, piece) in pieces.iter().filter(|(_, piece)| piece.length > 0) {
            assert!(lies_in(piece.source_offset, piece.length, source.length), "a piece lies in its source");
            assert!(lies_in(piece.target_offset, piece.length, target.length), "a piece lies in its target");
            let address = |buffer: &CudaBuffer, offset: usize| {
                buffer.memory.address() + (size_of::<f32>() * offset) as u64
            };
            let [source, into] = [(*source, piece.source_offset), (&*target, piece.target_offset)]
                .map(|(buffer, offset)| address(buffer, offset));
            table.push([source, into, values as u64]);
            values += piece.length;
        }
        let memory = self.queue.table(&table);
        let count = super::view::count(table.len());
        let arguments = [Argument::Address(memory.address()), count, length(values)];
        // SAFETY: as said above; the pieces were checked against their buffers.
        unsafe { self.queue.launch(Kernel::CopyPieces, grid(values), &arguments) };
    }
}
