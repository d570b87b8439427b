//! Writes values into one extent.
//!
//! There are two ways. Where the bytes of an extent lie in large pages of memory ([`DiskFile::map_to_fill`]), which is asked for
//! where that pays ([`outlook`](super::outlook)), each value is stored through the mapping: it moves once, from the caller's
//! memory to its place, past the cache if it is large, and its checksum is taken of what the cache holds then. A fault costs
//! one in 2 MiB there. Extents keep their mapping from generation to generation, and let go of its pages in between where a sync
//! has protected them: the kernel splits a large page that is protected when it is stored to.
//!
//! Elsewhere a store into the mapping pays for every 4 KiB. There values are gathered, with their padding and trailers,
//! and handed to the kernel in one call when the batch is whole, but for a batch too small for the call to pay. At
//! `synced` that is so everywhere: a few bytes between two syncs would have a whole large page written. There the bytes are
//! handed over in pieces, and each is on its way to the disk while the next is gathered and while the call is decided. What is large by
//! itself is not gathered: the kernel has it from where the caller has it.
//!
//! [`DiskFile::map_to_fill`]: crate::disk::DiskFile::map_to_fill

use std::io;
use std::sync::Arc;

use super::file::Extent;
use super::layout::{HEADER_BYTES, TRAILER_BYTES, Trailer, ValueOwner};
use super::view::View;
use crate::copy::StoreFence;
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
/// As many where a sync follows: while the disk takes one piece in, the next is gathered. Of 640 KiB in batches of 64 samples
/// pieces of 192 to 384 KiB were alike, smaller and larger ones slower.
const PIECE_BYTES: usize = 256 << 10;
/// Fewer bytes than this wait for the sync: getting them on their way costs more than it gains.
const BEGIN_BYTES_MIN: usize = 16 << 10;

/// How values get into their extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Path {
    /// Each through the mapping.
    Mapped,
    /// Gathered, then in one call when they are at least so many bytes, else through the mapping; a part that is long by itself
    /// in a call of its own. Where the caller is going to sync them, what a call hands over goes on to the disk.
    Gathered { call_bytes_min: usize, direct_bytes_min: usize, syncs_at_once: bool },
}

/// One open extent.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(super) extent: Arc<Extent>,
    pub(super) lifetime: Lifetime,
    path: Path,
    /// What was written to the extents before this one, of the same chain.
    before_bytes: u64,
    /// Where the next value may begin.
    next: usize,
    /// Bytes that are not in the extent yet, and where they belong. Empty, and somebody else's, while nobody writes.
    pub(super) gathered: Vec<u8>,
    gathered_from: usize,
    /// Something was written since the last flush.
    written: bool,
    /// Something large was handed over since.
    handed_over: bool,
}

impl Writer {
    /// Of an extent that follows on others, to which `before_bytes` were written.
    pub(super) fn new(extent: Arc<Extent>, lifetime: Lifetime, path: Path, before_bytes: u64) -> Self {
        let next = HEADER_BYTES;
        let gathered = Vec::new();
        Writer {
            extent,
            lifetime,
            path,
            before_bytes,
            next,
            gathered,
            gathered_from: next,
            written: false,
            handed_over: false,
        }
    }

    /// Gathers in a buffer that was used before.
    pub(super) fn gathering_in(self, buffer: Vec<u8>) -> Self {
        Writer { gathered: buffer, ..self }
    }

    /// What was written to its extent and to those before.
    pub(super) fn chain_bytes(&self) -> u64 {
        self.before_bytes + self.next as u64
    }

    fn place(&self, length: usize, align: usize) -> (usize, usize) {
        let start = self.next.next_multiple_of(align);
        (start, (start + length).next_multiple_of(8))
    }

    pub(super) fn fits(&self, length: usize, align: usize) -> bool {
        self.place(length, align).1 + TRAILER_BYTES <= self.extent.capacity()
    }

    /// Writes a value that fits, made of `parts` in a row. Where it lies goes to `view`. It can be read after
    /// [`flush`](Self::flush), once `fence` has ordered the stores.
    pub(super) fn write(
        &mut self,
        parts: &[&[u8]],
        align: usize,
        owner: ValueOwner,
        fence: &StoreFence,
        view: &mut View,
    ) -> Result<()> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let (start, end) = self.place(length, align);
        if self.path == Path::Mapped {
            self.store(parts, (start, end), owner, fence);
        } else {
            self.gather(parts, (start, end), owner)?;
        }
        (self.next, self.written) = (end + TRAILER_BYTES, true);
        if self.gathered.len() >= self.gathered_bytes_max() {
            self.flush()?;
        }
        let (number, generation) = (self.extent.number(), self.extent.generation());
        *view = View::located(length as u32, number, generation, start as u32);
        Ok(())
    }

    fn syncs_at_once(&self) -> bool {
        matches!(self.path, Path::Gathered { syncs_at_once: true, .. })
    }

    fn direct_bytes_min(&self) -> usize {
        match self.path {
            Path::Gathered { direct_bytes_min, .. } => direct_bytes_min,
            Path::Mapped => usize::MAX,
        }
    }

    fn gathered_bytes_max(&self) -> usize {
        if self.syncs_at_once() { PIECE_BYTES } else { GATHERED_BYTES_MAX }
    }

    fn trailer(&self, length: usize, crc32c: u32, owner: ValueOwner) -> [u8; TRAILER_BYTES] {
        let generation = self.extent.generation();
        Trailer { length: length as u32, crc32c, owner, generation }.encode(self.extent.number())
    }

    /// Each part straight to its place, zeros and trailer in one store behind them.
    fn store(&self, parts: &[&[u8]], (start, end): (usize, usize), owner: ValueOwner, fence: &StoreFence) {
        let file = self.extent.file();
        let (mut at, mut crc) = (start, 0);
        for part in parts {
            crc = file.store_summed(at, part, crc, fence);
            at += part.len();
        }
        let mut behind = [0; 8 + TRAILER_BYTES];
        let zeros = end - at;
        behind[zeros..zeros + TRAILER_BYTES].copy_from_slice(&self.trailer(at - start, crc, owner));
        file.store(at, &behind[..zeros + TRAILER_BYTES]);
    }

    fn gather(&mut self, parts: &[&[u8]], (start, end): (usize, usize), owner: ValueOwner) -> Result<()> {
        if self.gathered.is_empty() {
            self.gathered_from = start;
        }
        self.pad_to(start);
        let mut crc = 0;
        for part in parts {
            crc = crate::checksum::crc32c_append(crc, part);
            if part.len() >= self.direct_bytes_min() {
                self.hand_over_behind(part)?;
            } else {
                self.gathered.extend_from_slice(part);
            }
        }
        let length = self.gathered_from + self.gathered.len() - start;
        self.pad_to(end);
        let trailer = self.trailer(length, crc, owner);
        self.gathered.extend_from_slice(&trailer);
        Ok(())
    }

    fn pad_to(&mut self, offset: usize) {
        self.gathered.resize(offset - self.gathered_from, 0);
    }

    /// Hands over what is gathered, and behind it a part that is not copied for that.
    fn hand_over_behind(&mut self, part: &[u8]) -> Result<()> {
        let at = self.gathered_from + self.gathered.len();
        let written = match self.gathered.is_empty() {
            true => Ok(()),
            false => self.hand_over(self.gathered_from, &self.gathered),
        };
        let written = written.and_then(|()| self.hand_over(at, part));
        self.gathered.clear();
        (self.gathered_from, self.handed_over) = (at + part.len(), true);
        written.map_err(|error| self.not_written(error))
    }

    fn not_written(&self, error: io::Error) -> crate::error::Error {
        Cause::io("write to", self.extent.file().path.clone(), error).into()
    }

    /// Brings everything that was written into the extent.
    pub(super) fn flush(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.written) {
            return Ok(());
        }
        let file = self.extent.file();
        // Behind what the kernel is writing already no page is touched.
        let has_called = std::mem::take(&mut self.handed_over);
        let outcome = match self.path {
            Path::Gathered { call_bytes_min, .. } if has_called || self.gathered.len() >= call_bytes_min => {
                self.hand_over(self.gathered_from, &self.gathered)
            }
            path => {
                if path != Path::Mapped {
                    file.store(self.gathered_from, &self.gathered);
                }
                file.stored();
                Ok(())
            }
        };
        self.gathered.clear();
        outcome.map_err(|error| self.not_written(error))
    }

    /// Bytes in one call, and on to the disk if it is worth that.
    fn hand_over(&self, from: usize, bytes: &[u8]) -> io::Result<()> {
        let file = self.extent.file();
        file.write_at(from, bytes)?;
        if self.syncs_at_once() && bytes.len() >= BEGIN_BYTES_MIN {
            file.begin_sync(from..from + bytes.len());
        }
        Ok(())
    }

    /// Gives up what was written since the last flush. Nothing names it; the extent goes on behind it.
    pub(super) fn discard(&mut self) {
        self.gathered.clear();
        (self.written, self.handed_over) = (false, false);
    }

    /// Ends the extent's writing. Gives the buffer to be used again.
    pub(super) fn seal(self, tail_stays: bool) -> Vec<u8> {
        self.extent.seal(self.next, tail_stays);
        self.gathered
    }
}
