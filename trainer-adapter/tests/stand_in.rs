//! The suite on the stand-in for a GPU, and what becomes of ranks whose device fails.

#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod failing;
mod suite;

use forebay_trainer_adapter::{StandInDevice, StandInOptions};

pub(crate) type TestDevice = StandInDevice;

/// How near a gradient is to the same gradient of calls of other shapes, relative to its largest value.
pub(crate) const SHAPES_AGREE: f64 = 1e-6;

/// How many updates are held against each other, bit by bit.
pub(crate) const STEPS: u64 = 20;

pub(crate) fn device(threads: usize) -> TestDevice {
    StandInDevice::new(StandInOptions { threads, ..StandInOptions::default() })
}
