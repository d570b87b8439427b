//! Reads headers and trailers back, for those who check an extent and trust nothing in it.

use super::{HEADER_BYTES, MAGIC, TRAILER_BYTES, ValueOwner};
use crate::directory::FORMAT_VERSION;

/// What an extent's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExtentHeader {
    pub(crate) number: u32,
    pub(crate) store_id: u64,
    pub(crate) capacity: u64,
}

/// What the trailer of a value says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trailer {
    pub(crate) length: u32,
    pub(crate) crc32c: u32,
    pub(crate) owner: ValueOwner,
    pub(crate) extent: u32,
}

impl ExtentHeader {
    /// # Errors
    /// The reason why the bytes are not a header of this format.
    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, String> {
        if bytes[..8] != MAGIC || crc32c::crc32c(&bytes[..60]) != u32_at(bytes, 60) {
            return Err("the extent's header does not match its checksum".to_owned());
        }
        let format = u32_at(bytes, 8);
        if format != FORMAT_VERSION {
            return Err(format!("the extent has format {format}, this program reads {FORMAT_VERSION}"));
        }
        let (number, store_id, capacity) = (u32_at(bytes, 12), u64_at(bytes, 16), u64_at(bytes, 24));
        Ok(ExtentHeader { number, store_id, capacity })
    }
}

impl Trailer {
    /// The trailer, where its own checksum is right.
    pub(crate) fn decode(bytes: &[u8; TRAILER_BYTES]) -> Option<Self> {
        if crc32c::crc32c(&bytes[..28]) != u32_at(bytes, 28) {
            return None;
        }
        let owner =
            ValueOwner { row_key: u64_at(bytes, 8), table: u32_at(bytes, 16), column: u32_at(bytes, 20) };
        let (length, crc32c, extent) = (u32_at(bytes, 0), u32_at(bytes, 4), u32_at(bytes, 24));
        Some(Trailer { length, crc32c, owner, extent })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extent::{header, trailer};

    #[test]
    fn what_was_written_is_read_back_and_a_flipped_byte_is_seen() {
        let bytes = header(9, 3, 4096);
        assert_eq!(ExtentHeader::decode(&bytes), Ok(ExtentHeader { number: 3, store_id: 9, capacity: 4096 }));
        let owner = ValueOwner { row_key: 77, table: 1, column: 2 };
        let end = trailer(b"value", owner, 3);
        let read = Trailer::decode(&end).unwrap();
        assert_eq!((read.length, read.crc32c, read.extent), (5, crc32c::crc32c(b"value"), 3));
        assert_eq!((read.owner.row_key, read.owner.table, read.owner.column), (77, 1, 2));
        for at in 0..HEADER_BYTES {
            let mut damaged = bytes;
            damaged[at] ^= 1;
            assert!(ExtentHeader::decode(&damaged).is_err(), "byte {at} of the header");
        }
        for at in 0..TRAILER_BYTES {
            let mut damaged = end;
            damaged[at] ^= 1;
            assert!(Trailer::decode(&damaged).is_none(), "byte {at} of the trailer");
        }
    }
}
