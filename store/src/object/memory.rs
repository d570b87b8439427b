//! The memory that objects lie in: a mapped segment of the host tier, or heap.
//!
//! Rules
//! 1. The bytes live as long as the `Memory`.
//! 2. A range is written only by the one [`Filling`](super::Filling), or the one copy from another tier, whose extent holds
//!    it, and no two writes of overlapping ranges run at a time: a filling takes a range before it writes there, or has a device
//!    write there.
//! 3. From the commit on, until the extent is given back, nobody writes the range any more. [`Memory::stable`] is for ranges
//!    of which this is true, and which no other process was given to write.
//! 4. [`Memory::read`] copies, and makes no reference to the bytes; what another process does to them meanwhile is seen or
//!    not, and no more than that.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io;
use std::ptr::NonNull;

use memmap2::{Advice, MmapOptions, MmapRaw};

use crate::copy::{StoreFence, copy_summed};
use crate::disk::name_faults;
use crate::sync::Mutex;

/// From here on a write goes past the cache.
const PAST_CACHE_BYTES_MIN: usize = 64 << 10;
/// How many bytes are looked at by a copy of them.
const PIECE_BYTES: usize = 16 << 10;

/// Pages are mapped in blocks of so many bytes, as large extents begin.
const BLOCK_BYTES: usize = 2 << 20;

/// Bytes at a fixed address.
pub(super) struct Memory {
    start: NonNull<u8>,
    length: usize,
    /// Blocks of which all pages are known to be mapped.
    populated: Mutex<BTreeSet<usize>>,
    is_writable: bool,
    // Keeps the bytes at `start` in place.
    backing: Backing,
}

enum Backing {
    Segment { map: MmapRaw },
    Heap { _words: Vec<u64> },
}

#[allow(unsafe_code, reason = "plain bytes; the rules of the module head keep every access apart")]
// SAFETY: an address range without thread affinity; concurrent use follows the rules above.
unsafe impl Send for Memory {}
#[allow(unsafe_code, reason = "as for Send")]
// SAFETY: as for `Send`.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps a file, shared and writable.
    pub(super) fn mapped(file: &File, length: usize) -> io::Result<Self> {
        name_faults();
        let map = MmapOptions::new().len(length).map_raw(file)?;
        if let Err(error) = map.advise(Advice::HugePage) {
            tracing::debug!(%error, "a segment is mapped in small pages");
        }
        let start =
            NonNull::new(map.as_mut_ptr()).ok_or_else(|| io::Error::other("mapped at address zero"))?;
        let populated = Mutex::default();
        Ok(Memory { start, length, populated, is_writable: true, backing: Backing::Segment { map } })
    }

    /// Maps a file of another process's, whole: to be written, or to be read alone. No forked child has it.
    pub(super) fn of_another(file: &File, writable: bool) -> io::Result<Self> {
        name_faults();
        let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        let mut options = MmapOptions::new();
        let map = match writable {
            true => options.len(length).map_raw(file)?,
            false => options.len(length).map_raw_read_only(file)?,
        };
        map.advise(Advice::DontFork)?;
        let start =
            NonNull::new(map.as_mut_ptr()).ok_or_else(|| io::Error::other("mapped at address zero"))?;
        let populated = Mutex::default();
        Ok(Memory { start, length, populated, is_writable: writable, backing: Backing::Segment { map } })
    }

    /// Has the pages of a large range mapped that are not yet, to be written: all by one call, for one at a time is a fault each.
    pub(super) fn populate(&self, offset: usize, length: usize) {
        let Backing::Segment { map } = &self.backing else { return };
        self.check(offset, length);
        if length < BLOCK_BYTES / 2 {
            return;
        }
        let blocks = offset / BLOCK_BYTES..(offset + length).div_ceil(BLOCK_BYTES);
        let mut populated = self.populated.lock();
        let unknown: Vec<usize> = blocks.filter(|block| !populated.contains(block)).collect();
        for run in unknown.chunk_by(|one, next| one + 1 == *next) {
            let (start, end) = (run[0] * BLOCK_BYTES, (run[run.len() - 1] + 1) * BLOCK_BYTES);
            let end = end.min(self.length);
            match map.advise_range(Advice::PopulateWrite, start, end - start) {
                Ok(()) => populated.extend(run),
                // They are mapped when they are written, as ever.
                Err(error) => tracing::debug!(%error, "the pages of a segment are not mapped at once"),
            }
        }
    }

    /// How many bytes there are.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Where they begin, for who copies by itself.
    pub(super) fn place(&self) -> NonNull<u8> {
        self.start
    }

    /// Whether they may be written.
    pub(super) fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Where they begin.
    pub(super) fn address(&self) -> usize {
        self.start.as_ptr().addr()
    }

    /// Zeroed memory of the process itself; `None` when there is none.
    pub(super) fn heap(length: usize) -> Option<Self> {
        let mut words: Vec<u64> = Vec::new();
        let count = length.div_ceil(8).max(1);
        words.try_reserve_exact(count).ok()?;
        words.resize(count, 0);
        let start = NonNull::from(words.as_mut_slice()).cast();
        let (populated, backing) = (Mutex::default(), Backing::Heap { _words: words });
        Some(Memory { start, length, populated, is_writable: true, backing })
    }

    fn check(&self, offset: usize, length: usize) {
        let inside = offset.checked_add(length).is_some_and(|end| end <= self.length);
        assert!(inside, "{length} bytes at {offset} lie outside of {} bytes of memory", self.length);
    }

    /// Copies `bytes` to `offset` and adds them to a crc32c (rule 2).
    ///
    /// # Panics
    /// When the range does not lie inside.
    pub(super) fn write_summed(&self, offset: usize, bytes: &[u8], crc: u32) -> u32 {
        self.check(offset, bytes.len());
        let fence = StoreFence::default();
        #[allow(unsafe_code, reason = "stores into shared memory")]
        // SAFETY: the range was just checked to lie inside; rule 2 keeps all others away from it, so `bytes` cannot overlap
        // it either, for references are given only to ranges that are not written any more. The stores are ordered when this returns.
        unsafe {
            copy_summed(bytes, self.start.as_ptr().add(offset), crc, PAST_CACHE_BYTES_MIN, &fence)
        }
    }

    /// Fills `buffer` from `offset` on (rule 4).
    ///
    /// # Panics
    /// When the range does not lie inside.
    pub(super) fn read(&self, offset: usize, buffer: &mut [u8]) {
        self.check(offset, buffer.len());
        #[allow(unsafe_code, reason = "loads from shared memory")]
        // SAFETY: the range was just checked; no reference to it is made, and the buffer is the caller's own.
        unsafe {
            std::ptr::copy_nonoverlapping(self.start.as_ptr().add(offset), buffer.as_mut_ptr(), buffer.len());
        }
    }

    /// The crc32c of a range, going on from another, taken of copies of its pieces (rule 4).
    pub(super) fn sum(&self, offset: usize, length: usize, mut crc: u32) -> u32 {
        let mut piece = [0; PIECE_BYTES];
        let mut at = offset;
        while at < offset + length {
            let piece = &mut piece[..PIECE_BYTES.min(offset + length - at)];
            self.read(at, piece);
            crc = crate::checksum::crc32c_append(crc, piece);
            at += piece.len();
        }
        crc
    }

    /// The bytes of a range that is not written any more (rule 3).
    ///
    /// # Panics
    /// When the range does not lie inside.
    pub(super) fn stable(&self, offset: usize, length: usize) -> &[u8] {
        self.check(offset, length);
        #[allow(unsafe_code, reason = "a view of shared memory that has stopped changing")]
        // SAFETY: the range lies inside and lives as long as `self`. The caller holds a lease on a committed version, so its
        // extent is not given back, and by rule 3 nobody writes it; other processes were given no writable descriptor.
        unsafe {
            std::slice::from_raw_parts(self.start.as_ptr().add(offset), length)
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} bytes)", self.length)
    }
}
