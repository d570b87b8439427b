//! The CUDA device: kernels of our own, compiled when the device is opened, and products by cuBLAS.
//!
//! Nothing of CUDA is linked or needed to build. [`CudaDevice::open`] finds the driver, NVRTC and cuBLAS at run time
//! ([`CudaLibraries`]) and says plainly which of them is missing; [`gpus`] says which GPUs there are.
//!
//! - Arithmetic is one queue (`queue`): operations of all threads happen in the order in which they were asked for.
//! - Sums have one order, fixed by shapes: no kernel adds with atomics. So the same seed gives the same bits on one GPU, as far
//!   as cuBLAS does.
//! - Attention keeps one number a row and head, and no matrix of weights: see `kernels/attention.cu`.
//! - A failure of the device is kept and told by [`crate::Device::check`]; nothing panics.
//!
//! The seam to the GPU is the C interface of the three libraries. The tests put an emulation there, one library that runs the
//! same kernel source on the processor and executes streams as late as it may, so everything here runs without a GPU.

mod arithmetic;
mod attention;
mod blas;
mod checksums;
mod compiler;
mod context;
mod copies;
mod decoding;
mod driver;
mod error;
mod flat;
mod kernel;
mod library;
mod mapping;
mod memory;
mod norms;
mod probe;
mod product;
mod queue;
mod rows;
mod share;
mod stream;
mod tokens;
mod under_way;
mod view;

use std::sync::Arc;

pub use compiler::compile;
pub use copies::{CudaEvent, CudaStream};
pub use error::CudaError;
pub use flat::Piece;
pub use kernel::{NAMES as KERNEL_NAMES, SOURCE as KERNEL_SOURCE};
pub use library::CudaLibraries;
pub use memory::{CudaBuffer, CudaHost, CudaPinned, CudaSums};
pub use probe::{Gpu, GpuUuid, gpus};
pub use product::CudaPrepared;
use queue::Queue;
pub use share::CudaImported;

/// What the factors of matrix products are rounded to; sums are f32 in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProductType {
    /// Not at all. The default.
    #[default]
    Float32,
    /// bfloat16: on tensor cores, at 8 bits of precision a factor.
    Bfloat16,
}

/// Which GPU, and how: plain data.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CudaOptions {
    /// The GPU. Default: the first that this process sees.
    pub uuid: Option<GpuUuid>,
    /// Factors of products. Default [`ProductType::Float32`].
    pub products: ProductType,
    /// Where the libraries are. Default their names; [`CudaLibraries::from_environment`] looks into `FOREBAY_CUDA_DIR` too.
    pub libraries: CudaLibraries,
}

/// A GPU of NVIDIA's, as a [`crate::Device`] with [`crate::Copies`].
///
/// ```
/// use forebay_trainer_adapter::device::cuda::{CudaDevice, CudaOptions};
///
/// match CudaDevice::open(&CudaOptions::default()) {
///     Ok(device) => println!("{}", device.gpu().name),
///     Err(error) => println!("no CUDA: {error}"),
/// }
/// ```
#[derive(Debug, Clone)]
pub struct CudaDevice {
    queue: Arc<Queue>,
    products: ProductType,
}

impl CudaDevice {
    /// Opens a GPU: loads the libraries, takes the GPU's primary context, compiles the kernels.
    ///
    /// # Errors
    /// [`CudaError::NoLibrary`] and [`CudaError::MissingSymbol`] name the library; [`CudaError::NoGpu`] without a GPU,
    /// [`CudaError::UnknownGpu`] without that GPU; [`CudaError::Compile`] if the kernels are refused; [`CudaError::Call`].
    pub fn open(options: &CudaOptions) -> Result<Self, CudaError> {
        let queue = Queue::open(&options.libraries, options.uuid)?;
        Ok(Self { queue: Arc::new(queue), products: options.products })
    }

    /// The GPU.
    pub fn gpu(&self) -> &Gpu {
        &self.queue.gpu
    }

    /// Kernels and products given to the GPU so far.
    pub fn launches(&self) -> u64 {
        self.queue.launches()
    }
}
