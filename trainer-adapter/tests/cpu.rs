//! The suite on the processor.

mod suite;

use forebay_trainer_adapter::CpuDevice;

pub(crate) type TestDevice = CpuDevice;

/// How near a gradient is to the same gradient of calls of other shapes, relative to its largest value.
pub(crate) const SHAPES_AGREE: f64 = 1e-6;

/// How many updates are held against each other, bit by bit.
pub(crate) const STEPS: u64 = 20;

pub(crate) fn device(threads: usize) -> TestDevice {
    CpuDevice::new(threads)
}
