//! Copies on the processor: done when they are queued, so every event is done.

use super::{CpuBuffer, CpuDevice};
use crate::device::{Copies, CopyRange, Device};
use crate::error::Error;

impl Copies for CpuDevice {
    type Host = CpuBuffer;
    type Stream = ();
    type Event = ();

    fn allocate_host(&self, length: usize) -> CpuBuffer {
        self.allocate(length)
    }

    fn write_host(&self, values: &[f32], host: &mut CpuBuffer, offset: usize) {
        self.upload(values, host, offset);
    }

    fn read_host(&self, host: &CpuBuffer, offset: usize, values: &mut [f32]) {
        self.download(host, offset, values);
    }

    fn stream(&self) {}

    fn copy_to_host_async(&self, (): &(), source: &CpuBuffer, target: &mut CpuBuffer, range: CopyRange) {
        let CopyRange { device_offset, host_offset, length } = range;
        target[host_offset..][..length].copy_from_slice(&source[device_offset..][..length]);
    }

    fn copy_to_device_async(&self, (): &(), source: &CpuBuffer, target: &mut CpuBuffer, range: CopyRange) {
        let CopyRange { device_offset, host_offset, length } = range;
        target[device_offset..][..length].copy_from_slice(&source[host_offset..][..length]);
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
