//! Host memory that other processes can map: what stands for a device's memory where the device is the processor.
//!
//! A memory file is mapped by its owner to be written, and then sealed: it keeps its size, and nobody else can ever write it,
//! whoever gets the descriptor. So the owner's view of it is memory like any other. Others map it to be read, and copy out of it
//! without making a reference, for its owner may be changing it.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, memfd_create,
};

const VALUE: usize = size_of::<f32>();

/// Memory of this process that others may read.
pub(crate) struct SharedMemory {
    file: File,
    map: MmapRaw,
    length: usize,
}

impl SharedMemory {
    /// Zeros.
    pub(crate) fn new(length: usize) -> io::Result<Self> {
        let bytes = length.checked_mul(VALUE).ok_or(io::ErrorKind::OutOfMemory)?.max(1);
        let file = memfd_create("forebay-device", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        // Reserved: what cannot be had is an error here, and no signal when somebody writes there.
        fallocate(&file, FallocateFlags::empty(), 0, bytes as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        let map = MmapOptions::new().len(bytes).map_raw(&file)?;
        fcntl_add_seals(&file, SealFlags::FUTURE_WRITE | SealFlags::SEAL)?;
        Ok(Self { file: file.into(), map, length })
    }

    /// A descriptor for another process.
    pub(crate) fn export(&self) -> io::Result<OwnedFd> {
        Ok(self.file.try_clone()?.into())
    }

    #[allow(unsafe_code, reason = "a view of mapped memory")]
    pub(super) fn values(&self) -> &[f32] {
        // SAFETY: so many values were mapped, page-aligned, and stay as long as `self`; every pattern of bits is an f32. The seal
        // lets nobody else write them, and `values_mut` borrows `self` exclusively.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast(), self.length) }
    }

    #[allow(unsafe_code, reason = "a view of mapped memory")]
    pub(super) fn values_mut(&mut self) -> &mut [f32] {
        // SAFETY: as for `values`. Other processes may be reading: what they see is theirs to judge.
        unsafe { std::slice::from_raw_parts_mut(self.map.as_mut_ptr().cast(), self.length) }
    }
}

impl fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedMemory({} values)", self.length)
    }
}

/// Memory of another process.
#[derive(Debug)]
pub(crate) struct ImportedMemory {
    map: MmapRaw,
    length: usize,
}

impl ImportedMemory {
    /// Maps what [`SharedMemory::export`] gave, in whatever process.
    pub(crate) fn open(memory: OwnedFd, length: usize) -> io::Result<Self> {
        let wrong = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
        let seals =
            fcntl_get_seals(&memory).map_err(|_| wrong("the descriptor is of no memory file".to_owned()))?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(wrong(
                "the memory file could be cut short while it is read: it is not sealed".to_owned(),
            ));
        }
        let bytes = length.checked_mul(VALUE).ok_or(io::ErrorKind::OutOfMemory)?.max(1);
        let file = File::from(memory);
        let has = file.metadata()?.len();
        if has < bytes as u64 {
            return Err(wrong(format!("the memory file has {has} bytes, {bytes} are meant")));
        }
        Ok(Self { map: MmapOptions::new().len(bytes).map_raw_read_only(&file)?, length })
    }

    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Copies values from `offset` on.
    ///
    /// # Panics
    /// If they do not lie in the memory.
    #[allow(unsafe_code, reason = "a copy out of memory that another process may be changing")]
    pub(crate) fn read(&self, offset: usize, values: &mut [f32]) {
        let inside = offset.checked_add(values.len()).is_some_and(|end| end <= self.length);
        assert!(inside, "values lie in imported memory");
        let first = self.map.as_ptr().wrapping_add(VALUE * offset);
        // SAFETY: the range was just checked, and the seal keeps the file as long as it was then; no reference to it is made, and
        // what was copied is the caller's own; every pattern of bits is an f32.
        unsafe {
            std::ptr::copy_nonoverlapping(first, values.as_mut_ptr().cast::<u8>(), size_of_val(values));
        };
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;

    #[test]
    fn what_is_shared_is_seen_by_others_and_written_by_none_of_them() {
        let mut memory = SharedMemory::new(1000).unwrap();
        let imported = ImportedMemory::open(memory.export().unwrap(), 1000).unwrap();
        memory.values_mut()[700] = 1.5;
        let mut seen = [0.0; 300];
        imported.read(700, &mut seen);
        assert_eq!((seen[0], seen[1], imported.length()), (1.5, 0.0, 1000));
        let file = File::from(memory.export().unwrap());
        assert!(MmapOptions::new().map_raw(&file).is_err(), "nobody maps it to be written");
        assert!(std::os::unix::fs::FileExt::write_at(&file, &[1], 0).is_err());
        assert!(file.set_len(10).is_err());
        assert_eq!(memory.values()[700], 1.5);
    }

    #[test]
    fn what_is_no_shared_memory_is_refused_with_what_is_wrong() {
        let short = SharedMemory::new(1000).unwrap();
        let unsealed = memfd_create("open", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        let (pipe, _end) = io::pipe().unwrap();
        let cases = [
            (short.export().unwrap(), "has 4000 bytes, 4004 are meant"),
            (unsealed, "not sealed"),
            (pipe.into(), "no memory file"),
        ];
        for (descriptor, expected) in cases {
            let error = ImportedMemory::open(descriptor, 1001).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(ImportedMemory::open(short.export().unwrap(), usize::MAX).is_err());
    }
}
