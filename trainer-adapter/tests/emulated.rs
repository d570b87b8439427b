//! The CUDA device over the emulation of CUDA: the suite, each operation, its copies, and its failures.

mod emulated_only;
mod emulation;
mod operations;
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod pinned;
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod published;
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod summed;

/// All but `learning` and `early`: hundreds of passes, which the emulation takes minutes for and a GPU (`cuda.rs`) does not.
#[path = "suite"]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod suite {
    pub(crate) mod common;

    mod generation;
    mod golden;
    mod gradients;
    mod losses;
    mod parallel;
    mod payloads;
    mod refusals;
    mod suspend;
    mod training;
}

use std::sync::OnceLock;

use forebay_trainer_adapter::CudaDevice;
use forebay_trainer_adapter::device::cuda::ProductType;

pub(crate) type TestDevice = CudaDevice;

/// How near a gradient is to the same gradient of calls of other shapes, relative to its largest value.
pub(crate) const SHAPES_AGREE: f64 = 1e-6;

/// How many updates are held against each other, bit by bit: few, for each takes the emulation a second.
pub(crate) const STEPS: u64 = 4;

pub(crate) fn device(_threads: usize) -> TestDevice {
    static DEVICE: OnceLock<CudaDevice> = OnceLock::new();
    DEVICE.get_or_init(|| emulation::emulated(ProductType::Float32)).clone()
}
