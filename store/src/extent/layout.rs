//! The bytes around values: what begins an extent, and what follows each value.

use crate::directory::FORMAT_VERSION;

/// What begins an extent file.
pub(crate) const HEADER_BYTES: usize = 64;
/// What follows each value.
pub(crate) const TRAILER_BYTES: usize = 32;
const MAGIC: [u8; 8] = *b"FBEXTENT";

/// Whose file it is, and which generation of it is there.
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
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.store_id.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.capacity.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.generation.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// # Errors
    /// The reason why the bytes are not a header of this format.
    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, String> {
        let format = Self::format(bytes).ok_or("the extent's header does not match its checksum")?;
        if format != FORMAT_VERSION {
            return Err(format!("the extent has format {format}, this program reads {FORMAT_VERSION}"));
        }
        let (number, generation) = (u32_at(bytes, 12), u32_at(bytes, 32));
        let (store_id, capacity) = (u64_at(bytes, 16), u64_at(bytes, 24));
        Ok(ExtentHeader { number, generation, store_id, capacity })
    }

    /// The format version of a whole header, whatever else is in it.
    pub(super) fn format(bytes: &[u8; HEADER_BYTES]) -> Option<u32> {
        let whole = bytes[..8] == MAGIC && crc32c::crc32c(&bytes[..60]) == u32_at(bytes, 60);
        whole.then(|| u32_at(bytes, 8))
    }
}

impl Trailer {
    /// The stored form. The trailer's own checksum covers the extent's number too, so that one that was copied from
    /// another extent is found out.
    pub(crate) fn encode(&self, extent: u32) -> [u8; TRAILER_BYTES] {
        let mut bytes = [0; TRAILER_BYTES];
        bytes[..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.crc32c.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.owner.row_key.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.owner.table.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.owner.column.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.generation.to_le_bytes());
        let crc = own_crc(&bytes, extent);
        bytes[28..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The trailer that lies in `extent`, where its own checksum is right.
    pub(crate) fn decode(bytes: &[u8; TRAILER_BYTES], extent: u32) -> Option<Self> {
        if own_crc(bytes, extent) != u32_at(bytes, 28) {
            return None;
        }
        let owner =
            ValueOwner { row_key: u64_at(bytes, 8), table: u32_at(bytes, 16), column: u32_at(bytes, 20) };
        let (length, crc32c, generation) = (u32_at(bytes, 0), u32_at(bytes, 4), u32_at(bytes, 24));
        Some(Trailer { length, crc32c, owner, generation })
    }
}

fn own_crc(bytes: &[u8; TRAILER_BYTES], extent: u32) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..28]), &extent.to_le_bytes())
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

    #[test]
    fn what_was_written_is_read_back_and_a_flipped_byte_is_seen() {
        let header = ExtentHeader { number: 3, generation: 5, store_id: 9, capacity: 4096 };
        let bytes = header.encode();
        assert_eq!(ExtentHeader::decode(&bytes), Ok(header));
        let owner = ValueOwner { row_key: u64::MAX - 5, table: 1, column: 2 };
        let trailer = Trailer { length: 5, crc32c: crc32c::crc32c(b"value"), owner, generation: 4 };
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
