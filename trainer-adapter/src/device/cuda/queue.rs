//! What a device handle shares: the stream that computes, the kernels, cuBLAS, and the first failure.
//!
//! Work is given to one stream, whichever thread asks, so that it happens in the order in which it was asked for. A call of
//! [`crate::Device`] cannot say that the device has failed: the first failure is kept, nothing is given to the device
//! afterwards, reading gives not-a-number, and [`crate::Device::check`] says what happened.

use std::ffi::{CString, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{CUfunc_st, CUmod_st};

use super::blas::{Blas, Product};
use super::context::Context;
use super::driver::Handle;
use super::kernel::{Argument, Kernel, NAMES, SOURCE};
use super::memory::Allocation;
use super::stream::Stream;
use super::under_way::UnderWay;
use super::{CudaError, CudaLibraries, Gpu, GpuUuid, compiler};

/// Shared by the clones of a device. Dropped from the top: handles before the stream, that before the context.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) under_way: UnderWay,
    blas: Blas,
    kernels: Kernels,
    launches: AtomicU64,
    fault: Mutex<Option<CudaError>>,
    pub(super) gpu: Gpu,
    pub(super) stream: Arc<Stream>,
}

impl Queue {
    pub(super) fn open(libraries: &CudaLibraries, uuid: Option<GpuUuid>) -> Result<Self, CudaError> {
        let (context, gpu) = Context::open(libraries, uuid)?;
        let stream = Arc::new(Stream::new(&context)?);
        let image = compiler::compile(libraries, SOURCE, gpu.compute_capability)?;
        let kernels = Kernels::load(&context, &image)?;
        let blas = Blas::new(libraries, &stream)?;
        let (launches, fault, under_way) = (AtomicU64::new(0), Mutex::default(), UnderWay::default());
        Ok(Self { under_way, blas, kernels, launches, fault, gpu, stream })
    }

    fn fault(&self) -> MutexGuard<'_, Option<CudaError>> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first failure.
    pub(super) fn check(&self) -> Result<(), CudaError> {
        self.fault().clone().map_or(Ok(()), Err)
    }

    /// Does `work` unless the device has failed, and keeps its failure. The first failure in both cases.
    pub(super) fn outcome<T>(&self, work: impl FnOnce() -> Result<T, CudaError>) -> Result<T, CudaError> {
        self.check()?;
        work().map_err(|error| self.fault().get_or_insert(error).clone())
    }

    /// The same for who cannot say that the device has failed: `None` then.
    pub(super) fn attempt<T>(&self, work: impl FnOnce() -> Result<T, CudaError>) -> Option<T> {
        self.outcome(work).ok()
    }

    pub(super) fn launches(&self) -> u64 {
        self.launches.load(Ordering::Relaxed)
    }

    /// Memory of arbitrary contents.
    pub(super) fn allocate(&self, bytes: usize) -> Allocation {
        self.allocate_values(bytes, 1)
    }

    /// The same for so many values of so many bytes each.
    pub(super) fn allocate_values(&self, values: usize, value_bytes: usize) -> Allocation {
        let made = self.attempt(|| {
            let bytes = values.checked_mul(value_bytes).ok_or(CudaError::NoAddress { values })?;
            Allocation::new(&self.stream, bytes)
        });
        made.unwrap_or_else(|| Allocation::none(&self.stream))
    }

    /// Memory with a copy of some values, for arguments that are longer than one.
    #[allow(unsafe_code, reason = "a copy")]
    pub(super) fn table<T: bytemuck::NoUninit>(&self, values: &[T]) -> Allocation {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let table = self.allocate(bytes.len());
        self.attempt(|| {
            // SAFETY: the table has room for them and is freed by this stream; see `give` for the source.
            unsafe { self.give(bytes, table.address()) }
        });
        table
    }

    /// Copies bytes to the device. They have been read on return.
    ///
    /// # Safety
    /// The target has room and is freed by this stream or after it.
    #[allow(unsafe_code, reason = "a copy")]
    pub(super) unsafe fn give(&self, bytes: &[u8], target: u64) -> Result<(), CudaError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let source: *const c_void = bytes.as_ptr().cast();
        // SAFETY: memory that the driver does not know is read before it returns; memory that it does, before we do.
        unsafe { self.stream.to_device(source, target, bytes.len())? };
        if self.stream.context().is_pinned(source)? { self.stream.wait() } else { Ok(()) }
    }

    /// Copies bytes from the device, which have come on return.
    ///
    /// # Safety
    /// The source is so long, and freed by this stream or after it.
    #[allow(unsafe_code, reason = "a copy")]
    pub(super) unsafe fn take(&self, source: u64, bytes: &mut [u8]) -> Result<(), CudaError> {
        if bytes.is_empty() {
            return Ok(());
        }
        // SAFETY: the target is borrowed until the wait below is over. A wait that fails means a broken context, which copies
        // no more.
        unsafe { self.stream.to_host(source, bytes.as_mut_ptr().cast(), bytes.len())? };
        self.stream.wait()
    }

    /// Gives a kernel to the device; none for an empty grid.
    ///
    /// # Safety
    /// As [`Stream::launch`], or the device has failed.
    #[allow(unsafe_code, reason = "a launch")]
    pub(super) unsafe fn launch(&self, kernel: Kernel, grid: [usize; 3], arguments: &[Argument]) {
        if grid.contains(&0) {
            return;
        }
        // SAFETY: the caller's.
        self.attempt(|| unsafe { self.launch_in(&self.stream, kernel, grid, arguments) });
    }

    /// Gives a kernel to one stream of the device.
    ///
    /// # Safety
    /// As [`Stream::launch`].
    #[allow(unsafe_code, reason = "a launch")]
    pub(super) unsafe fn launch_in(
        &self,
        stream: &Stream,
        kernel: Kernel,
        grid: [usize; 3],
        arguments: &[Argument],
    ) -> Result<(), CudaError> {
        let grid = grid.map(|blocks| u32::try_from(blocks).expect("a grid is below 2^32 blocks"));
        self.launches.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's.
        unsafe { stream.launch(self.kernels.function(kernel), grid, arguments) }
    }

    /// # Safety
    /// As [`Blas::multiply`], or the device has failed.
    #[allow(unsafe_code, reason = "a product")]
    pub(super) unsafe fn multiply(&self, product: &Product) {
        if product.rows == 0 || product.columns == 0 {
            return;
        }
        self.attempt(|| {
            self.launches.fetch_add(1, Ordering::Relaxed);
            self.stream.context().bound()?;
            // SAFETY: the caller's.
            unsafe { self.blas.multiply(product) }
        });
    }
}

/// The loaded kernels.
#[derive(Debug)]
struct Kernels {
    context: Arc<Context>,
    module: Handle<CUmod_st>,
    functions: Vec<Handle<CUfunc_st>>,
}

#[allow(unsafe_code, reason = "calls of the driver")]
impl Kernels {
    fn load(context: &Arc<Context>, image: &[u8]) -> Result<Self, CudaError> {
        let driver = context.bound()?;
        let mut module = std::ptr::null_mut();
        // SAFETY: the image is a whole one, from the compiler; the driver copies it and writes one handle.
        let code = unsafe { (driver.module_load)(&raw mut module, image.as_ptr().cast()) };
        driver.ok("cuModuleLoadData", code)?;
        let mut this = Self { context: Arc::clone(context), module: Handle(module), functions: Vec::new() };
        for name in NAMES {
            let name = CString::new(*name).expect("names of kernels have no zeros");
            let mut function = std::ptr::null_mut();
            // SAFETY: the driver writes one handle, which lives as long as the module.
            let code = unsafe { (driver.module_function)(&raw mut function, module, name.as_ptr()) };
            driver.ok("cuModuleGetFunction", code)?;
            this.functions.push(Handle(function));
        }
        Ok(this)
    }

    fn function(&self, kernel: Kernel) -> Handle<CUfunc_st> {
        self.functions[kernel as usize]
    }
}

impl Drop for Kernels {
    #[allow(unsafe_code, reason = "a call of the driver")]
    fn drop(&mut self) {
        if let Ok(driver) = self.context.bound() {
            // SAFETY: nobody has the module any more; the driver waits for launches under way.
            unsafe { (driver.module_unload)(self.module.0) };
        }
    }
}
