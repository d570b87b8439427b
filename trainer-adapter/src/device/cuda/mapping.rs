//! Memory of a GPU that has a descriptor: physical memory by itself (`cuMemCreate`), mapped at an address of its own.
//!
//! Memory of the driver's pools cannot leave the process. This can: its descriptor is passed on, imported by another process and
//! mapped there; the memory lives as long as anybody has it mapped or holds a descriptor.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use cudarc::driver::sys::CUdevice_attribute_enum::{
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED as DESCRIPTORS,
    CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED as MAPPING,
};
use cudarc::driver::sys::CUmemAccess_flags_enum::{
    CU_MEM_ACCESS_FLAGS_PROT_READ as READ, CU_MEM_ACCESS_FLAGS_PROT_READWRITE as READ_AND_WRITE,
};
use cudarc::driver::sys::CUmemAllocationGranularity_flags_enum::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
use cudarc::driver::sys::{
    CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType, CUmemAllocationProp,
    CUmemAllocationProp_st__bindgen_ty_1, CUmemAllocationType, CUmemLocation, CUmemLocationType,
};

use super::CudaError;
use super::context::Context;
use super::driver::Driver;

const DESCRIPTOR: CUmemAllocationHandleType =
    CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/// Physical memory and where it is mapped. Dropped in the reverse order of how it was made, however far that had come.
#[derive(Debug)]
pub(super) struct Mapping {
    context: Arc<Context>,
    handle: u64,
    /// 0 until it is reserved.
    address: u64,
    is_mapped: bool,
    bytes: usize,
}

impl Mapping {
    /// New memory of at least so many bytes, of arbitrary contents.
    #[allow(unsafe_code, reason = "a call of the driver")]
    pub(super) fn create(context: &Arc<Context>, bytes: usize) -> Result<Self, CudaError> {
        check_support(context)?;
        let (driver, properties) = (context.bound()?, properties(context.device()));
        let bytes = rounded(driver, &properties, bytes)?;
        let mut handle = 0;
        // SAFETY: the driver reads the properties and writes one handle.
        let code = unsafe { (driver.memory_create)(&raw mut handle, bytes, &raw const properties, 0) };
        driver.ok("cuMemCreate", code)?;
        Self::of(context, handle, bytes).mapped(&[READ_AND_WRITE])
    }

    /// The memory of a descriptor, of at least so many bytes; to be read.
    #[allow(unsafe_code, reason = "a call of the driver")]
    pub(super) fn import(
        context: &Arc<Context>,
        descriptor: &OwnedFd,
        bytes: usize,
    ) -> Result<Self, CudaError> {
        check_support(context)?;
        let driver = context.bound()?;
        let bytes = rounded(driver, &properties(context.device()), bytes)?;
        let (mut handle, number) = (0, descriptor.as_raw_fd() as usize as *mut c_void);
        // SAFETY: a descriptor is passed as a pointer's value; the driver makes one of its own of it and writes one handle.
        let code = unsafe { (driver.memory_import)(&raw mut handle, number, DESCRIPTOR.0) };
        driver.ok("cuMemImportFromShareableHandle", code)?;
        // Not every driver maps memory to be read alone. Nothing here writes it in either case.
        Self::of(context, handle, bytes).mapped(&[READ, READ_AND_WRITE])
    }

    fn of(context: &Arc<Context>, handle: u64, bytes: usize) -> Self {
        Self { context: Arc::clone(context), handle, address: 0, is_mapped: false, bytes }
    }

    /// Maps it at an address of its own, with the first access that the driver grants.
    #[allow(unsafe_code, reason = "calls of the driver")]
    fn mapped(mut self, accesses: &[CUmemAccess_flags]) -> Result<Self, CudaError> {
        let context = Arc::clone(&self.context);
        let driver = context.bound()?;
        // SAFETY: the driver writes one address, of a range that is nobody else's.
        let code = unsafe { (driver.address_reserve)(&raw mut self.address, self.bytes, 0, 0, 0) };
        driver.ok("cuMemAddressReserve", code)?;
        // SAFETY: the range was just reserved and nothing is mapped there; the handle is alive. Memory that is shorter is refused.
        let code = unsafe { (driver.memory_map)(self.address, self.bytes, 0, self.handle, 0) };
        driver.ok("cuMemMap", code)?;
        self.is_mapped = true;
        let mut granted = Ok(());
        for &flags in accesses {
            let access = CUmemAccessDesc { location: place(context.device()), flags };
            // SAFETY: the range is mapped; the driver reads one description.
            let code = unsafe { (driver.memory_access)(self.address, self.bytes, &raw const access, 1) };
            granted = driver.ok("cuMemSetAccess", code);
            if granted.is_ok() {
                break;
            }
        }
        granted.map(|()| self)
    }

    /// Where it begins.
    pub(super) fn address(&self) -> u64 {
        self.address
    }

    /// A descriptor for another process.
    #[allow(unsafe_code, reason = "a call of the driver")]
    pub(super) fn export(&self) -> Result<OwnedFd, CudaError> {
        let driver = self.context.bound()?;
        let mut descriptor: c_int = -1;
        let place: *mut c_void = (&raw mut descriptor).cast();
        // SAFETY: for this type of handle the driver writes one integer, a new descriptor.
        let code = unsafe { (driver.memory_export)(place, self.handle, DESCRIPTOR.0, 0) };
        driver.ok("cuMemExportToShareableHandle", code)?;
        // SAFETY: new, open, and nobody else's.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        // Not for programs that this process starts. Where the flag cannot be set, they have a descriptor that they do not know.
        let _ = rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::CLOEXEC);
        Ok(descriptor)
    }
}

impl Drop for Mapping {
    #[allow(unsafe_code, reason = "calls of the driver")]
    fn drop(&mut self) {
        let Ok(driver) = self.context.bound() else { return };
        // SAFETY: each step undoes one that was made, of the same range and handle; whoever drops has seen to it that no work of
        // the device still uses the memory. A refusal means a broken context, whose memory is gone with it.
        unsafe {
            if self.is_mapped {
                let _ = (driver.memory_unmap)(self.address, self.bytes);
            }
            if self.address != 0 {
                let _ = (driver.address_free)(self.address, self.bytes);
            }
            let _ = (driver.memory_release)(self.handle);
        }
    }
}

fn check_support(context: &Context) -> Result<(), CudaError> {
    for (attribute, missing) in
        [(MAPPING, "virtual memory management"), (DESCRIPTORS, "descriptors of its memory")]
    {
        if context.attribute(attribute as u32)? == 0 {
            return Err(CudaError::Unsupported { missing });
        }
    }
    Ok(())
}

fn place(device: c_int) -> CUmemLocation {
    CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device }
}

fn properties(device: c_int) -> CUmemAllocationProp {
    let flags = CUmemAllocationProp_st__bindgen_ty_1 {
        compressionType: 0,
        gpuDirectRDMACapable: 0,
        usage: 0,
        reserved: [0; 4],
    };
    CUmemAllocationProp {
        type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: DESCRIPTOR,
        location: place(device),
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: flags,
    }
}

/// Bytes as the driver deals them out.
#[allow(unsafe_code, reason = "a call of the driver")]
fn rounded(driver: &Driver, properties: &CUmemAllocationProp, bytes: usize) -> Result<usize, CudaError> {
    let mut granularity = 0;
    let option = CU_MEM_ALLOC_GRANULARITY_MINIMUM as u32;
    // SAFETY: the driver reads the properties and writes one size.
    let code = unsafe { (driver.memory_granularity)(&raw mut granularity, properties, option) };
    driver.ok("cuMemGetAllocationGranularity", code)?;
    let rounded = bytes.max(1).checked_next_multiple_of(granularity.max(1));
    rounded.ok_or_else(|| driver.refused("cuMemCreate", OUT_OF_MEMORY))
}

pub(super) const OUT_OF_MEMORY: u32 = 2;
