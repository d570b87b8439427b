//! Bytes at a fixed address that several owners share: what stands for a file's pages on a simulated disk.
//!
//! A `Memory` never moves and never grows. Whoever writes into it is told apart in time from whoever reads the same range:
//! on the simulated disk by the lock of the file, elsewhere by the rules of [`Mapping`](super::Mapping).

use std::fmt;
use std::ptr::NonNull;

/// Zeroed bytes of a fixed size.
pub(super) struct Memory {
    start: NonNull<u8>,
    length: usize,
    // Keeps the bytes at `start` in place. A vector and not a box: moving a box says that nobody else points into it.
    _words: Vec<u64>,
}

#[allow(unsafe_code, reason = "plain bytes; every access is kept apart as the module head says")]
// SAFETY: an address range without thread affinity.
unsafe impl Send for Memory {}
#[allow(unsafe_code, reason = "as for Send")]
// SAFETY: as for `Send`; `write` and `bytes` say what their callers owe.
unsafe impl Sync for Memory {}

impl Memory {
    /// `length` zeros.
    pub(super) fn zeroed(length: usize) -> Self {
        let mut words = vec![0_u64; length.div_ceil(8).max(1)];
        let start = NonNull::from(words.as_mut_slice()).cast(); // of all: a pointer reaches what it was made of
        Memory { start, length, _words: words }
    }

    /// A copy of `bytes`, followed by zeros up to `length`.
    pub(super) fn holding(bytes: &[u8], length: usize) -> Self {
        let memory = Memory::zeroed(length.max(bytes.len()));
        memory.write(0, bytes);
        memory
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Copies `bytes` to `offset`. Nobody else may touch that range meanwhile.
    ///
    /// # Panics
    /// When the range does not lie inside.
    pub(super) fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset.checked_add(bytes.len()).is_some_and(|end| end <= self.length), "write outside");
        #[allow(unsafe_code, reason = "a store into shared memory")]
        // SAFETY: the range was just checked; the caller keeps others away from it, so `bytes` cannot overlap it.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr().add(offset), bytes.len());
        }
    }

    /// The first `length` bytes. Nobody may write them while the result lives.
    ///
    /// # Panics
    /// When there are fewer.
    pub(super) fn bytes(&self, length: usize) -> &[u8] {
        assert!(length <= self.length, "read outside");
        #[allow(unsafe_code, reason = "a view of shared memory that is not written meanwhile")]
        // SAFETY: the range lies inside the allocation, which lives as long as `self`; the caller keeps writers away.
        unsafe {
            std::slice::from_raw_parts(self.start.as_ptr(), length)
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} bytes)", self.length)
    }
}
