//! The copies of the stand-in: they are queued in the schedule and happen when it says so.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::memory::StandInBuffer;
use super::place::{Place, Values};
use super::schedule::{CopyWay, StandInEvent, Work};
use super::{Schedule, StandInDevice};
use crate::device::copies::check_sums;
use crate::device::{Copies, CopyRange, ForeignMemory};
use crate::error::Error;

/// The places of a copy, in device memory and in host memory.
fn places(device: &StandInBuffer, host: &StandInBuffer, range: CopyRange) -> (Place, Place) {
    range.check(device.read().len(), host.read().len());
    let CopyRange { device_offset, host_offset, length } = range;
    (place(device, device_offset, length), place(host, host_offset, length))
}

pub(super) fn place(buffer: &StandInBuffer, first: usize, length: usize) -> Place {
    let values = Values::Own(Arc::clone(&buffer.values));
    Place { id: buffer.id, values, range: first..first + length }
}

/// Memory of somebody else's, as the stand-in copies to and from it.
#[derive(Debug, Clone)]
pub struct StandInPinned {
    id: u64,
    memory: Arc<ForeignMemory>,
    _counted: Arc<Counted>,
}

/// Takes its bytes off the device's count when it is dropped.
#[derive(Debug)]
struct Counted {
    device: StandInDevice,
    bytes: u64,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.device.shared.pinned_bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

impl StandInPinned {
    fn place(&self, buffer: &StandInBuffer, range: CopyRange) -> Place {
        let CopyRange { host_offset, length, .. } = range;
        range.check(buffer.read().len(), self.memory.length());
        let values = Values::Pinned(Arc::clone(&self.memory));
        Place { id: self.id, values, range: host_offset..host_offset + length }
    }
}

impl StandInDevice {
    pub(super) fn queue(
        &self,
        stream: usize,
        work: impl Into<Work>,
        source: Place,
        target: Place,
    ) -> StandInEvent {
        let mut schedule = self.schedule();
        self.shared.busy.store(true, Ordering::Release);
        schedule.queue(stream, work.into(), source, target)
    }

    fn poll(&self, schedule: &mut Schedule, event: &StandInEvent) -> Result<bool, Error> {
        let done = schedule.is_done(event);
        self.shared.busy.store(!schedule.is_quiet(), Ordering::Release);
        done
    }
}

impl Copies for StandInDevice {
    type Host = StandInBuffer;
    type Stream = usize;
    type Event = StandInEvent;
    type Pinned = StandInPinned;

    fn allocate_host(&self, length: usize) -> Result<StandInBuffer, Error> {
        let number = self.shared.hosts_asked.fetch_add(1, Ordering::Relaxed);
        if self.shared.host_faults.contains(&number) {
            return Err(Error::HostMemory { values: length, reason: format!("host memory {number} fails") });
        }
        self.memory(length)
    }

    fn host_length(&self, host: &StandInBuffer) -> usize {
        host.read().len()
    }

    fn write_host(&self, values: &[f32], host: &mut StandInBuffer, offset: usize) {
        let range = offset..offset + values.len();
        self.written(host, range.clone())[range].copy_from_slice(values);
    }

    fn read_host(&self, host: &StandInBuffer, offset: usize, values: &mut [f32]) {
        values.copy_from_slice(&self.seen(host)[offset..offset + values.len()]);
    }

    fn stream(&self) -> Result<usize, Error> {
        let number = self.shared.streams_asked.fetch_add(1, Ordering::Relaxed);
        if self.shared.stream_faults.contains(&number) {
            return Err(Error::Stream { reason: format!("stream {number} fails") });
        }
        Ok(self.schedule().stream())
    }

    fn copy_to_host_async(
        &self,
        stream: &usize,
        source: &StandInBuffer,
        target: &mut StandInBuffer,
        range: CopyRange,
    ) -> StandInEvent {
        let (from, into) = places(source, target, range);
        self.queue(*stream, CopyWay::ToHost, from, into)
    }

    fn copy_to_device_async(
        &self,
        stream: &usize,
        source: &StandInBuffer,
        target: &mut StandInBuffer,
        range: CopyRange,
    ) -> StandInEvent {
        let (into, from) = places(target, source, range);
        self.queue(*stream, CopyWay::ToDevice, from, into)
    }

    fn pin(&self, memory: ForeignMemory) -> Result<StandInPinned, Error> {
        let (bytes, limit) = (memory.bytes() as u64, self.shared.pinned_bytes_max);
        let add = |pinned: u64| pinned.checked_add(bytes).filter(|sum| *sum <= limit);
        let added = self.shared.pinned_bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
        added.map_err(|pinned| Error::Pin {
            reason: format!("{bytes} bytes beside {pinned} are more than the device's {limit}"),
        })?;
        let counted = Arc::new(Counted { device: self.clone(), bytes });
        Ok(StandInPinned { id: self.next_id(), memory: Arc::new(memory), _counted: counted })
    }

    fn copy_to_pinned_async(
        &self,
        stream: &usize,
        source: &StandInBuffer,
        target: &StandInPinned,
        range: CopyRange,
    ) -> StandInEvent {
        let from = place(source, range.device_offset, range.length);
        self.queue(*stream, CopyWay::ToHost, from, target.place(source, range))
    }

    fn copy_from_pinned_async(
        &self,
        stream: &usize,
        source: &StandInPinned,
        target: &mut StandInBuffer,
        range: CopyRange,
    ) -> StandInEvent {
        let into = place(target, range.device_offset, range.length);
        self.queue(*stream, CopyWay::ToDevice, source.place(target, range), into)
    }

    fn sum_up_async(
        &self,
        stream: &usize,
        source: &StandInBuffer,
        (values, run): (Range<usize>, usize),
        target: &mut StandInBuffer,
        offset: usize,
    ) -> StandInEvent {
        check_sums(&values, run, source.read().len(), (offset, target.read().len()));
        let from = place(source, values.start, values.len());
        let into = place(target, offset, values.len().div_ceil(run));
        self.queue(*stream, Work::Sums { run }, from, into)
    }

    fn stream_after(&self, stream: &usize, event: &StandInEvent) {
        self.schedule().stream_after(*stream, event);
    }

    fn computed(&self) -> StandInEvent {
        self.schedule().computed()
    }

    /// Arithmetic happens when it is called, so this waits.
    fn compute_after(&self, event: &StandInEvent) -> Result<(), Error> {
        self.wait(event)
    }

    fn is_done(&self, event: &StandInEvent) -> Result<bool, Error> {
        self.poll(&mut self.schedule(), event)
    }

    fn wait(&self, event: &StandInEvent) -> Result<(), Error> {
        let mut schedule = self.schedule();
        while !self.poll(&mut schedule, event)? {}
        Ok(())
    }
}
