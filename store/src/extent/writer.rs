//! Writes values into one extent.
//!
//! Values are gathered, with their padding and trailers, and handed to the kernel in one call when the batch is whole:
//! a batch of 64 samples takes one call, no page of the mapping is faulted in or made writable again, and a checksum is
//! computed once, while the bytes are in the cache. Two cases go through the mapping instead, because they measured
//! faster: pages that are known to be mapped and writable (a recycled extent of a store that never syncs), and a batch
//! too small for the call to pay.

use std::sync::Arc;

use super::file::Extent;
use super::layout::{HEADER_BYTES, TRAILER_BYTES, Trailer, ValueOwner};
use super::view::View;
use crate::error::{Cause, Result};

/// Values that are expected to die together, and so share extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Lifetime {
    /// Values of rows of a policy version.
    Version(u64),
    /// Fragments of partial cells of a policy version: dead as soon as the cell is closed.
    Fragments(u64),
    /// Values that many rows share.
    Shared,
    /// Values that outlived their extent.
    Moved,
}

/// Gathered bytes are handed to the kernel when there are this many, so that a large batch stays in the cache.
const GATHERED_BYTES_MAX: usize = 1 << 20;

/// How values get into their extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Path {
    /// Each through the mapping.
    Mapped,
    /// Gathered, then in one call when they are at least so many bytes, else through the mapping.
    Gathered { call_bytes_min: usize },
}

/// One open extent.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(super) extent: Arc<Extent>,
    pub(super) lifetime: Lifetime,
    path: Path,
    /// Where the next value may begin.
    next: usize,
    /// Bytes that are not in the extent yet, and where they belong. Empty, and somebody else's, while nobody writes.
    pub(super) gathered: Vec<u8>,
    gathered_from: usize,
    /// Something was written since the last flush.
    written: bool,
}

impl Writer {
    pub(super) fn new(extent: Arc<Extent>, lifetime: Lifetime, path: Path, gathered: Vec<u8>) -> Self {
        let next = HEADER_BYTES;
        Writer { extent, lifetime, path, next, gathered, gathered_from: next, written: false }
    }

    fn place(&self, length: usize, align: usize) -> (usize, usize) {
        let start = self.next.next_multiple_of(align);
        (start, (start + length).next_multiple_of(8))
    }

    pub(super) fn fits(&self, length: usize, align: usize) -> bool {
        self.place(length, align).1 + TRAILER_BYTES <= self.extent.capacity()
    }

    /// Writes a value that fits, made of `parts` in a row. It can be read after [`flush`](Self::flush).
    pub(super) fn write(&mut self, parts: &[&[u8]], align: usize, owner: ValueOwner) -> Result<View> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let (start, end) = self.place(length, align);
        let mapped = self.path == Path::Mapped;
        let mut crc = 0;
        if mapped {
            let mut at = start;
            for part in parts {
                self.extent.file().store(at, part);
                crc = crc32c::crc32c_append(crc, part);
                at += part.len();
            }
        } else {
            self.gather_up_to(start);
            for part in parts {
                self.gathered.extend_from_slice(part);
                crc = crc32c::crc32c_append(crc, part);
            }
            self.gather_up_to(end);
        }
        let (number, generation) = (self.extent.number(), self.extent.generation());
        let trailer = Trailer { length: length as u32, crc32c: crc, owner, generation }.encode(number);
        if mapped {
            self.extent.file().store(start + length, &[0; 8][..end - start - length]);
            self.extent.file().store(end, &trailer);
        } else {
            self.gathered.extend_from_slice(&trailer);
        }
        (self.next, self.written) = (end + TRAILER_BYTES, true);
        if self.gathered.len() >= GATHERED_BYTES_MAX {
            self.flush()?;
        }
        Ok(View::located(length as u32, number, generation, start as u32))
    }

    fn gather_up_to(&mut self, offset: usize) {
        if self.gathered.is_empty() {
            self.gathered_from = offset;
        }
        self.gathered.resize(offset - self.gathered_from, 0);
    }

    /// Brings everything that was written into the extent.
    pub(super) fn flush(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.written) {
            return Ok(());
        }
        let file = self.extent.file();
        let outcome = match self.path {
            Path::Gathered { call_bytes_min } if self.gathered.len() >= call_bytes_min => {
                file.write_at(self.gathered_from, &self.gathered)
            }
            _ => {
                file.store(self.gathered_from, &self.gathered);
                file.stored();
                Ok(())
            }
        };
        self.gathered.clear();
        outcome.map_err(|e| Cause::io("write to", file.path.clone(), e).into())
    }

    /// Gives up what was written since the last flush. Nothing names it; the extent goes on behind it.
    pub(super) fn discard(&mut self) {
        self.gathered.clear();
        self.written = false;
    }

    /// Ends the extent's writing. Gives the buffer to be used again.
    pub(super) fn seal(self) -> Vec<u8> {
        self.extent.seal(self.next);
        self.gathered
    }
}
