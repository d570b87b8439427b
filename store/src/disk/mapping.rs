//! Shared bytes: a mapped file, or the memory that stands for one on a simulated disk.
//!
//! Rules
//! 1. The bytes live as long as the `Mapping`; whoever hands out a pointer into them keeps it alive.
//! 2. [`Mapping::write`] may run beside reads and writes of *other* ranges. The extent writer is the only caller, owns
//!    its file for life and never writes a range twice.
//! 3. [`Mapping::stable`] is for ranges that will not be written again.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::ptr::NonNull;
use std::sync::Arc;

use memmap2::{Advice, MmapOptions, MmapRaw, UncheckedAdvice};

use super::memory::Memory;
use crate::copy::{StoreFence, copy_summed};

/// From here on a value goes past the cache: it is read when its row is trained on, or by nobody.
const PAST_CACHE_BYTES_MIN: usize = 1 << 10;

/// Whoever takes the stores into a mapping in place of memory: the simulated disk, where each is a point of failure.
pub(super) trait StoreTarget: Send + Sync {
    /// Puts `bytes` at `offset` of the mapped memory, or a part of them, or nothing.
    fn store(&self, offset: usize, bytes: &[u8]);
}

/// Bytes shared with other threads, and possibly with other processes.
pub struct Mapping {
    start: NonNull<u8>,
    length: usize,
    // Keeps the bytes at `start` in place.
    backing: Backing,
}

enum Backing {
    File { map: MmapRaw },
    Memory { memory: Memory },
    Simulated { _memory: Arc<Memory>, target: AssertUnwindSafe<Box<dyn StoreTarget>> },
}

#[allow(unsafe_code, reason = "plain bytes; rules 2 and 3 of the module head keep every access apart")]
// SAFETY: a `Mapping` is an address range without thread affinity; concurrent use follows the rules above.
unsafe impl Send for Mapping {}
#[allow(unsafe_code, reason = "as for Send")]
// SAFETY: as for `Send`.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a file, shared. `writable` asks for write access too.
    pub(super) fn file(file: &std::fs::File, length: usize, writable: bool) -> std::io::Result<Self> {
        super::fault::name_faults();
        let mut options = MmapOptions::new();
        options.len(length);
        let map = if writable { options.map_raw(file)? } else { options.map_raw_read_only(file)? };
        let start =
            NonNull::new(map.as_mut_ptr()).ok_or_else(|| std::io::Error::other("mapped at address zero"))?;
        Ok(Mapping { start, length, backing: Backing::File { map } })
    }

    /// Zeroed memory that stands for a mapped file.
    pub(crate) fn memory(length: usize) -> Self {
        let memory = Memory::zeroed(length);
        Mapping { start: memory.start(), length, backing: Backing::Memory { memory } }
    }

    /// The first `length` bytes of memory that stands for a file; `target` is given what is stored.
    pub(super) fn simulated(memory: Arc<Memory>, length: usize, target: Box<dyn StoreTarget>) -> Self {
        assert!(length <= memory.len(), "mapped beyond the memory");
        // A panic beside a store leaves some bytes unwritten, as a crash would.
        let backing = Backing::Simulated { _memory: memory.clone(), target: AssertUnwindSafe(target) };
        Mapping { start: memory.start(), length, backing }
    }

    /// No bytes at all: what stands for a file that a crash left too short to map.
    pub(crate) fn empty() -> Self {
        Mapping { length: 0, ..Mapping::memory(1) }
    }

    /// Asks the kernel for large pages.
    pub(super) fn advise_large_pages(&self) {
        if let Backing::File { map } = &self.backing
            && let Err(error) = map.advise(Advice::HugePage)
        {
            tracing::debug!(%error, "a file is mapped in small pages");
        }
    }

    /// Lets go of the pages that are mapped, which stay in the kernel's memory: the next store maps a large one anew.
    ///
    /// A sync leaves what it wrote protected. A store into a large page that is protected makes the kernel map 512 small ones in
    /// its place, each with a fault of its own; a store into one that is not mapped maps it whole.
    pub(crate) fn let_go_of_pages(&self) {
        let Backing::File { map } = &self.backing else { return };
        #[allow(unsafe_code, reason = "the advice is unsafe for private memory alone")]
        // SAFETY: the mapping is shared and of a file: what was stored is the file's, and is there again with the next access.
        let outcome = unsafe { map.unchecked_advise(UncheckedAdvice::DontNeed) };
        if let Err(error) = outcome {
            tracing::debug!(%error, "the pages of a file stay mapped as they are");
        }
    }

    /// How many bytes are mapped.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether no byte is mapped.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Panics
    /// When the range does not lie in the mapping: the caller reserved it wrongly.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        self.check(offset, bytes.len());
        match &self.backing {
            Backing::File { .. } => {}
            Backing::Memory { memory } => return memory.write(offset, bytes),
            Backing::Simulated { target, .. } => return target.store(offset, bytes),
        }
        #[allow(unsafe_code, reason = "a store into shared memory")]
        // SAFETY: the range was just checked to lie inside the mapping, which lives as long as `self`; rule 2 says that
        // no one else reads or writes this range now, and `bytes` cannot overlap it, for nobody holds a reference to a
        // range that is still being written.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr().add(offset), bytes.len());
        }
    }

    /// As [`write`](Self::write), and adds `bytes` to a crc32c on their one way through the processor. Others may look
    /// at them once `fence` has ordered the stores.
    pub(crate) fn write_summed(&self, offset: usize, bytes: &[u8], crc: u32, fence: &StoreFence) -> u32 {
        if !matches!(self.backing, Backing::File { .. }) {
            self.write(offset, bytes); // one store, whatever its length
            return crate::checksum::crc32c_append(crc, bytes);
        }
        self.check(offset, bytes.len());
        #[allow(unsafe_code, reason = "stores into shared memory")]
        // SAFETY: as for `write`. Nobody looks at the range before the record that names it, and whoever makes that has the
        // stores ordered first; so has whoever ends the call that made them.
        unsafe {
            copy_summed(bytes, self.start.as_ptr().add(offset), crc, PAST_CACHE_BYTES_MIN, fence)
        }
    }

    fn check(&self, offset: usize, length: usize) {
        let inside = offset.checked_add(length).is_some_and(|end| end <= self.length);
        assert!(inside, "write outside the mapping");
    }

    /// The bytes of a range that will not be written again (rule 3); `None` when it does not lie in the mapping.
    pub(crate) fn stable(&self, offset: usize, length: usize) -> Option<&[u8]> {
        if offset.checked_add(length)? > self.length {
            return None;
        }
        #[allow(unsafe_code, reason = "a view of shared memory that has stopped changing")]
        // SAFETY: the range lies inside the mapping, lives as long as `self`, and by rule 3 nobody writes it any more:
        // values are written once by the extent's only writer, before the record that names them.
        Some(unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(offset), length) })
    }

    /// The address of `offset`, for Arrow buffers that keep the mapping alive themselves.
    pub(crate) fn address(&self, offset: usize) -> NonNull<u8> {
        assert!(offset <= self.length, "address outside the mapping");
        #[allow(unsafe_code, reason = "pointer arithmetic inside one mapping")]
        // SAFETY: `offset` is at most the mapping's length, so the result stays within (or one past) the allocation.
        unsafe {
            self.start.add(offset)
        }
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mapping({} bytes)", self.length)
    }
}
