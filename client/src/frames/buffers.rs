//! Buffers that frames are made in: kept and used again, for fresh memory costs more than what is copied into it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

/// How much is kept that nobody uses, in bytes: what a few large writes under way at a time take.
const IDLE_BYTES_MAX: usize = 64 << 20;
/// The largest that are kept, in bytes.
const KEPT_BYTES_MAX: usize = 2 << 20;

/// Buffers that nobody uses.
#[derive(Debug, Default)]
struct Idle {
    buffers: Vec<Vec<u8>>,
    /// What they take.
    bytes: usize,
}

/// Buffers for whoever comes next. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buffers(Arc<Mutex<Idle>>);

/// What was written into a buffer, which goes back when nobody reads it any more.
struct Lent {
    bytes: Vec<u8>,
    from: Buffers,
}

impl Buffers {
    /// An empty buffer with room for so many bytes at least.
    pub(crate) fn take(&self, bytes: usize) -> Vec<u8> {
        let mut buffer = {
            let mut idle = self.lock();
            let buffer = idle.buffers.pop().unwrap_or_default();
            idle.bytes -= buffer.capacity();
            buffer
        };
        buffer.reserve(bytes);
        buffer
    }

    fn lock(&self) -> MutexGuard<'_, Idle> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner) // nothing panics between the two
    }

    /// What was written into one of them, for anybody to read.
    pub(crate) fn share(&self, bytes: Vec<u8>) -> Bytes {
        Bytes::from_owner(Lent { bytes, from: self.clone() })
    }

    /// A buffer is not used any more.
    pub(crate) fn put(&self, mut bytes: Vec<u8>) {
        bytes.clear();
        let mut idle = self.lock();
        if bytes.capacity() <= KEPT_BYTES_MAX.min(IDLE_BYTES_MAX - idle.bytes) {
            idle.bytes += bytes.capacity();
            idle.buffers.push(bytes);
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

    #[test]
    fn what_is_kept_is_bounded_in_bytes_and_small_ones_are_all_kept() {
        let kept = |buffers: &Buffers| buffers.lock().buffers.len();
        let (small, large) = (Buffers::default(), Buffers::default());
        (0..100).for_each(|_| small.put(Vec::with_capacity(1 << 10)));
        (0..100).for_each(|_| large.put(Vec::with_capacity(1 << 20)));
        assert_eq!((kept(&small), kept(&large)), (100, IDLE_BYTES_MAX >> 20));
        (0..100).for_each(|_| drop(large.take(0)));
        let idle = large.lock();
        assert_eq!((idle.buffers.len(), idle.bytes), (0, 0));
    }
}
