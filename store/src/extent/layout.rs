//! The bytes around values: what begins an extent, and what follows each value.

use super::view::View;
use crate::directory::FORMAT_VERSION;
pub(crate) use crate::header::HEADER_BYTES;
use crate::header::{Header, HeaderFault, Magic, u32_at, u64_at};

/// What follows each value.
pub(crate) const TRAILER_BYTES: usize = 32;
const MAGIC: Magic = *b"FBEXTENT";

/// Whose file it is, and which generation of it is there. After what every file begins with: capacity u64, generation
/// u32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExtentHeader {
    pub(crate) number: u32,
    pub(crate) generation: u32,
    pub(crate) store_id: u64,
    /// The file's length, header included.
    pub(crate) capacity: u64,
}

/// Who a value belongs to, for its trailer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ValueOwner {
    /// A hash of the row's version and sample id: known before the row has a number, and for good. All attempts at a
    /// sample share it.
    pub(crate) row_key: u64,
    pub(crate) table: u32,
    pub(crate) column: u32,
}

/// What a value's trailer says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trailer {
    pub(crate) length: u32,
    /// Of the value.
    pub(crate) crc32c: u32,
    pub(crate) owner: ValueOwner,
    pub(crate) generation: u32,
}

impl ExtentHeader {
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        Header::new(MAGIC, self.number, self.store_id)
            .with(24, self.capacity.to_le_bytes())
            .with(32, self.generation.to_le_bytes())
            .seal()
    }

    /// # Errors
    /// The reason why the bytes are not a header of this format.
    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, String> {
        Self::read(bytes).map_err(|fault| match fault {
            HeaderFault::Damaged => "the extent's header does not match its checksum".to_owned(),
            HeaderFault::Format(format) => {
                format!("the extent has format {format}, this program reads {FORMAT_VERSION}")
            }
        })
    }

    /// As [`decode`](Self::decode), for who tells another format apart.
    pub(super) fn read(bytes: &[u8; HEADER_BYTES]) -> Result<Self, HeaderFault> {
        let header = Header::read(MAGIC, bytes)?;
        let (number, store_id) = (header.number(), header.store_id());
        Ok(ExtentHeader { number, generation: header.u32_at(32), store_id, capacity: header.u64_at(24) })
    }
}

impl Trailer {
    /// The stored form. The trailer's own checksum covers the extent's number too, so that one that was copied from
    /// another extent is found out.
    pub(crate) fn encode(&self, extent: u32) -> [u8; TRAILER_BYTES] {
        let Trailer { length, crc32c, owner, generation } = *self;
        let words @ [lengths, key, cell] =
            [pair(length, crc32c), owner.row_key.to_le(), pair(owner.table, owner.column)];
        bytemuck::cast([lengths, key, cell, pair(generation, own_crc(words, generation, extent))])
    }

    /// The trailer that lies in `extent`, where its own checksum is right.
    pub(crate) fn decode(bytes: &[u8; TRAILER_BYTES], extent: u32) -> Option<Self> {
        let [lengths, key, cell, _]: [u64; 4] = bytemuck::cast(*bytes);
        let generation = u32_at(bytes, 24);
        if own_crc([lengths, key, cell], generation, extent) != u32_at(bytes, 28) {
            return None;
        }
        let owner =
            ValueOwner { row_key: u64_at(bytes, 8), table: u32_at(bytes, 16), column: u32_at(bytes, 20) };
        let (length, crc32c) = (u32_at(bytes, 0), u32_at(bytes, 4));
        Some(Trailer { length, crc32c, owner, generation })
    }

    /// Whether it says that it follows that value, for all that a view says of one.
    pub(crate) fn is_of(&self, view: View) -> bool {
        (self.length as usize, self.generation) == (view.length(), view.generation())
    }
}

/// Two numbers in the order in which they are stored, as one. Whoever reads them next, a checksum first, takes eight bytes at a time:
/// had they been stored in smaller pieces, a processor would not read them before all stores that came earlier, the value's own, had
/// left it.
pub(super) fn pair(first: u32, second: u32) -> u64 {
    (u64::from(second) << 32 | u64::from(first)).to_le()
}

/// Of a trailer's first three words as they are stored, of the generation, and of the extent's number, which stands in the checksum's
/// own place.
fn own_crc([lengths, key, cell]: [u64; 3], generation: u32, extent: u32) -> u32 {
    crate::checksum::crc32c(bytemuck::bytes_of(&[lengths, key, cell, pair(generation, extent)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_back_and_a_flipped_byte_is_seen() {
        let header = ExtentHeader { number: 3, generation: 5, store_id: 9, capacity: 4096 };
        let bytes = header.encode();
        assert_eq!(ExtentHeader::decode(&bytes), Ok(header));
        let owner = ValueOwner { row_key: u64::MAX - 5, table: 1, column: 2 };
        let trailer = Trailer { length: 5, crc32c: crate::checksum::crc32c(b"value"), owner, generation: 4 };
        let end = trailer.encode(3);
        assert_eq!(Trailer::decode(&end, 3), Some(trailer));
        assert_eq!(Trailer::decode(&end, 4), None, "copied from another extent");
        for at in 0..HEADER_BYTES {
            let mut damaged = bytes;
            damaged[at] ^= 1;
            assert!(ExtentHeader::decode(&damaged).is_err(), "byte {at} of the header");
        }
        for at in 0..TRAILER_BYTES {
            let mut damaged = end;
            damaged[at] ^= 1;
            assert!(Trailer::decode(&damaged, 3).is_none(), "byte {at} of the trailer");
        }
    }
}
