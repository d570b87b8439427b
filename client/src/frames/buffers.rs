//! Buffers that frames are made in: kept and used again, for fresh memory costs more than what is copied into it.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// How many are kept that nobody uses.
const IDLE_MAX: usize = 32;
/// The largest that are kept, in bytes.
const KEPT_BYTES_MAX: usize = 2 << 20;

/// Buffers for whoever comes next. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buffers(Arc<Mutex<Vec<Vec<u8>>>>);

/// What was written into a buffer, which goes back when nobody reads it any more.
struct Lent {
    bytes: Vec<u8>,
    from: Buffers,
}

impl Buffers {
    /// An empty buffer with room for so many bytes at least.
    pub(crate) fn take(&self, bytes: usize) -> Vec<u8> {
        let mut buffer = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        buffer.reserve(bytes);
        buffer
    }

    /// What was written into one of them, for anybody to read.
    pub(crate) fn share(&self, bytes: Vec<u8>) -> Bytes {
        Bytes::from_owner(Lent { bytes, from: self.clone() })
    }

    /// A buffer is not used any more.
    pub(crate) fn put(&self, mut bytes: Vec<u8>) {
        bytes.clear();
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX && bytes.capacity() <= KEPT_BYTES_MAX {
            idle.push(bytes);
        }
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.from.put(std::mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_once_nobody_reads_it_and_very_large_ones_are_not_kept() {
        let buffers = Buffers::default();
        let mut first = buffers.take(100);
        first.extend_from_slice(b"first");
        let at = first.as_ptr();
        let (shared, part) = (buffers.share(first), b"irs");
        let kept = shared.slice(1..4);
        drop(shared);
        let other = buffers.take(100);
        assert_ne!(other.as_ptr(), at, "a part of it is read");
        assert_eq!(&*kept, part);
        drop(kept);
        let again = buffers.take(100);
        assert_eq!((again.as_ptr(), again.len()), (at, 0));
        buffers.put(Vec::with_capacity(KEPT_BYTES_MAX + 1));
        assert!(buffers.take(0).capacity() <= KEPT_BYTES_MAX);
    }
}
