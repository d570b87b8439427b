//! More segments: what is decided under the arena's lock, and what is done outside of it.
//!
//! Making a segment has the kernel find and clear all of its memory, a second for every few gigabytes, and unmapping one takes
//! its time too. So the bytes of both are counted first, under the lock, and moved then, without it: who looks meanwhile finds the
//! limit kept, and the room that is there. Who needs room that is being made waits for that instead of making more.

use std::io;
use std::path::PathBuf;

use super::arena::{Arena, Inner, LARGE_ALIGN_BYTES};
use super::segment::Segment;
use super::slot::Slot;

/// The first segment.
const SEGMENT_BYTES_MIN: u64 = 4 << 20;

/// Where room comes from that no segment has.
#[derive(Debug)]
pub(super) enum Room {
    /// From a segment that is to be made.
    ToMake(Growth),
    /// Somebody makes a segment that may have it, or whose making may leave it.
    Coming,
    /// From nowhere: the limit is reached.
    None,
}

/// A segment that somebody is about to make. Its bytes are counted already.
#[derive(Debug)]
pub(super) struct Growth {
    pub(super) number: u32,
    pub(super) bytes: u64,
    folder: Option<PathBuf>,
    /// Segments in which nothing lies, and that make way for it. They are counted until they are gone.
    leaving: Vec<Slot>,
}

impl Growth {
    /// Makes it. Also gives what is to be counted no more: what left and is not made up for, and what could not be made.
    pub(super) fn make(self) -> (io::Result<Segment>, u64) {
        let left = self.leaving_bytes();
        let Growth { number, bytes, folder, leaving } = self;
        leaving.into_iter().for_each(Slot::unmap);
        let made = Segment::create(folder.as_deref(), number, bytes);
        let unmade = if made.is_ok() { 0 } else { bytes };
        (made, left.saturating_sub(bytes) + unmade)
    }

    fn leaving_bytes(&self) -> u64 {
        self.leaving.iter().map(|slot| slot.segment.bytes).sum()
    }
}

impl Inner {
    /// Where `wanted` bytes may come from, by a segment of less than `below` bytes where one has to be made.
    pub(super) fn room(&mut self, wanted: u64, below: u64, arena: &Arena) -> Room {
        if self.growing.values().any(|left| *left >= wanted) {
            return Room::Coming;
        }
        match self.plan(wanted, below, arena) {
            Some(growth) => Room::ToMake(growth),
            None if self.growing.is_empty() => Room::None,
            None => Room::Coming,
        }
    }

    /// Counts one more segment with room for so much; lets free ones go where the limit asks for it.
    fn plan(&mut self, wanted: u64, below: u64, arena: &Arena) -> Option<Growth> {
        let most = arena.segment_bytes_max.max(SEGMENT_BYTES_MIN);
        let grown = self.mapped_bytes.clamp(SEGMENT_BYTES_MIN, most);
        let least = wanted.next_multiple_of(LARGE_ALIGN_BYTES);
        let sizes = [grown.max(least).next_multiple_of(LARGE_ALIGN_BYTES), least];
        let fits = |size: &u64| *size < below && self.mapped_bytes + size <= arena.limit;
        let (bytes, leaving) = match sizes.into_iter().find(fits) {
            Some(bytes) => (bytes, Vec::new()),
            None if least < below => (least, self.make_way(least, arena.limit)?),
            None => return None,
        };
        let number = self.next;
        self.next += 1;
        let growth = Growth { number, bytes, folder: self.folder.clone(), leaving };
        self.mapped_bytes += bytes.saturating_sub(growth.leaving_bytes());
        self.growing.insert(number, bytes - wanted);
        Some(growth)
    }

    /// Takes out segments in which nothing lies, until there is room for so much beside the others; none when there is not.
    fn make_way(&mut self, bytes: u64, limit: u64) -> Option<Vec<Slot>> {
        let free = self.slots.values().filter(|slot| slot.is_free()).map(|slot| slot.segment.bytes);
        if self.mapped_bytes + bytes > limit + free.sum::<u64>() {
            return None;
        }
        let mut left = self.mapped_bytes + bytes;
        Some(self.take_free(|slot| {
            let goes = left > limit;
            left -= if goes { slot.segment.bytes } else { 0 };
            goes
        }))
    }

    /// Takes out segments in which nothing lies. They are still counted.
    pub(super) fn take_free(&mut self, mut goes: impl FnMut(&Slot) -> bool) -> Vec<Slot> {
        self.slots.extract_if(.., |_, slot| slot.is_free() && goes(slot)).map(|(_, slot)| slot).collect()
    }
}
