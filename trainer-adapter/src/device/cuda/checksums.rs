//! Checksums of what lies on the device, summed up there.
#![allow(
    unsafe_code,
    reason = "launches over ranges that were checked, in memory that is kept until they are done"
)]

use std::ops::Range;

use super::copies::{CudaEvent, CudaStream};
use super::kernel::{Argument, Kernel, THREADS};
use super::stream::Stream;
use super::under_way::Kept;
use super::{CudaBuffer, CudaDevice, CudaError, CudaHost};
use crate::device::copies::check_sums;

/// Blocks that share a run: a few runs alone would leave most of the device idle.
const PARTS: usize = 8;

/// What is summed up: where it lies, how long it is, and how it is cut.
struct Runs {
    address: u64,
    length: usize,
    run: usize,
}

impl Runs {
    fn count(&self) -> usize {
        self.length.div_ceil(self.run)
    }
}

impl CudaDevice {
    pub(super) fn sum_up_on(
        &self,
        stream: &CudaStream,
        source: &CudaBuffer,
        (values, run): (Range<usize>, usize),
        target: &CudaHost,
        offset: usize,
    ) -> CudaEvent {
        check_sums(&values, run, source.length, (offset, target.length));
        let value = |index: usize| (size_of::<f32>() * index) as u64;
        let runs = Runs { address: source.memory.address() + value(values.start), length: values.len(), run };
        // The device reaches pinned memory at the host's own address.
        let sums = target.memory.place().addr() as u64 + value(offset);
        self.queued(stream, [Kept::of(&source.memory), Kept::of(&target.memory)], |stream| {
            if runs.length == 0 {
                return Ok(());
            }
            let parts = stream.allocate(runs.count() * PARTS * size_of::<u32>())?;
            let launched = self.launch_sums(stream, &runs, (parts, sums));
            // SAFETY: it was allocated in this stream, and only the launches before use it.
            launched.and(unsafe { stream.free(parts) })
        })
    }

    fn launch_sums(&self, stream: &Stream, runs: &Runs, (parts, sums): (u64, u64)) -> Result<(), CudaError> {
        let part = runs.run.div_ceil(PARTS);
        let length = |values: usize| Argument::Length(values as u64);
        let cut = [length(runs.length), length(runs.run), length(part)];
        let [whole, run, part] = cut;
        let of_parts = [Argument::Address(runs.address), whole, run, part, Argument::Address(parts)];
        // SAFETY: the values were checked to lie in their buffer; a part of each run has a sum in `parts`.
        unsafe { self.queue.launch_in(stream, Kernel::SumUpParts, [runs.count(), PARTS, 1], &of_parts)? };
        let joined = [
            Argument::Address(parts),
            Argument::Count(PARTS as u32),
            whole,
            run,
            part,
            length(runs.count()),
            Argument::Address(sums),
        ];
        let grid = [runs.count().div_ceil(THREADS as usize), 1, 1];
        // SAFETY: as above; the sums were checked to lie in host memory, which is pinned.
        unsafe { self.queue.launch_in(stream, Kernel::JoinSums, grid, &joined) }
    }
}
