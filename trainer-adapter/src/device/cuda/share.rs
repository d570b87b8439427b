//! Memory that goes to other processes, and copies within the device.
#![allow(
    unsafe_code,
    reason = "copies over ranges that were checked, between memories that are kept until they are done"
)]

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::copies::{CudaEvent, CudaStream};
use super::kernel::{Argument, Kernel};
use super::mapping::{Mapping, OUT_OF_MEMORY};
use super::memory::{Allocation, Pinned};
use super::probe::{self, GpuUuid};
use super::under_way::Kept;
use super::{CudaBuffer, CudaDevice, CudaError};
use crate::device::copies::lies_in;
use crate::device::{Device, DeviceRange, Share};
use crate::error::Error;

const VALUE: usize = size_of::<f32>();
/// Values whose fingerprint one block of the device adds up.
const FINGERPRINT_RUN: usize = 1 << 16;

/// Memory of a GPU that another process has exported, mapped here.
#[derive(Debug)]
pub struct CudaImported {
    memory: Arc<Mapping>,
    length: usize,
}

fn refused(error: &CudaError) -> Error {
    Error::Share { reason: error.to_string() }
}

fn bytes_of(length: usize) -> Result<usize, Error> {
    let reason = || format!("{length} values have no address");
    length.checked_mul(VALUE).ok_or_else(|| Error::Share { reason: reason() })
}

/// Addresses of the values that a copy reads and writes, and how many bytes they are.
fn places((source, target): (u64, u64), range: DeviceRange) -> (u64, u64, usize) {
    let at = |address: u64, offset: usize| address + (VALUE * offset) as u64;
    (at(source, range.source_offset), at(target, range.target_offset), VALUE * range.length)
}

impl CudaDevice {
    /// Queues a copy out of a memory, given by its address and length, that is kept until it is done.
    fn copy_from(
        &self,
        stream: &CudaStream,
        (address, length, source): (u64, usize, Kept),
        target: &CudaBuffer,
        range: DeviceRange,
    ) -> CudaEvent {
        range.check(length, target.length);
        self.queued(stream, [source, Kept::of(&target.memory)], |stream| {
            let (source, target, bytes) = places((address, target.memory.address()), range);
            // SAFETY: the range was checked against both memories, which are kept.
            if bytes > 0 { unsafe { stream.on_device(source, target, bytes) } } else { Ok(()) }
        })
    }

    /// One sum a run. Whoever asks may have filled the device: then the sums go through memory of the host, and where none is to be
    /// had either that is no failure of the device.
    fn fingerprints(
        &self,
        buffer: &CudaBuffer,
        values: &Range<usize>,
        first: u64,
    ) -> Result<Vec<u64>, Error> {
        self.check()?;
        let stream = &self.queue.stream;
        let mut sums = vec![0_u64; values.len().div_ceil(FINGERPRINT_RUN)];
        let bytes = size_of_val(&sums[..]);
        let place = match Allocation::new(stream, bytes) {
            Ok(memory) => SumsPlace::Device(memory),
            Err(CudaError::Call { code: OUT_OF_MEMORY, .. }) => {
                SumsPlace::Host(Pinned::new(stream.context(), bytes).map_err(|error| refused(&error))?)
            }
            Err(error) => {
                let told = refused(&error);
                self.queue.attempt(|| Err::<(), _>(error)); // which is the device's end
                return self.check().and(Err(told));
            }
        };
        let source = buffer.memory.address() + (VALUE * values.start) as u64;
        let arguments = [
            Argument::Address(source),
            Argument::Length(values.len() as u64),
            Argument::Length(first),
            Argument::Count(FINGERPRINT_RUN as u32),
            Argument::Address(place.address()),
        ];
        // SAFETY: the range was checked by the caller; one sum a run.
        unsafe { self.queue.launch(Kernel::Fingerprint, [sums.len(), 1, 1], &arguments) };
        let came = match &place {
            SumsPlace::Device(memory) => {
                let bytes = bytemuck::cast_slice_mut(&mut sums);
                // SAFETY: the memory has as many bytes, and is freed by this stream.
                self.queue.attempt(|| unsafe { self.queue.take(memory.address(), bytes) })
            }
            SumsPlace::Host(memory) => self.queue.attempt(|| stream.wait()).map(|()| {
                // SAFETY: the memory has as many bytes, and the kernel that wrote them is done.
                unsafe { memory.place().copy_to_nonoverlapping(sums.as_mut_ptr().cast(), bytes) };
            }),
        };
        if came.is_none() {
            std::mem::forget(place); // a kernel of a device that has failed may write there yet
        }
        self.check().map(|()| sums)
    }
}

/// Where a kernel puts sums.
enum SumsPlace {
    Device(Allocation),
    Host(Pinned),
}

impl SumsPlace {
    fn address(&self) -> u64 {
        match self {
            SumsPlace::Device(memory) => memory.address(),
            SumsPlace::Host(memory) => memory.address(),
        }
    }
}

impl Share for CudaDevice {
    type Imported = CudaImported;

    fn identity(&self) -> String {
        self.gpu().uuid.to_string()
    }

    /// The GPU itself, and those that it may read of.
    fn reaches(&self, identity: &str) -> bool {
        let Ok(uuid) = identity.parse::<GpuUuid>() else { return false };
        let context = self.queue.stream.context();
        uuid == self.gpu().uuid || probe::reaches(context.driver(), context.device(), uuid).unwrap_or(false)
    }

    fn allocate_shared(&self, length: usize) -> Result<CudaBuffer, Error> {
        self.check()?;
        let bytes = bytes_of(length)?;
        let stream = &self.queue.stream;
        let mapping = Mapping::create(stream.context(), bytes).map_err(|error| refused(&error))?;
        let memory = Arc::new(Allocation::mapped(stream, mapping));
        let mut buffer = CudaBuffer { memory, length };
        self.clear(&mut buffer, 0, length);
        // Others may look at it as soon as it is exported, and know nothing of this stream.
        self.queue.attempt(|| stream.wait());
        self.check().map(|()| buffer)
    }

    fn export(&self, buffer: &CudaBuffer) -> Result<OwnedFd, Error> {
        let mapping = buffer.memory.mapping().ok_or_else(Error::not_shared)?;
        mapping.export().map_err(|error| refused(&error))
    }

    fn import(&self, memory: OwnedFd, length: usize) -> Result<CudaImported, Error> {
        let context = self.queue.stream.context();
        let mapping = Mapping::import(context, &memory, bytes_of(length)?);
        let memory = Arc::new(mapping.map_err(|error| refused(&error))?);
        Ok(CudaImported { memory, length })
    }

    fn copy_async(
        &self,
        stream: &CudaStream,
        source: &CudaBuffer,
        target: &mut CudaBuffer,
        range: DeviceRange,
    ) -> CudaEvent {
        let memory = (source.memory.address(), source.length, Kept::of(&source.memory));
        self.copy_from(stream, memory, target, range)
    }

    fn copy_imported_async(
        &self,
        stream: &CudaStream,
        source: &CudaImported,
        target: &mut CudaBuffer,
        range: DeviceRange,
    ) -> CudaEvent {
        let memory = (source.memory.address(), source.length, Kept::of(&source.memory));
        self.copy_from(stream, memory, target, range)
    }

    fn fingerprint(&self, buffer: &CudaBuffer, values: Range<usize>, first: u64) -> Result<u64, Error> {
        let lies = values.start <= values.end && lies_in(values.start, values.len(), buffer.length);
        assert!(lies, "the values of a fingerprint lie in their buffer");
        let sums = self.fingerprints(buffer, &values, first)?;
        Ok(sums.into_iter().fold(0, u64::wrapping_add))
    }
}
