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
}
