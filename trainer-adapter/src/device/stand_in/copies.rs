//! The copies of the stand-in: they are queued in the schedule and happen when it says so.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::memory::StandInBuffer;
use super::place::{Place, Values};
use super::schedule::{CopyWay, StandInEvent};
use super::{Schedule, StandInDevice};
use crate::device::{Copies, CopyRange};
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

impl StandInDevice {
    pub(super) fn queue(&self, stream: usize, way: CopyWay, source: Place, target: Place) -> StandInEvent {
        let mut schedule = self.schedule();
        self.shared.busy.store(true, Ordering::Release);
        schedule.queue(stream, way, source, target)
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

    fn allocate_host(&self, length: usize) -> StandInBuffer {
        self.memory(length)
    }

    fn write_host(&self, values: &[f32], host: &mut StandInBuffer, offset: usize) {
        let range = offset..offset + values.len();
        self.written(host, range.clone())[range].copy_from_slice(values);
    }

    fn read_host(&self, host: &StandInBuffer, offset: usize, values: &mut [f32]) {
        values.copy_from_slice(&self.seen(host)[offset..offset + values.len()]);
    }

    fn stream(&self) -> usize {
        self.schedule().stream()
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
