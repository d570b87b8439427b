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

use super::copies::{CudaEvent, CudaStream};
use super::kernel::{Argument, Kernel, THREADS};
use super::memory::Pinned;
use super::stream::Stream;
use super::under_way::Kept;
use super::{CudaBuffer, CudaDevice, CudaError, CudaHost};
use crate::device::copies::check_sums;
use crate::error::Error;

/// Blocks that share a run: a few runs alone would leave most of the device idle.
const PARTS: usize = 8;

/// Pinned memory for what the parts of runs come to, and for how many runs it is.
#[derive(Debug, Default)]
pub(super) struct Parts(Mutex<Option<(Arc<Pinned>, usize)>>);

impl Parts {
    /// Makes memory for so many runs where there is none yet.
    pub(super) fn prepare(&self, device: &CudaDevice, runs: usize) -> Result<(), Error> {
        self.with(device, runs, |_| ())
    }

    /// Does `work` with memory for so many runs, which is its own until all that it gives to the stream has been given.
    fn with<T>(
        &self,
        device: &CudaDevice,
        runs: usize,
        work: impl FnOnce(&Arc<Pinned>) -> T,
    ) -> Result<T, Error> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*kept {
            Some((memory, most)) if *most >= runs => Ok(work(memory)),
            _ => {
                let memory = device.pinned(runs.saturating_mul(PARTS))?; // a sum takes as much as a value
                Ok(work(&kept.insert((Arc::new(memory), runs)).0))
            }
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
        let queued = stream.parts.with(self, runs.count(), |parts| {
            // The parts are kept with the target.
            let used = Arc::new((Arc::clone(&target.memory), Arc::clone(parts)));
            self.queued(stream, [Kept::of(&source.memory), Kept::of(&used)], |stream| {
                if runs.length == 0 {
                    return Ok(());
                }
                self.launch_sums(stream, &runs, (parts.address(), sums))
            })
        });
        queued.unwrap_or_else(CudaEvent::refused)
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
