//! Which parts of an extent are taken.

use std::collections::BTreeMap;
use std::ops::Range;

use super::lent::ALIGN_BYTES;

/// Ranges that do not overlap, those that touch as one.
#[derive(Debug, Default)]
pub(super) struct Ranges(BTreeMap<u32, u32>);

impl Ranges {
    /// Adds a range, unless a part of it is there.
    pub(super) fn take(&mut self, range: Range<u32>) -> bool {
        // What lies between two values is nobody's.
        let end = range.end.next_multiple_of(ALIGN_BYTES as u32);
        let before = self.0.range(..=range.start).next_back().map(|(start, end)| (*start, *end));
        let overlaps = before.is_some_and(|(_, end)| end > range.start)
            || self.0.range(range.start..end).next().is_some();
        if overlaps {
            return false;
        }
        let after = self.0.remove(&end);
        let start = before.filter(|(_, end)| *end == range.start).map_or(range.start, |(start, _)| start);
        self.0.insert(start, after.unwrap_or(end));
        true
    }

    /// Takes a range out again that was added.
    pub(super) fn give_back(&mut self, range: Range<u32>) {
        let end = range.end.next_multiple_of(ALIGN_BYTES as u32);
        let Some((&start, &whole_end)) = self.0.range(..=range.start).next_back() else { return };
        if end > whole_end {
            return;
        }
        self.0.remove(&start);
        for (start, end) in [(start, range.start), (end, whole_end)] {
            if start < end {
                self.0.insert(start, end);
            }
        }
    }

    /// Where the last one ends.
    pub(super) fn end(&self) -> u32 {
        self.0.last_key_value().map_or(0, |(_, end)| *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_taken_once_and_grow_together() {
        let mut ranges = Ranges::default();
        for (range, taken) in [
            (64..200, true),
            (64..100, false),
            (192..300, false),
            (448..500, true),
            (320..448, true),
            (256..320, true),
            (0..64, true),
            (0..1, false),
            (511..512, false),
            (512..513, true),
        ] {
            assert_eq!(ranges.take(range.clone()), taken, "{range:?}");
        }
        assert_eq!((ranges.0.len(), ranges.end()), (1, 576));
    }

    #[test]
    fn ranges_that_are_given_back_can_be_taken_again() {
        let whole = || {
            let mut ranges = Ranges::default();
            assert!([0..64, 64..100, 128..192].into_iter().all(|range| ranges.take(range)));
            ranges
        };
        for range in [0..64, 64..100, 128..192] {
            let mut ranges = whole();
            ranges.give_back(range.clone());
            assert!(ranges.take(range.clone()) && !ranges.take(range), "once");
            assert_eq!(ranges.0, whole().0);
        }
        let mut ranges = whole();
        ranges.give_back(192..200);
        ranges.give_back(128..200);
        assert_eq!(ranges.0, whole().0, "what was not added changes nothing");
    }
}
