//! Gives extents of segments to payloads, and takes them back.
//!
//! Invariants
//! - An extent lies in one segment, overlaps no other, and is given back when its [`HostExtent`] is dropped, not before.
//! - `mapped_bytes <= limit`, the sum over the segments that are mapped, being made, or being unmapped; but for those of an
//!   earlier process that are taken over.
//! - A segment that is mapped stays so, unless another size is needed and the limit leaves no room beside it.
//! - Nothing of any size is had or given back under the lock ([`growth`](super::growth)): who finds room waits for nobody who
//!   makes some.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::extent::{Home, HostExtent};
use super::growth::{Growth, Room};
use super::segment::{Segment, SegmentInfo};
use super::slot::Slot;
use crate::error::{Cause, Result};
use crate::numbered::Numbered;
use crate::object::memory::Memory;
use crate::object::options::ObjectOptions;
use crate::object::stats::ObjectStats;
use crate::process;
use crate::sync::{Event, Mutex, Rank};

/// Where large extents begin: large pages do.
pub(super) const LARGE_ALIGN_BYTES: u64 = 2 << 20;
/// Where small ones begin: pages do.
const SMALL_ALIGN_BYTES: u64 = 4 << 10;

/// The segments of a store, and what is free in them. Nothing but a listener is had under its lock.
#[derive(Debug)]
pub(crate) struct Arena {
    pub(super) limit: u64,
    pub(super) segment_bytes_max: u64,
    pageable_bytes_max: u64,
    /// The process whose memory it gives. A forked child of it gives nothing back, and takes no lock to do so.
    opened_by: u32,
    pub(super) inner: Mutex<Inner>,
    /// Notified when a segment has come to be there, or not.
    pub(super) grown: Event,
    /// Called before a segment is made, with its size.
    #[cfg(test)]
    pub(super) before_making: super::tests::Hook,
}

#[derive(Debug, Default)]
pub(super) struct Inner {
    /// Where segments lie; they have no name where there is none.
    pub(super) folder: Option<PathBuf>,
    pub(super) slots: BTreeMap<u32, Slot>,
    /// Segments that are being made, and how much room is left in each for others than those who make them.
    pub(super) growing: BTreeMap<u32, u64>,
    pub(super) next: u32,
    pub(super) mapped_bytes: u64,
    segments_mapped: u64,
    segment_bytes_mapped: u64,
    taken_bytes: u64,
    fallbacks: u64,
    pageable_bytes: u64,
}

/// How much is reserved for so many bytes, and at multiples of what.
fn reserved(bytes: u64) -> (u64, u64) {
    let align = if bytes < LARGE_ALIGN_BYTES / 2 { SMALL_ALIGN_BYTES } else { LARGE_ALIGN_BYTES };
    (bytes.max(1).next_multiple_of(align), align)
}

impl Arena {
    pub(crate) fn new(folder: Option<&Path>, options: &ObjectOptions) -> Arc<Self> {
        let inner = Inner { folder: folder.map(Path::to_owned), next: 1, ..Inner::default() };
        Arc::new(Arena {
            limit: options.host_bytes_max,
            segment_bytes_max: options.segment_bytes,
            pageable_bytes_max: options.pageable_bytes_max,
            opened_by: process::current(),
            inner: Mutex::ranked(Rank::Arena, inner),
            grown: Event::new(),
            #[cfg(test)]
            before_making: super::tests::Hook::default(),
        })
    }

    /// As [`allocate_or`](Self::allocate_or), where nothing can be had back.
    #[cfg(test)]
    pub(crate) fn allocate(self: &Arc<Self>, bytes: u64) -> Result<HostExtent> {
        self.allocate_or(bytes, || false)
    }

    /// Memory for a payload. What is in it is what was there before. Where the host tier is full `have_back` is called first: it
    /// says whether anything was given back that nobody uses any more.
    ///
    /// # Errors
    /// `capacity` when the host tier is full and heap memory may not be used, or is full too.
    pub(crate) fn allocate_or(
        self: &Arc<Self>,
        bytes: u64,
        have_back: impl FnOnce() -> bool,
    ) -> Result<HostExtent> {
        let found = self.find(bytes).or_else(|| have_back().then(|| self.find(bytes)).flatten());
        if let Some(home) = found {
            return Ok(HostExtent::new(self.clone(), home, bytes));
        }
        let full = || Cause::NoHostMemory { needed: bytes, used: self.taken_bytes(), limit: self.limit };
        let length = usize::try_from(bytes).ok().filter(|_| self.reserve_pageable(bytes)).ok_or_else(full)?;
        let Some(memory) = Memory::heap(length) else {
            self.inner.lock().pageable_bytes -= bytes;
            return Err(full().into());
        };
        self.inner.lock().fallbacks += 1;
        tracing::warn!(bytes, limit = self.limit, "the host tier is full: an object lies in heap memory");
        Ok(HostExtent::new(self.clone(), Home::Heap(memory), bytes))
    }

    /// Counts heap memory that is about to be used; false when it may not be.
    fn reserve_pageable(&self, bytes: u64) -> bool {
        let mut inner = self.inner.lock();
        let taken = inner.pageable_bytes.saturating_add(bytes);
        let is_allowed = taken <= self.pageable_bytes_max;
        if is_allowed {
            inner.pageable_bytes = taken;
        }
        is_allowed
    }

    /// Room in a segment that is there, or in a new one.
    fn find(&self, bytes: u64) -> Option<Home> {
        let (wanted, align) = reserved(bytes);
        let mut below = u64::MAX;
        loop {
            let mut inner = self.inner.lock();
            if let Some(home) = inner.take(wanted, align) {
                return Some(home);
            }
            match inner.room(wanted, below, self) {
                Room::None => return None,
                Room::Coming => {
                    let listener = self.grown.listen();
                    drop(inner);
                    listener.wait();
                }
                Room::ToMake(growth) => {
                    drop(inner);
                    let size = growth.bytes;
                    match self.grow(growth, |inner| inner.take(wanted, align)) {
                        Some(home) => return Some(home),
                        None => below = size, // a smaller one may be had
                    }
                }
            }
        }
    }

    /// Makes a segment, and hands it to who made it before anybody else has it. `None` when it cannot be made.
    fn grow<T>(&self, growth: Growth, use_it: impl FnOnce(&mut Inner) -> Option<T>) -> Option<T> {
        #[cfg(test)]
        self.before_making.call(growth.bytes);
        let (number, bytes) = (growth.number, growth.bytes);
        let (made, counted) = growth.make();
        let mut inner = self.inner.lock();
        inner.growing.remove(&number);
        inner.mapped_bytes -= counted;
        let used = match made {
            Ok(segment) => {
                inner.add(segment);
                use_it(&mut inner)
            }
            Err(error) => {
                tracing::warn!(bytes, %error, "a segment could not be made");
                None
            }
        };
        drop(inner);
        self.grown.notify(usize::MAX);
        used
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
            inner.mapped_bytes += segment.bytes;
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
        Ok(HostExtent::new(self.clone(), home, bytes))
    }

    /// The memory of an extent that is dropped may be somebody else's from here on.
    pub(super) fn take_back(&self, home: &Home, bytes: u64) {
        if process::current() != self.opened_by {
            return;
        }
        let mut inner = self.inner.lock();
        match home {
            Home::Heap(_) => inner.pageable_bytes -= bytes,
            Home::Segment { segment, offset, reserved } => {
                inner.taken_bytes -= reserved;
                if let Some(slot) = inner.slots.get_mut(&segment.number) {
                    slot.give_back(*offset, *reserved);
                }
            }
        }
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
        let mut inner = loop {
            let mut inner = self.inner.lock();
            inner.folder = None;
            if inner.growing.is_empty() {
                break inner;
            }
            let listener = self.grown.listen(); // those that are being made have a name
            drop(inner);
            listener.wait();
        };
        let free = inner.take_free(|_| true);
        let bytes: u64 = free.iter().map(|slot| slot.segment.bytes).sum();
        drop(inner);
        free.into_iter().for_each(Slot::unmap);
        self.inner.lock().mapped_bytes -= bytes;
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
    /// Takes room in a segment that is there: in the smallest free range that holds so much.
    fn take(&mut self, wanted: u64, align: u64) -> Option<Home> {
        let fits =
            |(number, slot): (&u32, &Slot)| slot.fit(wanted, align).map(|(length, at)| (length, *number, at));
        let (_, number, offset) = self.slots.iter().filter_map(fits).min()?;
        let slot = self.slots.get_mut(&number)?;
        slot.take(offset, wanted);
        let segment = slot.segment.clone();
        self.taken_bytes += wanted;
        Some(Home::Segment { segment, offset, reserved: wanted })
    }

    fn add(&mut self, segment: Segment) {
        let (number, bytes) = (segment.number, segment.bytes);
        self.next = self.next.max(number + 1);
        self.segments_mapped += 1;
        self.segment_bytes_mapped += bytes;
        self.slots.insert(number, Slot::new(segment));
    }
}
