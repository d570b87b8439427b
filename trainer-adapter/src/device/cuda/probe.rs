//! Which GPUs there are.
//!
//! A GPU is known by its UUID: ordinals differ from process to process (`CUDA_VISIBLE_DEVICES`). The ordinal of this process
//! is said beside it and is used for nothing but the call that names the device.

use std::ffi::{CStr, c_char, c_int};
use std::fmt;
use std::str::FromStr;

use cudarc::driver::sys::CUdevice_attribute_enum::{
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
};
use cudarc::driver::sys::cudaError_enum::{CUDA_ERROR_NO_DEVICE, CUDA_SUCCESS};

use super::driver::Driver;
use super::{CudaError, CudaLibraries};

/// A GPU's identity: the same in every process, whatever it sees of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GpuUuid(pub [u8; 16]);

impl fmt::Display for GpuUuid {
    /// As `nvidia-smi -L` prints it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("GPU")?;
        for (index, byte) in self.0.iter().enumerate() {
            let dash = if matches!(index, 0 | 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(formatter, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for GpuUuid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl FromStr for GpuUuid {
    type Err = CudaError;

    fn from_str(text: &str) -> Result<Self, CudaError> {
        let refused = || CudaError::Identity { text: text.to_owned() };
        let digits: String = text.strip_prefix("GPU-").ok_or_else(refused)?.split('-').collect();
        if digits.len() != 32 || !digits.is_ascii() {
            return Err(refused());
        }
        let mut bytes = [0; 16];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * index..2 * index + 2], 16).map_err(|_| refused())?;
        }
        let found = Self(bytes);
        // Dashes in other places, signs and the like.
        if found.to_string().eq_ignore_ascii_case(text) { Ok(found) } else { Err(refused()) }
    }
}

/// A GPU that this process sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// Its identity.
    pub uuid: GpuUuid,
    /// Its number in this process, from 0.
    pub ordinal: usize,
    /// Its name.
    pub name: String,
    /// Its memory, in bytes.
    pub memory_bytes: usize,
    /// Major and minor compute capability: (9, 0) is Hopper.
    pub compute_capability: (u32, u32),
}

/// The GPUs that this process sees, by ordinal.
///
/// # Errors
/// [`CudaError::NoLibrary`] without a driver, [`CudaError::MissingSymbol`] if the library is none, [`CudaError::NoGpu`] if
/// the driver finds no GPU, [`CudaError::Call`] if it refuses to speak of one.
pub fn gpus(libraries: &CudaLibraries) -> Result<Vec<Gpu>, CudaError> {
    let driver = Driver::load(&libraries.driver)?;
    (0..count(&driver)?).map(|ordinal| gpu(&driver, ordinal).map(|(gpu, _)| gpu)).collect()
}

/// The GPU of that identity, or the first; with the driver's handle.
pub(super) fn find(driver: &Driver, uuid: Option<GpuUuid>) -> Result<(Gpu, c_int), CudaError> {
    let mut found = Vec::new();
    for ordinal in 0..count(driver)? {
        let (gpu, device) = gpu(driver, ordinal)?;
        if uuid.is_none_or(|uuid| uuid == gpu.uuid) {
            return Ok((gpu, device));
        }
        found.push(gpu.uuid.to_string());
    }
    Err(CudaError::UnknownGpu { wanted: uuid.map_or_else(|| "0".into(), |uuid| uuid.to_string()), found })
}

/// Whether a device may read memory of the GPU of that identity; it may not of one that this process does not see.
#[allow(unsafe_code, reason = "a call of the driver")]
pub(super) fn reaches(driver: &Driver, own: c_int, other: GpuUuid) -> Result<bool, CudaError> {
    let (_, other) = find(driver, Some(other))?;
    let mut reaches = 0;
    // SAFETY: both are handles of this driver; it writes one integer.
    let code = unsafe { (driver.device_reaches)(&raw mut reaches, own, other) };
    driver.ok("cuDeviceCanAccessPeer", code).map(|()| reaches != 0)
}

#[allow(unsafe_code, reason = "calls of the driver")]
fn count(driver: &Driver) -> Result<c_int, CudaError> {
    let no_gpu = |code| CudaError::NoGpu { code, name: driver.name_of(code) };
    // SAFETY: cuInit may be called by any thread, any number of times.
    let code = unsafe { (driver.init)(0) };
    if code != CUDA_SUCCESS as u32 {
        return Err(no_gpu(code));
    }
    let mut count = 0;
    // SAFETY: the driver writes one integer.
    driver.ok("cuDeviceGetCount", unsafe { (driver.device_count)(&raw mut count) })?;
    if count > 0 { Ok(count) } else { Err(no_gpu(CUDA_ERROR_NO_DEVICE as u32)) }
}

#[allow(unsafe_code, reason = "calls of the driver")]
fn gpu(driver: &Driver, ordinal: c_int) -> Result<(Gpu, c_int), CudaError> {
    let (mut device, mut memory_bytes, mut uuid, mut name) = (0, 0, [0_u8; 16], [0 as c_char; 256]);
    let (mut major, mut minor) = (0, 0);
    // SAFETY: each call writes one value of its type: a handle, 16 bytes, at most 256 characters with their end, a size, two
    // integers. `device` is a handle from the first on.
    unsafe {
        driver.ok("cuDeviceGet", (driver.device)(&raw mut device, ordinal))?;
        driver.ok("cuDeviceGetUuid_v2", (driver.device_uuid)((&raw mut uuid).cast(), device))?;
        driver.ok("cuDeviceGetName", (driver.device_name)(name.as_mut_ptr(), 256, device))?;
        driver.ok("cuDeviceTotalMem_v2", (driver.device_memory)(&raw mut memory_bytes, device))?;
        let call = "cuDeviceGetAttribute";
        driver.ok(call, (driver.device_attribute)(&raw mut major, MAJOR as u32, device))?;
        driver.ok(call, (driver.device_attribute)(&raw mut minor, MINOR as u32, device))?;
    }
    name[255] = 0;
    // SAFETY: the array ends with a 0.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
    let compute_capability = (major.unsigned_abs(), minor.unsigned_abs());
    let ordinal = ordinal.unsigned_abs() as usize;
    Ok((Gpu { uuid: GpuUuid(uuid), ordinal, name, memory_bytes, compute_capability }, device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_reads_as_it_was_printed_and_nothing_else_does() {
        let uuid = GpuUuid(std::array::from_fn(|index| (index * 17) as u8));
        assert_eq!(uuid.to_string(), "GPU-00112233-4455-6677-8899-aabbccddeeff");
        assert_eq!(uuid.to_string().parse(), Ok(uuid));
        for text in [
            "",
            "GPU-",
            "0",
            "GPU-00112233-4455-6677-8899-aabbccddeef",
            "GPU-0011223344556677-8899-aabbccddeeff",
            "GPU-+0112233-4455-6677-8899-aabbccddeeff",
            "GPU-é0112233-4455-6677-8899-aabbccddeef",
        ] {
            assert!(matches!(text.parse::<GpuUuid>(), Err(CudaError::Identity { .. })), "{text}");
        }
    }
}
