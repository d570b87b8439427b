//! Checksums of what lies on the device, summed up there.
//!
//! They take no memory of the device: who sums up may be making room on one that is full. What blocks find of the parts of runs goes
//! through pinned memory of the stream, which is kept; sums of one stream are one after the other.
#![allow(
    unsafe_code,
    reason = "launches over ranges that were checked, in memory that is kept until they are done"
)]

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use super::context::Context;
use super::copies::{CudaEvent, CudaStream};
use super::kernel::{Argument, Kernel, THREADS};
use super::memory::Pinned;
use super::stream::Stream;
use super::under_way::Kept;
use super::{CudaBuffer, CudaDevice, CudaError, CudaHost};
use crate::device::copies::check_sums;

/// Blocks that share a run: a few runs alone would leave most of the device idle.
const PARTS: usize = 8;

/// Pinned memory for what the parts of runs come to, and how many bytes it has.
#[derive(Debug, Default)]
pub(super) struct Parts(Mutex<Option<(Arc<Pinned>, usize)>>);

impl Parts {
    /// Does `work` with so many bytes, which are its own until all that it gives to the stream has been given.
    fn with<T>(
        &self,
        context: &Arc<Context>,
        bytes: usize,
        work: impl FnOnce(&Arc<Pinned>) -> Result<T, CudaError>,
    ) -> Result<T, CudaError> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*kept {
            Some((memory, length)) if *length >= bytes => work(memory),
            _ => work(&kept.insert((Arc::new(Pinned::new(context, bytes)?), bytes)).0),
        }
    }
}

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
        let sums = target.memory.address() + value(offset);
        let made = self.queue.attempt(|| {
            let bytes = runs.count() * PARTS * size_of::<u32>();
            stream.parts.with(self.queue.stream.context(), bytes, |parts| {
                // The parts are kept with the target.
                let used = Arc::new((Arc::clone(&target.memory), Arc::clone(parts)));
                Ok(self.queued(stream, [Kept::of(&source.memory), Kept::of(&used)], |stream| {
                    if runs.length == 0 {
                        return Ok(());
                    }
                    self.launch_sums(stream, &runs, (parts.address(), sums))
                }))
            })
        });
        made.unwrap_or_else(CudaEvent::none)
    }

    fn launch_sums(&self, stream: &Stream, runs: &Runs, (parts, sums): (u64, u64)) -> Result<(), CudaError> {
        let part = runs.run.div_ceil(PARTS);
        let length = |values: usize| Argument::Length(values as u64);
        let [whole, run, part] = [length(runs.length), length(runs.run), length(part)];
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
