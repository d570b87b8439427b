//! Values that lie behind each other, gathered so that the kernel is called seldom, and read back from where they were put.

use std::io;

use super::lent::ALIGN_BYTES;
use super::placed::Spot;

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

/// Why a value cannot be read back.
#[derive(Debug)]
pub(super) enum Unread {
    /// It is not there, in words.
    Misplaced(&'static str),
    Io(io::Error),
}

impl Gathered {
    /// Nothing yet; values lie from `first` on, and end before `end`.
    pub(super) fn new(first: usize, end: usize) -> Self {
        Gathered { next: first, bytes: Vec::new(), from: first, end }
    }

    /// Begins anew at the first place, in the memory that it has.
    pub(super) fn restart(&mut self, first: usize) {
        self.bytes.clear();
        (self.next, self.from) = (first, first);
    }

    /// Puts a value behind the others, and what is to follow it at the next multiple of 8; says where, or none where there is no
    /// room.
    pub(super) fn place<const BEHIND: usize>(
        &mut self,
        value: &[u8],
        behind: impl FnOnce(Spot) -> [u8; BEHIND],
    ) -> Option<Spot> {
        let start_behind = (self.next + value.len()).next_multiple_of(8);
        if start_behind + BEHIND > self.end {
            return None;
        }
        let (offset, length) = (self.next as u32, value.len() as u32);
        let spot = Spot { offset, length, crc32c: crate::checksum::crc32c(value) };
        self.bytes.extend_from_slice(value);
        self.bytes.resize(start_behind - self.from, 0);
        self.bytes.extend_from_slice(&behind(spot));
        self.next = (start_behind + BEHIND).next_multiple_of(ALIGN_BYTES);
        self.bytes.resize(self.next - self.from, 0);
        Some(spot)
    }

    /// Whether it is time to hand them to the kernel.
    pub(super) fn is_much(&self) -> bool {
        self.bytes.len() >= GATHERED_BYTES_MAX
    }

    /// The bytes of a value that was placed here and is with the kernel, held against its checksum. `read` fills a buffer from
    /// an offset on.
    pub(super) fn read(
        &self,
        spot: Spot,
        read: impl FnOnce(&mut [u8], u64) -> io::Result<()>,
    ) -> Result<Vec<u8>, Unread> {
        let end = (spot.offset as usize).checked_add(spot.length as usize);
        if end.is_none_or(|end| end > self.from) {
            return Err(Unread::Misplaced("nothing was put there"));
        }
        let mut bytes = vec![0; spot.length as usize];
        read(&mut bytes, spot.offset.into()).map_err(Unread::Io)?;
        match crate::checksum::crc32c(&bytes) == spot.crc32c {
            true => Ok(bytes),
            false => Err(Unread::Misplaced("other bytes lie there")),
        }
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
