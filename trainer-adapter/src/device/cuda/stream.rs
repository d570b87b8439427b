//! Streams and events: what the device is given, and in which order.
//!
//! Everything here queues work and returns; what has been given may still be reading and writing memory afterwards. So the
//! functions that name memory are unsafe, and their callers keep it alive: device memory by freeing it in a stream's order
//! ([`super::memory::Allocation`]), host memory by keeping it until the copy's event is done.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::sys::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING;
use cudarc::driver::sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING;
use cudarc::driver::sys::cudaError_enum::CUDA_ERROR_NOT_READY;
use cudarc::driver::sys::{CUevent_st, CUfunc_st, CUstream_st};

use super::CudaError;
use super::context::Context;
use super::driver::Handle;
use super::kernel::{Argument, THREADS};

/// A queue of the device.
#[derive(Debug)]
pub(super) struct Stream {
    context: Arc<Context>,
    stream: Handle<CUstream_st>,
}

#[allow(unsafe_code, reason = "calls of the driver")]
impl Stream {
    /// A stream of its own, that waits for none but whom it is told to.
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, CudaError> {
        let driver = context.bound()?;
        let mut stream = std::ptr::null_mut();
        // SAFETY: the driver writes one handle.
        let code = unsafe { (driver.stream_create)(&raw mut stream, CU_STREAM_NON_BLOCKING as u32) };
        driver.ok("cuStreamCreate", code)?;
        Ok(Self { context: Arc::clone(context), stream: Handle(stream) })
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(super) fn handle(&self) -> Handle<CUstream_st> {
        self.stream
    }

    /// Memory of arbitrary contents, for what comes later in this stream.
    pub(super) fn allocate(&self, bytes: usize) -> Result<u64, CudaError> {
        let driver = self.context.bound()?;
        let mut address = 0;
        // SAFETY: the driver writes one address.
        let code = unsafe { (driver.allocate)(&raw mut address, bytes, self.stream.0) };
        driver.ok("cuMemAllocAsync", code)?;
        Ok(address)
    }

    /// # Safety
    /// The memory is from `allocate`, and nobody but this stream's earlier work uses it.
    pub(super) unsafe fn free(&self, address: u64) -> Result<(), CudaError> {
        let driver = self.context.bound()?;
        // SAFETY: the caller's.
        driver.ok("cuMemFreeAsync", unsafe { (driver.free)(address, self.stream.0) })
    }

    /// # Safety
    /// Both lie in live memory until the copy is done. Host memory that is not pinned has been read on return.
    pub(super) unsafe fn to_device(
        &self,
        source: *const c_void,
        target: u64,
        bytes: usize,
    ) -> Result<(), CudaError> {
        let driver = self.context.bound()?;
        // SAFETY: the caller's.
        driver.ok("cuMemcpyHtoDAsync_v2", unsafe { (driver.to_device)(target, source, bytes, self.stream.0) })
    }

    /// # Safety
    /// Both lie in live memory until the copy is done, and nothing else touches the target until then.
    pub(super) unsafe fn to_host(
        &self,
        source: u64,
        target: *mut c_void,
        bytes: usize,
    ) -> Result<(), CudaError> {
        let driver = self.context.bound()?;
        // SAFETY: the caller's.
        driver.ok("cuMemcpyDtoHAsync_v2", unsafe { (driver.to_host)(target, source, bytes, self.stream.0) })
    }

    /// # Safety
    /// Both lie in live memory of the device that is freed by this stream or after it.
    pub(super) unsafe fn on_device(&self, source: u64, target: u64, bytes: usize) -> Result<(), CudaError> {
        let driver = self.context.bound()?;
        // SAFETY: the caller's.
        driver.ok("cuMemcpyDtoDAsync_v2", unsafe { (driver.on_device)(target, source, bytes, self.stream.0) })
    }

    /// Sets bytes to zero.
    ///
    /// # Safety
    /// They lie in live memory of the device that is freed by this stream or after it.
    pub(super) unsafe fn clear(&self, address: u64, bytes: usize) -> Result<(), CudaError> {
        let driver = self.context.bound()?;
        // SAFETY: the caller's.
        driver.ok("cuMemsetD8Async", unsafe { (driver.fill)(address, 0, bytes, self.stream.0) })
    }

    /// # Safety
    /// The arguments are those of the kernel, by number, kind and order, and what they name is live memory of the device that
    /// is freed by this stream or after it, large enough for what the kernel does with this grid.
    pub(super) unsafe fn launch(
        &self,
        function: Handle<CUfunc_st>,
        grid: [u32; 3],
        arguments: &[Argument],
    ) -> Result<(), CudaError> {
        let driver = self.context.bound()?;
        let mut values: Vec<u64> = arguments.iter().map(|argument| argument.bits()).collect();
        let mut places: Vec<*mut c_void> = values.iter_mut().map(|value| (&raw mut *value).cast()).collect();
        let (stream, none) = (self.stream.0, std::ptr::null_mut());
        let [x, y, z] = grid;
        // SAFETY: the driver copies each argument from its place before it returns; the rest is the caller's.
        let code = unsafe {
            (driver.launch)(function.0, x, y, z, THREADS, 1, 1, 0, stream, places.as_mut_ptr(), none)
        };
        driver.ok("cuLaunchKernel", code)
    }

    /// Waits until everything given so far is done.
    pub(super) fn wait(&self) -> Result<(), CudaError> {
        let driver = self.context.bound()?;
        // SAFETY: the stream lives as long as `self`.
        driver.ok("cuStreamSynchronize", unsafe { (driver.stream_wait)(self.stream.0) })
    }

    /// What is given from now on comes after the event.
    pub(super) fn come_after(&self, event: &Event) -> Result<(), CudaError> {
        let driver = self.context.bound()?;
        // SAFETY: both live for the call; the driver keeps what it needs of the event.
        driver.ok("cuStreamWaitEvent", unsafe { (driver.stream_after)(self.stream.0, event.event.0, 0) })
    }

    /// The end of everything given so far.
    pub(super) fn event(&self) -> Result<Event, CudaError> {
        let driver = self.context.bound()?;
        let mut event = std::ptr::null_mut();
        // SAFETY: the driver writes one handle.
        let code = unsafe { (driver.event_create)(&raw mut event, CU_EVENT_DISABLE_TIMING as u32) };
        driver.ok("cuEventCreate", code)?;
        let event = Event { context: Arc::clone(&self.context), event: Handle(event) };
        // SAFETY: both live for the call.
        driver.ok("cuEventRecord", unsafe { (driver.event_record)(event.event.0, self.stream.0) })?;
        Ok(event)
    }
}

impl Drop for Stream {
    #[allow(unsafe_code, reason = "a call of the driver")]
    fn drop(&mut self) {
        if let Ok(driver) = self.context.bound() {
            // SAFETY: nobody has the handle any more. The driver lets what was given come to its end.
            unsafe { (driver.stream_destroy)(self.stream.0) };
        }
    }
}

/// A place in a stream.
#[derive(Debug)]
pub(super) struct Event {
    context: Arc<Context>,
    event: Handle<CUevent_st>,
}

#[allow(unsafe_code, reason = "calls of the driver")]
impl Event {
    pub(super) fn is_done(&self) -> Result<bool, CudaError> {
        let driver = self.context.bound()?;
        // SAFETY: the event lives as long as `self`.
        let code = unsafe { (driver.event_query)(self.event.0) };
        if code == CUDA_ERROR_NOT_READY as u32 {
            return Ok(false);
        }
        driver.ok("cuEventQuery", code).map(|()| true)
    }

    pub(super) fn wait(&self) -> Result<(), CudaError> {
        let driver = self.context.bound()?;
        // SAFETY: the event lives as long as `self`.
        driver.ok("cuEventSynchronize", unsafe { (driver.event_wait)(self.event.0) })
    }
}

impl Drop for Event {
    #[allow(unsafe_code, reason = "a call of the driver")]
    fn drop(&mut self) {
        if let Ok(driver) = self.context.bound() {
            // SAFETY: nobody has the handle any more; the driver keeps what streams still need of it.
            unsafe { (driver.event_destroy)(self.event.0) };
        }
    }
}
