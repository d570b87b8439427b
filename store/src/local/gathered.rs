//! Values that lie behind each other, gathered so that the kernel is called seldom.

use std::io;

use super::lent::ALIGN_BYTES;

/// Bytes that are gathered before the kernel is called: what the cache holds.
const GATHERED_BYTES_MAX: usize = 256 << 10;

/// What was put behind each other and is not with the kernel yet.
#[derive(Debug)]
pub(super) struct Gathered {
    /// Where the next value begins.
    next: usize,
    bytes: Vec<u8>,
    from: usize,
    end: usize,
}

impl Gathered {
    /// Nothing yet; values lie from `first` on, and end before `end`.
    pub(super) fn new(first: usize, end: usize) -> Self {
        Gathered { next: first, bytes: Vec::new(), from: first, end }
    }

    /// Puts a value behind the others, with room for `behind` bytes after it; says where, or none where there is no room.
    pub(super) fn place(&mut self, value: &[u8], behind: usize) -> Option<u32> {
        let end = (self.next + value.len()).next_multiple_of(8) + behind;
        if end > self.end {
            return None;
        }
        let offset = self.next as u32;
        self.bytes.extend_from_slice(value);
        self.next = end.next_multiple_of(ALIGN_BYTES);
        self.bytes.resize(self.next - self.from, 0);
        Some(offset)
    }

    /// Whether it is time to hand them to the kernel.
    pub(super) fn is_much(&self) -> bool {
        self.bytes.len() >= GATHERED_BYTES_MAX
    }

    /// Whether a range is with the kernel.
    pub(super) fn is_flushed(&self, offset: u32, length: u32) -> bool {
        (offset as usize).checked_add(length as usize).is_some_and(|end| end <= self.from)
    }

    /// Hands everything to the kernel by `write`, which is told where it belongs.
    pub(super) fn flush(&mut self, write: impl FnOnce(u64, &[u8]) -> io::Result<()>) -> io::Result<()> {
        let length = self.bytes.len().min(self.end - self.from);
        let written = write(self.from as u64, &self.bytes[..length]);
        self.bytes.clear();
        self.from = self.next;
        written
    }
}
