//! Memory that one payload has.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use super::arena::Arena;
use super::segment::Segment;
use crate::object::mapping::{Home as MappingHome, ObjectMapping};
use crate::object::memory::Memory;

/// A part of a segment, or heap memory. It is given back when this is dropped.
pub(crate) struct HostExtent {
    arena: Arc<Arena>,
    home: Home,
    bytes: u64,
}

/// Where it lies.
pub(super) enum Home {
    Segment { segment: Arc<Segment>, offset: u64, reserved: u64 },
    Heap(Memory),
}

/// Segment, offset and bytes of those that lie in segments.
pub(crate) fn places_of(extents: &[HostExtent]) -> Vec<(u32, u64, u64)> {
    let placed = |extent: &HostExtent| extent.place().map(|(segment, at)| (segment, at, extent.bytes()));
    extents.iter().filter_map(placed).collect()
}

impl HostExtent {
    pub(super) fn new(arena: Arc<Arena>, home: Home, bytes: u64) -> Self {
        HostExtent { arena, home, bytes }
    }

    /// The memory, and where in it the extent begins.
    fn memory(&self) -> (&Memory, usize) {
        match &self.home {
            Home::Segment { segment, offset, .. } => (&segment.memory, *offset as usize),
            Home::Heap(memory) => (memory, 0),
        }
    }

    /// Where its first byte is.
    pub(crate) fn address(&self) -> usize {
        let (memory, start) = self.memory();
        memory.address() + start
    }

    fn check(&self, offset: u64, length: u64) {
        let inside = offset.checked_add(length).is_some_and(|end| end <= self.bytes);
        assert!(inside, "{length} bytes at {offset} lie outside of an extent of {} bytes", self.bytes);
    }

    /// Copies `bytes` to `offset` and adds them to a crc32c. The caller keeps everybody else away from the range.
    pub(crate) fn write_summed(&self, offset: u64, bytes: &[u8], crc: u32) -> u32 {
        self.check(offset, bytes.len() as u64);
        let (memory, start) = self.memory();
        memory.write_summed(start + offset as usize, bytes, crc)
    }

    /// Fills `buffer` from `offset` on.
    pub(crate) fn read(&self, offset: u64, buffer: &mut [u8]) {
        self.check(offset, buffer.len() as u64);
        let (memory, start) = self.memory();
        memory.read(start + offset as usize, buffer);
    }

    /// The crc32c of a range.
    pub(crate) fn sum(&self, offset: u64, length: u64) -> u32 {
        self.sum_onto(offset, length, 0)
    }

    /// The same, going on from another.
    pub(crate) fn sum_onto(&self, offset: u64, length: u64, crc: u32) -> u32 {
        self.check(offset, length);
        let (memory, start) = self.memory();
        memory.sum(start + offset as usize, length as usize, crc)
    }

    /// The segment that it lies in, and where; nothing for heap memory.
    pub(in crate::object) fn mapping(&self) -> Option<(ObjectMapping, usize)> {
        match &self.home {
            Home::Segment { segment, offset, .. } => {
                Some((ObjectMapping::of(MappingHome::Segment(segment.clone())), *offset as usize))
            }
            Home::Heap(_) => None,
        }
    }

    /// The bytes of a range that nobody writes any more.
    pub(crate) fn stable(&self, offset: u64, length: u64) -> &[u8] {
        self.check(offset, length);
        let (memory, start) = self.memory();
        memory.stable(start + offset as usize, length as usize)
    }

    /// Segment and offset; `None` for heap memory.
    pub(crate) fn place(&self) -> Option<(u32, u64)> {
        match &self.home {
            Home::Segment { segment, offset, .. } => Some((segment.number, *offset)),
            Home::Heap(_) => None,
        }
    }

    /// What names a byte of it in messages: a file, and where in it.
    pub(crate) fn name_of(&self, offset: u64) -> (PathBuf, u64) {
        match &self.home {
            Home::Segment { segment, offset: start, .. } => (segment.name(), start + offset),
            Home::Heap(_) => (PathBuf::from("heap memory"), offset),
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for HostExtent {
    fn drop(&mut self) {
        self.arena.take_back(&self.home, self.bytes);
    }
}

impl fmt::Debug for HostExtent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostExtent({} bytes at {:?})", self.bytes, self.place())
    }
}
