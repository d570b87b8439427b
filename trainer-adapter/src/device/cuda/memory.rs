//! Memory of the device and pinned memory of the host.
//!
//! Device memory is freed in the order of the stream that computes: whoever uses it in that stream may let go of it at once.
//! Copies in other streams keep it until they are done (`super::under_way`). Memory that can leave the process is unmapped when
//! the stream has come to its end. Pinned memory is never behind a reference: the
//! device may be reading or writing it.

use std::sync::Arc;

use super::CudaError;
use super::context::Context;
use super::driver::Handle;
use super::mapping::Mapping;
use super::stream::Stream;
use crate::device::ForeignMemory;

/// A run of bytes in the device's memory; of none, no memory at all.
#[derive(Debug)]
pub(super) struct Allocation {
    stream: Arc<Stream>,
    address: u64,
    /// Memory that can leave the process; the rest is from the driver's pool.
    mapping: Option<Mapping>,
}

impl Allocation {
    /// Arbitrary contents, there for what comes later in `stream`.
    pub(super) fn new(stream: &Arc<Stream>, bytes: usize) -> Result<Self, CudaError> {
        let address = if bytes == 0 { 0 } else { stream.allocate(bytes)? };
        Ok(Self { stream: Arc::clone(stream), address, mapping: None })
    }

    /// No memory: what stands in after the device has failed.
    pub(super) fn none(stream: &Arc<Stream>) -> Self {
        Self { stream: Arc::clone(stream), address: 0, mapping: None }
    }

    /// Memory that has a mapping of its own.
    pub(super) fn mapped(stream: &Arc<Stream>, mapping: Mapping) -> Self {
        Self { stream: Arc::clone(stream), address: mapping.address(), mapping: Some(mapping) }
    }

    /// What of it can leave the process.
    pub(super) fn mapping(&self) -> Option<&Mapping> {
        self.mapping.as_ref()
    }

    pub(super) fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for Allocation {
    #[allow(unsafe_code, reason = "a call of the driver")]
    fn drop(&mut self) {
        if self.mapping.is_some() {
            // Unmapping knows no order of streams. What else used it held `self`.
            let _ = self.stream.wait();
        } else if self.address != 0 {
            // SAFETY: from `allocate` of this stream, and `self` was the last who named it. If the driver refuses, the context
            // is broken and its memory is gone with it.
            let _ = unsafe { self.stream.free(self.address) };
        }
    }
}

/// A flat run of f32 in the device's memory.
#[derive(Debug)]
pub struct CudaBuffer {
    pub(super) memory: Arc<Allocation>,
    pub(super) length: usize,
}

/// 64-bit fixed-point sums in the device's memory.
#[derive(Debug)]
pub struct CudaSums {
    pub(super) memory: Allocation,
    pub(super) length: usize,
    /// `2^fraction_bits`.
    pub(super) unit: f64,
    /// Terms of this size and above are lost.
    pub(super) limit: f64,
}

/// Pinned memory, freed with the last who uses it.
#[derive(Debug)]
pub(super) struct Pinned {
    context: Arc<Context>,
    place: Handle<u8>,
}

impl Pinned {
    /// Arbitrary contents.
    pub(super) fn new(context: &Arc<Context>, bytes: usize) -> Result<Self, CudaError> {
        let place = if bytes == 0 { Handle(std::ptr::null_mut()) } else { context.allocate_host(bytes)? };
        Ok(Self { context: Arc::clone(context), place })
    }

    pub(super) fn place(&self) -> *mut u8 {
        self.place.0
    }

    /// Where the device reaches it: at the host's own address.
    pub(super) fn address(&self) -> u64 {
        self.place().addr() as u64
    }
}

impl Drop for Pinned {
    #[allow(unsafe_code, reason = "a call of the driver")]
    fn drop(&mut self) {
        if !self.place.0.is_null() {
            // SAFETY: from `allocate_host`; copies under way hold `self`, so none is.
            let _ = unsafe { self.context.free_host(self.place) };
        }
    }
}

/// Memory of somebody else's that is pinned, until the last who uses it lets go.
#[derive(Debug)]
pub(super) struct Registered {
    context: Arc<Context>,
    pub(super) memory: ForeignMemory,
}

impl Registered {
    #[allow(unsafe_code, reason = "a call of the driver")]
    pub(super) fn new(context: &Arc<Context>, memory: ForeignMemory) -> Result<Self, CudaError> {
        // SAFETY: mapped for as long as `memory` is, which goes after it is unpinned.
        unsafe { context.pin_host(memory.place(), memory.bytes(), memory.is_writable())? };
        Ok(Self { context: Arc::clone(context), memory })
    }
}

impl Drop for Registered {
    #[allow(unsafe_code, reason = "a call of the driver")]
    fn drop(&mut self) {
        // SAFETY: pinned when `self` was made; copies under way hold `self`, so none is. A refusal means a broken context.
        let _ = unsafe { self.context.unpin_host(self.memory.place()) };
    }
}

/// Memory of somebody else's, pinned for copies of a GPU.
#[derive(Debug, Clone)]
pub struct CudaPinned {
    pub(super) memory: Arc<Registered>,
}

/// A flat run of f32 in pinned host memory, that copies go to and from.
#[derive(Debug)]
pub struct CudaHost {
    pub(super) memory: Arc<Pinned>,
    pub(super) length: usize,
}
