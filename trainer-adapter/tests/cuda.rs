//! The suite on a GPU, and how far a GPU is from the processor. Without one a single line says so, and nothing is run.

mod emulation;
mod operations;
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod published;
mod suite;
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod summed;

use std::sync::OnceLock;

use forebay_trainer_adapter::device::cuda::{CudaLibraries, CudaOptions, ProductType};
use forebay_trainer_adapter::{CpuDevice, CudaDevice};

pub(crate) type TestDevice = CudaDevice;

/// How near a gradient is to the same gradient of calls of other shapes, relative to its largest value. cuBLAS chooses by shape in
/// which order a product adds up; an H200 was seen 3.4e-6 apart.
pub(crate) const SHAPES_AGREE: f64 = 1e-5;

fn gpu(products: ProductType) -> CudaDevice {
    let libraries = CudaLibraries::from_environment();
    match CudaDevice::open(&CudaOptions { products, libraries, ..CudaOptions::default() }) {
        Ok(device) => device,
        Err(error) => emulation::skip(&format!("the suite was not run on a GPU: {error}")),
    }
}

/// How many updates are held against each other, bit by bit.
pub(crate) const STEPS: u64 = 20;

pub(crate) fn device(_threads: usize) -> TestDevice {
    static DEVICE: OnceLock<CudaDevice> = OnceLock::new();
    DEVICE.get_or_init(|| gpu(ProductType::Float32)).clone()
}

/// Every operation on random data, to 1e-4 of the largest value; products with bfloat16 factors to 2e-2.
#[test]
fn every_operation_agrees_with_the_processor() {
    for (products, tolerance) in [(ProductType::Float32, 1e-4), (ProductType::Bfloat16, 2e-2)] {
        let (cpu, cuda) = (CpuDevice::inline(), gpu(products));
        for ((name, on_cpu), (_, on_cuda)) in operations::all().into_iter().zip(operations::all()) {
            let error = suite::common::relative_error(&on_cuda(&cuda, 1), &on_cpu(&cpu, 1));
            assert!(error <= tolerance, "{name}, {products:?}: {error:.1e}");
        }
    }
}

/// FX-69
#[test]
fn sums_of_a_gpus_memory_are_those_of_the_definition() {
    summed::sums_are_those_of_the_definition(&gpu(ProductType::Float32));
}
