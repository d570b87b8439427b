//! What of a payload has been filled, who is filling it now, and the checksums of its chunks so far.
//!
//! Whoever writes takes his range first and gives it back afterwards, so two writers are never in the same bytes. A chunk
//! that is written from its start on, piece after piece, has its checksum when its last byte is there; one that was written
//! in another order, or twice, is summed up at the commit.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::error::{Cause, Result};
use crate::object::layout::Layout;
use crate::object::manifest::{OBJECT_CHUNK_BYTES, chunk_count, chunks_of};

/// One payload that is being filled.
#[derive(Debug)]
pub(in crate::object) struct Filled {
    bytes: u64,
    /// What has been filled: where each range begins and ends. Two that touch are one.
    ranges: BTreeMap<u64, u64>,
    busy: Vec<Range<u64>>,
    sums: Vec<Sum>,
}

/// The checksum of the first bytes of a chunk.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    through: u64,
    crc: u32,
    /// Somebody writes what comes next, and brings the checksum along.
    taken: bool,
    /// It does not follow from what was written.
    broken: bool,
}

/// A part of one chunk that is about to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::object) struct Piece {
    chunk: usize,
    /// In the payload.
    pub(in crate::object) start: u64,
    pub(in crate::object) end: u64,
    /// The checksum of the chunk's bytes before it, where it goes on from there. Whoever has written the piece puts the new
    /// one here.
    pub(in crate::object) crc: Option<u32>,
}

impl Filled {
    pub(in crate::object) fn new(bytes: u64) -> Self {
        let sums = vec![Sum::default(); chunk_count(bytes)];
        Filled { bytes, ranges: BTreeMap::new(), busy: Vec::new(), sums }
    }

    /// Takes a range to write it.
    ///
    /// # Errors
    /// What somebody else is writing there.
    pub(in crate::object) fn take(
        &mut self,
        range: Range<u64>,
    ) -> std::result::Result<Vec<Piece>, Range<u64>> {
        let overlaps = |busy: &&Range<u64>| busy.start < range.end && range.start < busy.end;
        if let Some(busy) = self.busy.iter().find(overlaps) {
            return Err(busy.clone());
        }
        self.busy.push(range.clone());
        let mut pieces = Vec::new();
        for chunk in chunks_of(0, range.clone(), self.bytes) {
            let (start, end) = (range.start.max(chunk.range.start), range.end.min(chunk.range.end));
            let sum = &mut self.sums[chunk.number];
            let within = start - chunk.range.start;
            let goes_on = !sum.broken && !sum.taken && within == sum.through;
            sum.broken |= within < sum.through;
            sum.taken |= goes_on;
            pieces.push(Piece { chunk: chunk.number, start, end, crc: goes_on.then_some(sum.crc) });
        }
        Ok(pieces)
    }

    /// Gives a range back that was written, with its pieces.
    pub(in crate::object) fn written(&mut self, range: Range<u64>, pieces: &[Piece]) {
        self.busy.retain(|busy| *busy != range);
        for piece in pieces {
            let Some(crc) = piece.crc else { continue };
            let sum = &mut self.sums[piece.chunk];
            (sum.taken, sum.crc) = (false, crc);
            sum.through = piece.end - piece.chunk as u64 * OBJECT_CHUNK_BYTES;
        }
        self.join(range);
    }

    /// Gives a range back that may hold anything, with its pieces.
    pub(in crate::object) fn left(&mut self, range: &Range<u64>, pieces: &[Piece]) {
        self.busy.retain(|busy| busy != range);
        for piece in pieces.iter().filter(|piece| piece.crc.is_some()) {
            let sum = &mut self.sums[piece.chunk];
            (sum.taken, sum.broken) = (false, true);
        }
    }

    fn join(&mut self, range: Range<u64>) {
        let (mut start, mut end) = (range.start, range.end);
        if let Some((&before, &until)) = self.ranges.range(..=start).next_back()
            && until >= start
        {
            (start, end) = (before, end.max(until));
        }
        while let Some((&next, &until)) = self.ranges.range(start..=end).next() {
            self.ranges.remove(&next);
            end = end.max(until);
        }
        self.ranges.insert(start, end);
    }

    /// A range that somebody is writing.
    pub(in crate::object) fn busy(&self) -> Option<&Range<u64>> {
        self.busy.first()
    }

    /// The first range that was not filled.
    pub(in crate::object) fn hole(&self) -> Option<Range<u64>> {
        let mut ranges = self.ranges.iter();
        let filled = self.ranges.get(&0).copied().unwrap_or(0);
        if self.ranges.contains_key(&0) {
            ranges.next();
        }
        let next = ranges.next().map_or(self.bytes, |(start, _)| *start);
        (filled < self.bytes).then_some(filled..next)
    }

    /// The checksum of every chunk; those that do not follow from what was written are asked for.
    pub(in crate::object) fn checksums(&mut self, sum_up: impl Fn(Range<u64>) -> u32) -> Vec<u32> {
        let bytes = self.bytes;
        for (chunk, sum) in chunks_of(0, 0..bytes, bytes).zip(&mut self.sums) {
            let length = chunk.range.end - chunk.range.start;
            if sum.broken || sum.through < length {
                let crc = sum_up(chunk.range);
                *sum = Sum { through: length, crc, taken: false, broken: false };
            }
        }
        self.sums.iter().map(|sum| sum.crc).collect()
    }
}

/// Refuses payloads of which something is not filled, or is being filled.
///
/// # Errors
/// `state` with the range and the tensor.
pub(in crate::object) fn check_filled(key: &str, layout: &Layout, payloads: &[Filled]) -> Result<()> {
    for (payload, filled) in payloads.iter().enumerate() {
        let (key, class) = (key.to_owned(), layout.payloads()[payload].class.clone());
        if let Some(Range { start, end }) = filled.busy().cloned() {
            return Err(Cause::FillOverlap { key, class, start, end }.into());
        }
        if let Some(hole) = filled.hole() {
            let tensors = layout.tensors_in(payload, hole.clone());
            let tensor = tensors.first().map_or_else(String::new, |name| (*name).to_owned());
            return Err(Cause::Unfilled { key, tensor, class, start: hole.start, end: hole.end }.into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::randomness::{Randomness, SeededRandomness};

    const CHUNK: u64 = OBJECT_CHUNK_BYTES;

    #[test]
    fn two_writers_are_never_in_the_same_bytes() {
        let mut filled = Filled::new(1000);
        let pieces = filled.take(100..200).unwrap();
        for (range, busy) in
            [(0..100, false), (199..201, true), (0..101, true), (150..160, true), (200..300, false)]
        {
            let taken = filled.take(range.clone());
            assert_eq!(taken.is_err(), busy, "{range:?}");
            taken.iter().for_each(|pieces| filled.written(range.clone(), pieces));
        }
        filled.written(100..200, &pieces);
        assert!(filled.busy().is_none() && filled.take(100..200).is_ok());
        assert_eq!(filled.hole(), Some(300..1000));
    }

    #[test]
    fn checksums_are_right_in_whatever_order_ranges_are_written_and_written_again() {
        for seed in 0..40 {
            let dice = SeededRandomness::new(seed);
            let up_to = |bound: u64| dice.next_u64() % bound;
            let bytes = (3 * CHUNK + 777) as usize;
            let mut memory = vec![0_u8; bytes];
            let mut filled = Filled::new(bytes as u64);
            let mut write = |range: Range<u64>, fill: u8| {
                let mut pieces = filled.take(range.clone()).unwrap();
                for piece in &mut pieces {
                    let place = &mut memory[piece.start as usize..piece.end as usize];
                    place.fill(fill);
                    piece.crc = piece.crc.map(|crc| crate::checksum::crc32c_append(crc, place));
                }
                filled.written(range, &pieces);
            };
            for turn in 0..up_to(12) {
                let start = up_to(bytes as u64);
                write(start..start + up_to(bytes as u64 - start), turn as u8 + 1);
            }
            let mut at = 0;
            while at < bytes as u64 {
                let end = (at + 1 + up_to(CHUNK)).min(bytes as u64);
                write(at..end, (at % 251) as u8);
                at = end;
            }
            assert_eq!(filled.hole(), None);
            let sums = filled.checksums(|range| {
                crate::checksum::crc32c(&memory[range.start as usize..range.end as usize])
            });
            let right: Vec<u32> = memory.chunks(CHUNK as usize).map(crate::checksum::crc32c).collect();
            assert_eq!(sums, right, "seed {seed}");
        }
    }

    #[test]
    fn a_payload_that_was_written_in_order_is_never_read_again() {
        let mut filled = Filled::new(2 * CHUNK + 10);
        for range in [0..5, 5..CHUNK + 1, CHUNK + 1..2 * CHUNK + 10] {
            let mut pieces = filled.take(range.clone()).unwrap();
            assert!(pieces.iter().all(|piece| piece.crc.is_some()));
            pieces.iter_mut().for_each(|piece| piece.crc = Some(7));
            filled.written(range, &pieces);
        }
        assert_eq!(filled.checksums(|range| panic!("{range:?} is read again")), [7, 7, 7]);
    }
}
