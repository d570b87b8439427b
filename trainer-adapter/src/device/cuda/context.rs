//! A GPU's primary context: what other libraries of the process (PyTorch) use too.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use cudarc::driver::sys::CUmemPool_attribute_enum::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
use cudarc::driver::sys::CUpointer_attribute_enum::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
use cudarc::driver::sys::{
    CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE, CU_MEMHOSTREGISTER_READ_ONLY, CUctx_st,
};

use super::driver::{Driver, Handle};
use super::probe::{self, Gpu, GpuUuid};
use super::{CudaError, CudaLibraries};

/// A retained primary context. Every call binds it to the calling thread first.
#[derive(Debug)]
pub(super) struct Context {
    driver: Driver,
    device: c_int,
    context: Handle<CUctx_st>,
}

impl Context {
    /// The context of the GPU of that identity, or of the first.
    #[allow(unsafe_code, reason = "calls of the driver")]
    pub(super) fn open(
        libraries: &CudaLibraries,
        uuid: Option<GpuUuid>,
    ) -> Result<(Arc<Self>, Gpu), CudaError> {
        let driver = Driver::load(&libraries.driver)?;
        let (gpu, device) = probe::find(&driver, uuid)?;
        let mut context = std::ptr::null_mut();
        // SAFETY: `device` is a handle of this driver; it writes one handle.
        let code = unsafe { (driver.context_retain)(&raw mut context, device) };
        driver.ok("cuDevicePrimaryCtxRetain", code)?;
        let this = Arc::new(Self { driver, device, context: Handle(context) });
        this.keep_freed_memory()?;
        Ok((this, gpu))
    }

    /// Freed memory stays with the pool: otherwise it goes back to the system whenever somebody waits for the device.
    #[allow(unsafe_code, reason = "calls of the driver")]
    fn keep_freed_memory(&self) -> Result<(), CudaError> {
        let driver = self.bound()?;
        let (mut pool, mut threshold) = (std::ptr::null_mut(), u64::MAX);
        // SAFETY: the driver writes a handle of the pool, then reads the 64 bits that this attribute has.
        unsafe {
            driver.ok("cuDeviceGetDefaultMemPool", (driver.device_pool)(&raw mut pool, self.device))?;
            let attribute = CU_MEMPOOL_ATTR_RELEASE_THRESHOLD as u32;
            let code = (driver.pool_set)(pool, attribute, (&raw mut threshold).cast());
            driver.ok("cuMemPoolSetAttribute", code)
        }
    }

    /// The driver, with this context bound to the calling thread.
    #[allow(unsafe_code, reason = "a call of the driver")]
    pub(super) fn bound(&self) -> Result<&Driver, CudaError> {
        // SAFETY: the context is retained until `self` is dropped.
        self.driver.ok("cuCtxSetCurrent", unsafe { (self.driver.context_bind)(self.context.0) })?;
        Ok(&self.driver)
    }

    /// The driver's handle of the device.
    pub(super) fn device(&self) -> c_int {
        self.device
    }

    pub(super) fn driver(&self) -> &Driver {
        &self.driver
    }

    /// What the driver says of the device, by the number of the question.
    #[allow(unsafe_code, reason = "a call of the driver")]
    pub(super) fn attribute(&self, attribute: u32) -> Result<c_int, CudaError> {
        let mut value = 0;
        // SAFETY: the driver writes one integer; `device` is a handle of it.
        let code = unsafe { (self.driver.device_attribute)(&raw mut value, attribute, self.device) };
        self.driver.ok("cuDeviceGetAttribute", code).map(|()| value)
    }

    /// Pinned memory, of arbitrary contents. Never write-combined: the processor reads it.
    #[allow(unsafe_code, reason = "a call of the driver")]
    pub(super) fn allocate_host(&self, bytes: usize) -> Result<Handle<u8>, CudaError> {
        let driver = self.bound()?;
        let mut place: *mut c_void = std::ptr::null_mut();
        // SAFETY: the driver writes one pointer.
        let code = unsafe { (driver.allocate_host)(&raw mut place, bytes, CU_MEMHOSTALLOC_PORTABLE) };
        driver.ok("cuMemHostAlloc", code)?;
        Ok(Handle(place.cast()))
    }

    /// # Safety
    /// The memory is from [`Self::allocate_host`], and neither processor nor device uses it any more.
    #[allow(unsafe_code, reason = "a call of the driver")]
    pub(super) unsafe fn free_host(&self, place: Handle<u8>) -> Result<(), CudaError> {
        let driver = self.bound()?;
        // SAFETY: the caller's.
        driver.ok("cuMemFreeHost", unsafe { (driver.free_host)(place.0.cast()) })
    }

    /// Pins memory of somebody else's; to be read alone where it is not writable.
    ///
    /// # Safety
    /// So many bytes are mapped there until [`Self::unpin_host`].
    #[allow(unsafe_code, reason = "a call of the driver")]
    pub(super) unsafe fn pin_host(
        &self,
        place: *mut u8,
        bytes: usize,
        is_writable: bool,
    ) -> Result<(), CudaError> {
        let driver = self.bound()?;
        let read_alone = if is_writable { 0 } else { CU_MEMHOSTREGISTER_READ_ONLY };
        // SAFETY: the caller's.
        let code =
            unsafe { (driver.pin_host)(place.cast(), bytes, CU_MEMHOSTREGISTER_PORTABLE | read_alone) };
        driver.ok("cuMemHostRegister", code)
    }

    /// # Safety
    /// The memory was pinned by [`Self::pin_host`], and the device does not use it any more.
    #[allow(unsafe_code, reason = "a call of the driver")]
    pub(super) unsafe fn unpin_host(&self, place: *mut u8) -> Result<(), CudaError> {
        let driver = self.bound()?;
        // SAFETY: the caller's.
        driver.ok("cuMemHostUnregister", unsafe { (driver.unpin_host)(place.cast()) })
    }

    /// Whether the driver knows this host memory: then copies from it happen later, by the device.
    #[allow(unsafe_code, reason = "a call of the driver")]
    pub(super) fn is_pinned(&self, place: *const c_void) -> Result<bool, CudaError> {
        let driver = self.bound()?;
        let mut kind = 0_u32;
        let attribute = CU_POINTER_ATTRIBUTE_MEMORY_TYPE as u32;
        // SAFETY: the driver looks the address up without reading there, and writes 32 bits if it knows it.
        Ok(unsafe { (driver.pointer_attribute)((&raw mut kind).cast(), attribute, place as u64) } == 0)
    }
}

impl Drop for Context {
    #[allow(unsafe_code, reason = "a call of the driver")]
    fn drop(&mut self) {
        // SAFETY: retained once when `self` was made. A refusal changes nothing that could be mended here.
        unsafe { (self.driver.context_release)(self.device) };
    }
}
