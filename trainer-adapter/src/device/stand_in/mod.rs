//! A stand-in for a GPU: the processor's arithmetic, with copies that are late, out of order, and fail when told to.
//!
//! It is for tests of whatever orders copies: what is right on it in every seed does not depend on how fast a copy is. Three
//! things show on it that a real device hides:
//! - memory that a copy has not finished writing, as far as the reader can know, reads as poison ([`POISON_BITS`]);
//! - two accesses that nothing orders leave poison, whichever came first this time;
//! - a copy may fail, and says so when its event is asked for; host memory and streams may not be had, and who asks for them is told.
//!
//! Its shared memory is a memory file, so what is published from it really goes to other processes.
//!
//! Arithmetic is the processor's, bit for bit, and happens when it is called. It counts as an access to whole buffers.
//!
//! One lock guards the schedule; each memory has its own. A copy that ends takes memories under the schedule's lock, and
//! arithmetic asks the schedule while it holds memories. That these never meet rests on the borrows of the calls: a copy takes
//! a memory only if no arithmetic has raced with it, and no copy of a memory can be queued while arithmetic has it.

mod arithmetic;
mod clock;
mod copies;
mod memory;
mod place;
mod schedule;
mod share;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLockWriteGuard};

pub use copies::StandInPinned;
use memory::Seen;
pub use memory::{POISON_BITS, StandInBuffer};
use schedule::Schedule;
pub use schedule::{CopyWay, StandInEvent, TraceEntry};
pub use share::StandInImported;

use super::cpu::{CpuBuffer, CpuDevice};
use crate::error::Error;

/// How a stand-in behaves: plain data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandInOptions {
    /// Threads of the arithmetic. Default 1.
    pub threads: usize,
    /// Decides how long each copy takes. Default 0.
    pub seed: u64,
    /// The longest copy, in ticks: one passes whenever a copy is queued or an event asked for. Default 8.
    pub copy_ticks_max: u64,
    /// Which copies fail, counted from 0 in the order in which they are queued. Default none.
    pub faults: Vec<usize>,
    /// Sums that fail, counted from 0 over all streams. Default none.
    pub sum_faults: Vec<usize>,
    /// Which host memories cannot be had, counted from 0 in the order in which they are asked for. Default none.
    pub host_faults: Vec<usize>,
    /// Which streams cannot be had, counted from 0 in the order in which they are asked for. Default none.
    pub stream_faults: Vec<usize>,
    /// How much memory of others may be pinned at a time. Default: any.
    pub pinned_bytes_max: u64,
    /// Its name among devices. Devices reach each other's memory whose names are the same up to the colon. Default `stand-in:0`.
    pub identity: String,
}

impl Default for StandInOptions {
    fn default() -> Self {
        let identity = "stand-in:0".to_owned();
        let pinned_bytes_max = u64::MAX;
        Self {
            threads: 1,
            seed: 0,
            copy_ticks_max: 8,
            faults: Vec::new(),
            sum_faults: Vec::new(),
            host_faults: Vec::new(),
            stream_faults: Vec::new(),
            pinned_bytes_max,
            identity,
        }
    }
}

/// The processor behind the manners of a GPU, as a [`super::Device`] with [`super::Copies`].
#[derive(Debug, Clone)]
pub struct StandInDevice {
    cpu: CpuDevice,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    schedule: Mutex<Schedule>,
    /// Whether a copy has ever been queued that the host has not waited for: until then arithmetic asks no schedule.
    busy: AtomicBool,
    next_id: AtomicU64,
    is_out_of_memory: AtomicBool,
    /// How many host memories were asked for.
    hosts_asked: AtomicUsize,
    host_faults: Vec<usize>,
    /// How many streams were asked for.
    streams_asked: AtomicUsize,
    stream_faults: Vec<usize>,
    pinned_bytes: AtomicU64,
    pinned_bytes_max: u64,
    identity: String,
}

impl StandInDevice {
    /// A device that behaves as the options say.
    pub fn new(options: StandInOptions) -> Self {
        let StandInOptions { threads, seed, copy_ticks_max, faults, sum_faults, .. } = options;
        let StandInOptions { host_faults, stream_faults, pinned_bytes_max, identity, .. } = options;
        let schedule = Mutex::new(Schedule::new(seed, copy_ticks_max, [faults, sum_faults]));
        let [busy, is_out_of_memory] = [(); 2].map(|()| AtomicBool::new(false));
        let [next_id, pinned_bytes] = [(); 2].map(|()| AtomicU64::new(0));
        let [hosts_asked, streams_asked] = [(); 2].map(|()| AtomicUsize::new(0));
        let shared = Shared {
            schedule,
            busy,
            next_id,
            is_out_of_memory,
            hosts_asked,
            host_faults,
            streams_asked,
            stream_faults,
            pinned_bytes,
            pinned_bytes_max,
            identity,
        };
        Self { cpu: CpuDevice::new(threads), shared: Arc::new(shared) }
    }

    /// Has the next check of the device say that its memory has run out; those after it find it well. A real device stays failed, and
    /// whoever goes on all the same is found out by this one.
    pub fn run_out_of_memory(&self) {
        self.shared.is_out_of_memory.store(true, Ordering::Release);
    }

    /// The copies that have ended, in the order in which they did.
    pub fn trace(&self) -> Vec<TraceEntry> {
        self.schedule().trace()
    }

    /// Bytes of memory of others that are pinned now.
    pub fn pinned_bytes(&self) -> u64 {
        self.shared.pinned_bytes.load(Ordering::Acquire)
    }

    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        self.shared.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn memory(&self, length: usize) -> Result<StandInBuffer, Error> {
        Ok(StandInBuffer::new(self.next_id(), CpuBuffer::try_zeros(length)?))
    }

    fn next_id(&self) -> u64 {
        self.shared.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// The memory as the host, or the arithmetic, sees it.
    fn seen<'a>(&self, buffer: &'a StandInBuffer) -> Seen<'a> {
        if !self.shared.busy.load(Ordering::Acquire) {
            return Seen::Memory(buffer.read());
        }
        let length = buffer.read().len();
        let undefined = self.schedule().undefined(buffer.id, length);
        buffer.seen(&undefined)
    }

    /// The memory to be written somewhere in `range`.
    fn written<'a>(
        &self,
        buffer: &'a mut StandInBuffer,
        range: Range<usize>,
    ) -> RwLockWriteGuard<'a, CpuBuffer> {
        if self.shared.busy.load(Ordering::Acquire) {
            self.schedule().host_writes(buffer.id, &range);
        }
        buffer.write()
    }

    /// The memory to be written anywhere.
    fn changed<'a>(&self, buffer: &'a mut StandInBuffer) -> RwLockWriteGuard<'a, CpuBuffer> {
        self.written(buffer, 0..usize::MAX)
    }
}
