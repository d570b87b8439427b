//! The driver's functions, and its handles.

use std::ffi::{CStr, c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUmemAccessDesc, CUmemAllocationProp,
    CUmemoryPool, CUmodule, CUstream, CUuuid,
};

use super::CudaError;
use super::library::{Wanted, functions};

const DRIVER: Wanted =
    Wanted { library: "libcuda", help: "it comes with NVIDIA's driver; in a container it has to be mounted" };

functions! {
    /// `libcuda`. Codes are plain numbers: a newer driver may have more of them than an enumeration here.
    Driver of DRIVER {
        init = "cuInit" (c_uint);
        error_name = "cuGetErrorName" (u32, *mut *const c_char);
        device_count = "cuDeviceGetCount" (*mut c_int);
        device = "cuDeviceGet" (*mut CUdevice, c_int);
        device_uuid = "cuDeviceGetUuid_v2" (*mut CUuuid, CUdevice);
        device_name = "cuDeviceGetName" (*mut c_char, c_int, CUdevice);
        device_memory = "cuDeviceTotalMem_v2" (*mut usize, CUdevice);
        device_attribute = "cuDeviceGetAttribute" (*mut c_int, u32, CUdevice);
        device_pool = "cuDeviceGetDefaultMemPool" (*mut CUmemoryPool, CUdevice);
        pool_set = "cuMemPoolSetAttribute" (CUmemoryPool, u32, *mut c_void);
        context_retain = "cuDevicePrimaryCtxRetain" (*mut CUcontext, CUdevice);
        context_release = "cuDevicePrimaryCtxRelease_v2" (CUdevice);
        context_bind = "cuCtxSetCurrent" (CUcontext);
        module_load = "cuModuleLoadData" (*mut CUmodule, *const c_void);
        module_unload = "cuModuleUnload" (CUmodule);
        module_function = "cuModuleGetFunction" (*mut CUfunction, CUmodule, *const c_char);
        allocate = "cuMemAllocAsync" (*mut CUdeviceptr, usize, CUstream);
        free = "cuMemFreeAsync" (CUdeviceptr, CUstream);
        allocate_host = "cuMemHostAlloc" (*mut *mut c_void, usize, c_uint);
        free_host = "cuMemFreeHost" (*mut c_void);
        pin_host = "cuMemHostRegister_v2" (*mut c_void, usize, c_uint);
        unpin_host = "cuMemHostUnregister" (*mut c_void);
        memory_granularity = "cuMemGetAllocationGranularity" (*mut usize, *const CUmemAllocationProp, u32);
        memory_create = "cuMemCreate" (*mut u64, usize, *const CUmemAllocationProp, c_ulonglong);
        memory_release = "cuMemRelease" (u64);
        memory_export = "cuMemExportToShareableHandle" (*mut c_void, u64, u32, c_ulonglong);
        memory_import = "cuMemImportFromShareableHandle" (*mut u64, *mut c_void, u32);
        address_reserve = "cuMemAddressReserve" (*mut CUdeviceptr, usize, usize, CUdeviceptr, c_ulonglong);
        address_free = "cuMemAddressFree" (CUdeviceptr, usize);
        memory_map = "cuMemMap" (CUdeviceptr, usize, usize, u64, c_ulonglong);
        memory_unmap = "cuMemUnmap" (CUdeviceptr, usize);
        memory_access = "cuMemSetAccess" (CUdeviceptr, usize, *const CUmemAccessDesc, usize);
        device_reaches = "cuDeviceCanAccessPeer" (*mut c_int, CUdevice, CUdevice);
        pointer_attribute = "cuPointerGetAttribute" (*mut c_void, u32, CUdeviceptr);
        to_device = "cuMemcpyHtoDAsync_v2" (CUdeviceptr, *const c_void, usize, CUstream);
        to_host = "cuMemcpyDtoHAsync_v2" (*mut c_void, CUdeviceptr, usize, CUstream);
        on_device = "cuMemcpyDtoDAsync_v2" (CUdeviceptr, CUdeviceptr, usize, CUstream);
        fill = "cuMemsetD8Async" (CUdeviceptr, c_uchar, usize, CUstream);
        stream_create = "cuStreamCreate" (*mut CUstream, c_uint);
        stream_destroy = "cuStreamDestroy_v2" (CUstream);
        stream_wait = "cuStreamSynchronize" (CUstream);
        stream_after = "cuStreamWaitEvent" (CUstream, CUevent, c_uint);
        event_create = "cuEventCreate" (*mut CUevent, c_uint);
        event_record = "cuEventRecord" (CUevent, CUstream);
        event_query = "cuEventQuery" (CUevent);
        event_wait = "cuEventSynchronize" (CUevent);
        event_destroy = "cuEventDestroy_v2" (CUevent);
        launch = "cuLaunchKernel" (
            CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, *mut *mut c_void,
            *mut *mut c_void
        );
    }
}

impl Driver {
    pub(super) fn ok(&self, call: &'static str, code: u32) -> Result<(), CudaError> {
        if code == 0 { Ok(()) } else { Err(self.refused(call, code)) }
    }

    pub(super) fn refused(&self, call: &'static str, code: u32) -> CudaError {
        CudaError::Call { call, code, name: self.name_of(code) }
    }

    #[allow(unsafe_code, reason = "a call of the driver")]
    pub(super) fn name_of(&self, code: u32) -> String {
        let mut name = std::ptr::null();
        // SAFETY: the driver writes a pointer to a constant text, or a null pointer for a code that it does not know.
        let known = unsafe { (self.error_name)(code, &raw mut name) };
        if known != 0 || name.is_null() {
            return "unknown".to_owned();
        }
        // SAFETY: not null, so one of the driver's constant texts.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }
}

/// A handle of the driver: a pointer that nothing here looks behind.
#[derive(Debug)]
pub(super) struct Handle<T>(pub(super) *mut T);

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<T> {}

// SAFETY: the driver's functions may be called with any handle by any thread, at the same time too (CUDA programming guide,
// driver API; cuBLAS handles are behind a lock of ours).
#[allow(unsafe_code, reason = "the driver's handles are pointers")]
unsafe impl<T> Send for Handle<T> {}
// SAFETY: as above.
#[allow(unsafe_code, reason = "the driver's handles are pointers")]
unsafe impl<T> Sync for Handle<T> {}
