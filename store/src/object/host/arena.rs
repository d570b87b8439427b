//! Gives extents of segments to payloads, and takes them back.
//!
//! Invariants
//! - An extent lies in one segment, overlaps no other, and is given back when its [`HostExtent`] is dropped, not before.
//! - `mapped_bytes <= limit`, the sum over the segments that are mapped.
//! - A segment that is mapped stays so, unless another size is needed and the limit leaves no room beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::segment::{Segment, SegmentInfo};
use super::slot::Slot;
use crate::error::{Cause, Result};
use crate::numbered::Numbered;
use crate::object::memory::Memory;
use crate::object::options::ObjectOptions;
use crate::object::stats::ObjectStats;
use crate::process;
use crate::sync::Mutex;

/// Where large extents begin: large pages do.
const LARGE_ALIGN_BYTES: u64 = 2 << 20;
/// Where small ones begin: pages do.
const SMALL_ALIGN_BYTES: u64 = 4 << 10;
/// The first segment.
const SEGMENT_BYTES_MIN: u64 = 4 << 20;

/// The segments of a store, and what is free in them. Its lock is a leaf.
#[derive(Debug)]
pub(crate) struct Arena {
    limit: u64,
    segment_bytes_max: u64,
    pageable_bytes_max: u64,
    /// The process whose memory it gives. A forked child of it gives nothing back, and takes no lock to do so.
    opened_by: u32,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Where segments lie; they have no name where there is none.
    folder: Option<PathBuf>,
    slots: BTreeMap<u32, Slot>,
    next: u32,
    mapped_bytes: u64,
    segments_mapped: u64,
    segment_bytes_mapped: u64,
    taken_bytes: u64,
    fallbacks: u64,
    pageable_bytes: u64,
}

/// Memory that one payload has.
pub(crate) struct HostExtent {
    arena: Arc<Arena>,
    home: Home,
    bytes: u64,
}

enum Home {
    Segment { segment: Arc<Segment>, offset: u64, reserved: u64 },
    Heap(Memory),
}

/// How much is reserved for so many bytes, and at multiples of what.
fn reserved(bytes: u64) -> (u64, u64) {
    let align = if bytes < LARGE_ALIGN_BYTES / 2 { SMALL_ALIGN_BYTES } else { LARGE_ALIGN_BYTES };
    (bytes.max(1).next_multiple_of(align), align)
}

impl Arena {
    pub(crate) fn new(folder: Option<&Path>, options: &ObjectOptions) -> Arc<Self> {
        Arc::new(Arena {
            limit: options.host_bytes_max,
            segment_bytes_max: options.segment_bytes,
            pageable_bytes_max: options.pageable_bytes_max,
            opened_by: process::current(),
            inner: Mutex::new(Inner { folder: folder.map(Path::to_owned), next: 1, ..Inner::default() }),
        })
    }

    /// Memory for a payload. What is in it is what was there before.
    ///
    /// # Errors
    /// `capacity` when the host tier is full and heap memory may not be used, or is full too.
    pub(crate) fn allocate(self: &Arc<Self>, bytes: u64) -> Result<HostExtent> {
        let mut inner = self.inner.lock();
        if let Some(home) = self.find(&mut inner, bytes) {
            return Ok(HostExtent { arena: self.clone(), home, bytes });
        }
        let is_allowed = inner.pageable_bytes.saturating_add(bytes) <= self.pageable_bytes_max;
        let heap = usize::try_from(bytes).ok().filter(|_| is_allowed).and_then(Memory::heap);
        let full = || Cause::NoHostMemory { needed: bytes, used: inner.taken_bytes, limit: self.limit };
        let memory = heap.ok_or_else(full)?;
        inner.fallbacks += 1;
        inner.pageable_bytes += bytes;
        drop(inner);
        tracing::warn!(bytes, limit = self.limit, "the host tier is full: an object lies in heap memory");
        Ok(HostExtent { arena: self.clone(), home: Home::Heap(memory), bytes })
    }

    /// Room in a segment that is there, or in a new one.
    fn find(&self, inner: &mut Inner, bytes: u64) -> Option<Home> {
        let (wanted, align) = reserved(bytes);
        let fits =
            |(number, slot): (&u32, &Slot)| slot.fit(wanted, align).map(|(length, at)| (length, *number, at));
        let mut found = inner.slots.iter().filter_map(fits).min();
        if found.is_none() {
            let number = self.map_another(inner, wanted)?;
            found = fits((&number, inner.slots.get(&number)?));
        }
        let (_, number, offset) = found?;
        let slot = inner.slots.get_mut(&number)?;
        slot.take(offset, wanted);
        inner.taken_bytes += wanted;
        Some(Home::Segment { segment: slot.segment.clone(), offset, reserved: wanted })
    }

    /// Maps one more segment with room for so much; gives free ones back to the machine where the limit asks for it.
    fn map_another(&self, inner: &mut Inner, wanted: u64) -> Option<u32> {
        let grown =
            inner.mapped_bytes.clamp(SEGMENT_BYTES_MIN, self.segment_bytes_max.max(SEGMENT_BYTES_MIN));
        let least = wanted.next_multiple_of(LARGE_ALIGN_BYTES);
        for size in
            BTreeSet::from([grown.max(least).next_multiple_of(LARGE_ALIGN_BYTES), least]).into_iter().rev()
        {
            if inner.mapped_bytes + size > self.limit && size == least {
                inner.unmap_free(self.limit.saturating_sub(size));
            }
            if inner.mapped_bytes + size > self.limit {
                continue;
            }
            match Segment::create(inner.folder.as_deref(), inner.next, size) {
                Ok(segment) => return Some(inner.add(segment)),
                Err(error) => tracing::warn!(bytes = size, %error, "a segment could not be made"),
            }
        }
        None
    }

    /// Takes over an extent that an earlier process has left.
    ///
    /// # Errors
    /// Why it cannot be, in words.
    pub(crate) fn adopt(
        self: &Arc<Self>,
        number: u32,
        offset: u64,
        bytes: u64,
    ) -> Result<HostExtent, String> {
        let mut inner = self.inner.lock();
        if !inner.slots.contains_key(&number) {
            let folder = inner.folder.as_deref().ok_or("the host tier has no folder")?;
            let segment = Segment::open(folder, number).map_err(|e| format!("segment {number}: {e}"))?;
            inner.add(segment);
        }
        let (wanted, align) = reserved(bytes);
        let slot = inner.slots.get_mut(&number).ok_or("no such segment")?;
        if !offset.is_multiple_of(align) || !slot.take(offset, wanted) {
            return Err(format!(
                "{wanted} bytes at {offset} of segment {number} are not there, or somebody else's"
            ));
        }
        let home = Home::Segment { segment: slot.segment.clone(), offset, reserved: wanted };
        inner.taken_bytes += wanted;
        Ok(HostExtent { arena: self.clone(), home, bytes })
    }

    /// Removes the segments of earlier processes in which nothing lies.
    pub(crate) fn remove_strays(&self) {
        let inner = self.inner.lock();
        let Some(folder) = &inner.folder else { return };
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let number = Numbered::HostSegment.number(&path);
            if number.is_some_and(|number| !inner.slots.contains_key(&number)) {
                let _ = std::fs::remove_file(&path); // the next process tries again
            }
        }
    }

    /// Whether payloads of so many bytes can be had without taking more than the limit.
    pub(crate) fn has_room(&self, payloads: impl Iterator<Item = u64>) -> bool {
        let wanted: u64 = payloads.map(|bytes| reserved(bytes).0).sum();
        self.taken_bytes() + wanted <= self.limit
    }

    /// Gives segments in which nothing lies back to the machine; from here on new ones have no name.
    pub(crate) fn give_back(&self) {
        let mut inner = self.inner.lock();
        inner.unmap_free(0);
        inner.folder = None;
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes that objects take in segments.
    pub(crate) fn taken_bytes(&self) -> u64 {
        self.inner.lock().taken_bytes
    }

    pub(crate) fn count_into(&self, stats: &mut ObjectStats) {
        let inner = self.inner.lock();
        stats.segments_mapped = inner.segments_mapped;
        stats.segment_bytes_mapped = inner.segment_bytes_mapped;
        stats.host_bytes = inner.mapped_bytes;
        stats.host_bytes_taken = inner.taken_bytes;
        stats.pageable_fallbacks = inner.fallbacks;
        stats.pageable_bytes = inner.pageable_bytes;
    }

    pub(crate) fn show(&self) -> std::io::Result<Vec<SegmentInfo>> {
        let segments: Vec<Arc<Segment>> =
            self.inner.lock().slots.values().map(|slot| slot.segment.clone()).collect();
        segments.iter().map(|segment| segment.show()).collect()
    }
}

impl Inner {
    /// Unmaps segments in which nothing lies until no more than `limit` bytes are mapped, or there are none.
    fn unmap_free(&mut self, limit: u64) {
        let free: Vec<u32> = self.slots.iter().filter(|(_, slot)| slot.is_free()).map(|(n, _)| *n).collect();
        for number in free {
            if self.mapped_bytes <= limit {
                return;
            }
            if let Some(slot) = self.slots.remove(&number) {
                self.mapped_bytes -= slot.segment.bytes;
                slot.segment.remove();
            }
        }
    }

    fn add(&mut self, segment: Segment) -> u32 {
        let (number, bytes) = (segment.number, segment.bytes);
        self.next = self.next.max(number + 1);
        self.mapped_bytes += bytes;
        self.segments_mapped += 1;
        self.segment_bytes_mapped += bytes;
        self.slots.insert(number, Slot::new(segment));
        number
    }
}

impl HostExtent {
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
        self.check(offset, length);
        let (memory, start) = self.memory();
        memory.sum(start + offset as usize, length as usize)
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
        if process::current() != self.arena.opened_by {
            return;
        }
        let mut inner = self.arena.inner.lock();
        match &self.home {
            Home::Heap(_) => inner.pageable_bytes -= self.bytes,
            Home::Segment { segment, offset, reserved } => {
                inner.taken_bytes -= reserved;
                if let Some(slot) = inner.slots.get_mut(&segment.number) {
                    slot.give_back(*offset, *reserved);
                }
            }
        }
    }
}

impl fmt::Debug for HostExtent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostExtent({} bytes at {:?})", self.bytes, self.place())
    }
}
