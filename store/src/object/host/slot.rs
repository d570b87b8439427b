//! One segment, and what is free in it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::segment::Segment;

/// A segment, with its free ranges.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) segment: Arc<Segment>,
    /// Where free ranges begin, and how long they are. Two that touch are one.
    free: BTreeMap<u64, u64>,
}

impl Slot {
    pub(super) fn new(segment: Segment) -> Self {
        let free = BTreeMap::from([(0, segment.bytes)]);
        Slot { segment: Arc::new(segment), free }
    }

    /// Gives its memory back to the machine. Nothing lies in it.
    pub(super) fn unmap(self) {
        self.segment.remove();
    }

    pub(super) fn is_free(&self) -> bool {
        self.free.get(&0) == Some(&self.segment.bytes)
    }

    /// The smallest free range that holds so much, and where in it that would begin.
    pub(super) fn fit(&self, bytes: u64, align: u64) -> Option<(u64, u64)> {
        let fits = |(&start, &length): (&u64, &u64)| {
            let at = start.next_multiple_of(align);
            (at + bytes <= start + length).then_some((length, at))
        };
        self.free.iter().filter_map(fits).min()
    }

    /// Takes a range out of what is free; false when a part of it is not free.
    pub(super) fn take(&mut self, at: u64, bytes: u64) -> bool {
        let Some(end) = at.checked_add(bytes) else { return false };
        let before = self.free.range(..=at).next_back().map(|(start, length)| (*start, *length));
        let Some((start, length)) = before.filter(|(start, length)| start + length >= end) else {
            return false;
        };
        self.free.remove(&start);
        for (start, end) in [(start, at), (end, start + length)] {
            if start < end {
                self.free.insert(start, end - start);
            }
        }
        true
    }

    pub(super) fn give_back(&mut self, at: u64, bytes: u64) {
        let (mut start, mut length) = (at, bytes);
        if let Some(after) = self.free.remove(&(at + bytes)) {
            length += after;
        }
        if let Some((&before, &held)) = self.free.range(..at).next_back()
            && before + held == at
        {
            (start, length) = (before, held + length);
        }
        self.free.insert(start, length);
    }
}
