//! The suite on the processor.

mod suite;

use forebay_trainer_adapter::CpuDevice;

pub(crate) type TestDevice = CpuDevice;

pub(crate) fn device(threads: usize) -> TestDevice {
    CpuDevice::new(threads)
}
