//! The layout of segments and frames.
//!
//! ```text
//! segment header, 64 bytes   as every file begins, then: first sequence u64 | boot 16 | durable through u64
//! frame header, 32 bytes     payload length u32 | payload crc32c u32 | sequence u64 | durable through u64 | zero u32
//!                            | crc32c of these 28 u32
//! payload                    one rkyv record, then zeros up to a multiple of 8
//! ```
//! The header has a checksum of its own so that a damaged length is told apart from a torn append.
//!
//! *Durable through*: every record with a lower sequence number was on stable storage, with every byte that it names and that
//! is not over by these records, when this header was made.

use crate::header::{HEADER_BYTES, Header, HeaderFault, Magic, u32_at, u64_at};

pub(crate) const SEGMENT_HEADER_BYTES: usize = HEADER_BYTES;
pub(crate) const FRAME_HEADER_BYTES: usize = 32;
/// No record is larger; a length above it is damage.
pub(super) const PAYLOAD_BYTES_MAX: usize = 1 << 30;
const MAGIC: Magic = *b"FBLOG\0\0\0";

/// The run of the machine that a segment names which holds nothing but the proof of a cut.
pub(super) const OF_NO_RUN: u128 = 0;

/// What a segment's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    pub(super) number: u32,
    pub(super) store_id: u64,
    pub(super) first_sequence: u64,
    /// The run of the machine that wrote the segment.
    pub(super) boot: u128,
    pub(super) durable_through: u64,
}

impl SegmentHeader {
    pub(super) fn encode(self) -> [u8; SEGMENT_HEADER_BYTES] {
        Header::new(MAGIC, self.number, self.store_id)
            .with(24, self.first_sequence.to_le_bytes())
            .with(32, self.boot.to_le_bytes())
            .with(48, self.durable_through.to_le_bytes())
            .seal()
    }

    pub(super) fn decode(bytes: &[u8; SEGMENT_HEADER_BYTES]) -> Result<Self, HeaderFault> {
        let header = Header::read(MAGIC, bytes)?;
        Ok(SegmentHeader {
            number: header.number(),
            store_id: header.store_id(),
            first_sequence: header.u64_at(24),
            boot: header.u128_at(32),
            durable_through: header.u64_at(48),
        })
    }
}

/// Leaves room for a frame's header, and says where the frame begins. The payload follows.
pub(super) fn begin_frame(buffer: &mut Vec<u8>) -> usize {
    let start = buffer.len();
    buffer.resize(start + FRAME_HEADER_BYTES, 0);
    start
}

/// Fills in the header of the frame that begins at `start`, now that its payload stands behind it.
pub(super) fn end_frame(
    buffer: &mut Vec<u8>,
    start: usize,
    payload_bytes: usize,
    sequence: u64,
    durable_through: u64,
) {
    let payload = start + FRAME_HEADER_BYTES;
    let crc = crate::checksum::crc32c(&buffer[payload..payload + payload_bytes]);
    let header = &mut buffer[start..payload];
    header[..4].copy_from_slice(&(payload_bytes as u32).to_le_bytes());
    header[4..8].copy_from_slice(&crc.to_le_bytes());
    header[8..16].copy_from_slice(&sequence.to_le_bytes());
    header[16..24].copy_from_slice(&durable_through.to_le_bytes());
    let crc = crate::checksum::crc32c(&header[..28]);
    header[28..].copy_from_slice(&crc.to_le_bytes());
    buffer.resize(payload + payload_bytes.next_multiple_of(8), 0);
}

/// What stands at one place of a segment.
#[derive(Debug)]
pub(super) enum Frame<'a> {
    /// A whole record.
    Record { sequence: u64, durable_through: u64, payload: &'a [u8], end: usize },
    /// The segment ends here, cleanly.
    End,
    /// The segment ends inside a record: an append that was cut short.
    Torn,
    /// The bytes cannot have been written so.
    Damaged(&'static str),
}

/// Reads the frame at `at`.
pub(super) fn decode_frame(segment: &[u8], at: usize) -> Frame<'_> {
    let rest = &segment[at.min(segment.len())..];
    if rest.is_empty() {
        return Frame::End;
    }
    let Some(header) = rest.get(..FRAME_HEADER_BYTES) else { return Frame::Torn };
    if crate::checksum::crc32c(&header[..28]) != u32_at(header, 28) {
        return Frame::Damaged("the record's header does not match its checksum");
    }
    let length = u32_at(header, 0) as usize;
    if length > PAYLOAD_BYTES_MAX {
        return Frame::Damaged("the record claims an impossible length");
    }
    let end = FRAME_HEADER_BYTES + length.next_multiple_of(8);
    if rest.len() < end {
        return Frame::Torn;
    }
    let payload = &rest[FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + length];
    if crate::checksum::crc32c(payload) != u32_at(header, 4) {
        return Frame::Damaged("the record does not match its checksum");
    }
    if rest[FRAME_HEADER_BYTES + length..end].iter().any(|&byte| byte != 0) {
        return Frame::Damaged("the record is not followed by zeros");
    }
    let (sequence, durable_through) = (u64_at(header, 8), u64_at(header, 16));
    Frame::Record { sequence, durable_through, payload, end: at + end }
}

/// Makes every checksum in a segment right again that a change of its bytes made wrong: for those who forge logs.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn make_checksums_right(segment: &mut [u8]) {
    let seal = |header: &mut [u8]| {
        let (bytes, crc) = header.split_at_mut(header.len() - 4);
        crc.copy_from_slice(&crate::checksum::crc32c(bytes).to_le_bytes());
    };
    if let Some(header) = segment.get_mut(..SEGMENT_HEADER_BYTES) {
        seal(header);
    }
    let mut at = SEGMENT_HEADER_BYTES;
    while segment.len().saturating_sub(at) >= FRAME_HEADER_BYTES {
        let (header, rest) = segment[at..].split_at_mut(FRAME_HEADER_BYTES);
        let length = u32_at(header, 0) as usize;
        let Some(payload) = rest.get(..length) else { return };
        header[4..8].copy_from_slice(&crate::checksum::crc32c(payload).to_le_bytes());
        seal(header);
        at += FRAME_HEADER_BYTES + length.next_multiple_of(8);
    }
}

/// How many bytes the frame takes that `bytes` begin with, padding included; `None` where no sound header stands.
pub(super) fn frame_end(bytes: &[u8]) -> Option<usize> {
    let header = bytes.get(..FRAME_HEADER_BYTES)?;
    let length = u32_at(header, 0) as usize;
    let sound = crate::checksum::crc32c(&header[..28]) == u32_at(header, 28) && length <= PAYLOAD_BYTES_MAX;
    sound.then(|| FRAME_HEADER_BYTES + length.next_multiple_of(8))
}

/// What a sound frame header says.
#[derive(Clone, Copy, Debug)]
pub(super) struct SoundFrame {
    pub(super) sequence: u64,
    /// How far the log was durable when it was made.
    pub(super) durable_through: u64,
    /// How many bytes the frame takes.
    pub(super) length: usize,
}

/// The frame that `bytes` begin with, where its header is sound, whatever became of its payload.
pub(super) fn sound_frame(bytes: &[u8]) -> Option<SoundFrame> {
    let length = frame_end(bytes)?;
    let (sequence, durable_through) = (u64_at(bytes, 8), u64_at(bytes, 16));
    (durable_through <= sequence).then_some(SoundFrame { sequence, durable_through, length })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_segment_header_survives_and_any_flipped_byte_is_seen() {
        let header =
            SegmentHeader { number: 3, store_id: 9, first_sequence: 77, boot: 1 << 100, durable_through: 70 };
        let bytes = header.encode();
        assert_eq!(SegmentHeader::decode(&bytes), Ok(header));
        for at in 0..SEGMENT_HEADER_BYTES {
            let mut damaged = bytes;
            damaged[at] ^= 1;
            assert_eq!(SegmentHeader::decode(&damaged), Err(HeaderFault::Damaged), "byte {at}");
        }
    }

    proptest! {
        #[test]
        fn every_cut_is_torn_and_every_flip_is_damage(payload in prop::collection::vec(any::<u8>(), 0..64), at: usize) {
            let mut segment = Vec::new();
            let start = begin_frame(&mut segment);
            segment.extend_from_slice(&payload);
            end_frame(&mut segment, start, payload.len(), 5, 4);
            let whole = matches!(decode_frame(&segment, 0), Frame::Record { sequence: 5, durable_through: 4, payload: p, end } if p == payload && end == segment.len());
            prop_assert!(whole);
            let cut = 1 + at % (segment.len() - 1);
            prop_assert!(matches!(decode_frame(&segment[..cut], 0), Frame::Torn));
            let place = at % segment.len();
            segment[place] ^= 1;
            prop_assert!(matches!(decode_frame(&segment, 0), Frame::Damaged(_)));
        }

        #[test]
        fn hostile_bytes_never_panic(segment in prop::collection::vec(any::<u8>(), 0..256), at in 0_usize..300) {
            let _ = decode_frame(&segment, at);
        }
    }
}
