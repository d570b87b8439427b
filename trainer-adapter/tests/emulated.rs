//! The CUDA device over the emulation of CUDA: the suite, each operation, its copies, and its failures.

mod emulated_only;
mod emulation;
mod operations;
mod suite;

use std::sync::OnceLock;

use forebay_trainer_adapter::CudaDevice;
use forebay_trainer_adapter::device::cuda::ProductType;

pub(crate) type TestDevice = CudaDevice;

pub(crate) fn device(_threads: usize) -> TestDevice {
    static DEVICE: OnceLock<CudaDevice> = OnceLock::new();
    DEVICE.get_or_init(|| emulation::emulated(ProductType::Float32)).clone()
}
