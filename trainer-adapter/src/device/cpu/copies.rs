//! Copies on the processor: done when they are queued, so every event is done.

use std::convert::Infallible;
use std::ops::Range;

use super::{CpuBuffer, CpuDevice};
use crate::device::copies::{check_sums, sums_of};
use crate::device::{Copies, CopyRange, Device, ForeignMemory};
use crate::error::Error;

impl Copies for CpuDevice {
    type Host = CpuBuffer;
    type Stream = ();
    type Event = ();
    /// Copies are made by the processor, which pins nothing.
    type Pinned = Infallible;

    fn allocate_host(&self, length: usize) -> Result<CpuBuffer, Error> {
        CpuBuffer::try_zeros(length)
    }

    fn host_length(&self, host: &CpuBuffer) -> usize {
        host.len()
    }

    fn write_host(&self, values: &[f32], host: &mut CpuBuffer, offset: usize) {
        self.upload(values, host, offset);
    }

    fn read_host(&self, host: &CpuBuffer, offset: usize, values: &mut [f32]) {
        self.download(host, offset, values);
    }

    fn stream(&self) -> Result<(), Error> {
        Ok(())
    }

    fn copy_to_host_async(&self, (): &(), source: &CpuBuffer, target: &mut CpuBuffer, range: CopyRange) {
        let CopyRange { device_offset, host_offset, length } = range;
        target[host_offset..][..length].copy_from_slice(&source[device_offset..][..length]);
    }

    fn copy_to_device_async(&self, (): &(), source: &CpuBuffer, target: &mut CpuBuffer, range: CopyRange) {
        let CopyRange { device_offset, host_offset, length } = range;
        target[device_offset..][..length].copy_from_slice(&source[host_offset..][..length]);
    }

    fn pin(&self, _memory: ForeignMemory) -> Result<Infallible, Error> {
        Err(Error::Pin { reason: "the processor copies itself".into() })
    }

    fn copy_to_pinned_async(&self, (): &(), _source: &CpuBuffer, target: &Infallible, _range: CopyRange) {
        match *target {}
    }

    fn copy_from_pinned_async(
        &self,
        (): &(),
        source: &Infallible,
        _target: &mut CpuBuffer,
        _range: CopyRange,
    ) {
        match *source {}
    }

    fn sum_up_async(
        &self,
        (): &(),
        source: &CpuBuffer,
        (values, run): (Range<usize>, usize),
        target: &mut CpuBuffer,
        offset: usize,
    ) {
        check_sums(&values, run, source.len(), (offset, target.len()));
        target[offset..].iter_mut().zip(sums_of(&source[values], run)).for_each(|(place, sum)| *place = sum);
    }

    fn stream_after(&self, (): &(), (): &()) {}

    fn computed(&self) {}

    fn compute_after(&self, (): &()) -> Result<(), Error> {
        Ok(())
    }

    fn is_done(&self, (): &()) -> Result<bool, Error> {
        Ok(true)
    }

    fn wait(&self, (): &()) -> Result<(), Error> {
        Ok(())
    }
}
