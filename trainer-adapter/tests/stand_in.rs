//! The suite on the stand-in for a GPU.

mod suite;

use forebay_trainer_adapter::{StandInDevice, StandInOptions};

pub(crate) type TestDevice = StandInDevice;

pub(crate) fn device(threads: usize) -> TestDevice {
    StandInDevice::new(StandInOptions { threads, ..StandInOptions::default() })
}
