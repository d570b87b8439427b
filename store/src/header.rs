//! What every file of the store begins with, but for the objects, which are not ours: 64 bytes that say what it is.
//!
//! ```text
//! magic 8 | format u32 | number u32 | store id u64 | 36 bytes of the kind's own, zeros where it has none
//!         | crc32c of these 60 u32
//! ```
//! All numbers are little-endian. The number is the file's own, as in its name; the identity of a store has 0.
//!
//! Whether a header is one of ours is decided here alone, in this order: another magic or a wrong checksum is damage,
//! and only a header that is whole is believed when it tells another format. What the fields of one kind mean is said
//! where that kind lives.

use crate::directory::FORMAT_VERSION;

pub(crate) const HEADER_BYTES: usize = 64;
/// What the checksum covers, and where it stands.
const CHECKED_BYTES: usize = 60;

/// The first bytes of a kind of file.
pub(crate) type Magic = [u8; 8];

/// Why bytes are not a header of this kind and format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderFault {
    /// They are of another kind, or not as they were written.
    Damaged,
    /// They are whole, and of this other format.
    Format(u32),
}

/// A header, be it of a file that is read or of one that is being made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header([u8; HEADER_BYTES]);

impl Header {
    /// A header of the present format, its own fields zero.
    pub(crate) fn new(magic: Magic, number: u32, store_id: u64) -> Self {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&magic);
        Header(bytes)
            .with(8, FORMAT_VERSION.to_le_bytes())
            .with(12, number.to_le_bytes())
            .with(16, store_id.to_le_bytes())
    }

    /// Puts one of the kind's own fields where it stands.
    pub(crate) fn with<const BYTES: usize>(mut self, at: usize, field: [u8; BYTES]) -> Self {
        self.0[at..at + BYTES].copy_from_slice(&field);
        self
    }

    /// The stored form.
    pub(crate) fn seal(self) -> [u8; HEADER_BYTES] {
        let crc = crate::checksum::crc32c(&self.0[..CHECKED_BYTES]);
        self.with(CHECKED_BYTES, crc.to_le_bytes()).0
    }

    /// Reads the stored form.
    pub(crate) fn read(magic: Magic, bytes: &[u8; HEADER_BYTES]) -> Result<Self, HeaderFault> {
        if bytes[..8] != magic
            || crate::checksum::crc32c(&bytes[..CHECKED_BYTES]) != u32_at(bytes, CHECKED_BYTES)
        {
            return Err(HeaderFault::Damaged);
        }
        match u32_at(bytes, 8) {
            FORMAT_VERSION => Ok(Header(*bytes)),
            found => Err(HeaderFault::Format(found)),
        }
    }

    pub(crate) fn number(&self) -> u32 {
        self.u32_at(12)
    }

    pub(crate) fn store_id(&self) -> u64 {
        self.u64_at(16)
    }

    pub(crate) fn u32_at(&self, at: usize) -> u32 {
        u32_at(&self.0, at)
    }

    pub(crate) fn u64_at(&self, at: usize) -> u64 {
        u64_at(&self.0, at)
    }

    pub(crate) fn u128_at(&self, at: usize) -> u128 {
        u128::from_le_bytes(bytes_at(&self.0, at))
    }
}

/// The format that bytes tell which begin with this magic, whether or not the rest of them is whole: for the one file
/// whose format is to be known whatever it is.
pub(crate) fn format_told(magic: Magic, bytes: &[u8]) -> Option<u32> {
    (bytes.len() >= 12 && bytes[..8] == magic).then(|| u32_at(bytes, 8))
}

/// The number that stands at a place which the bytes must have.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes_at(bytes, at))
}

/// The number that stands at a place which the bytes must have.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes_at(bytes, at))
}

fn bytes_at<const BYTES: usize>(bytes: &[u8], at: usize) -> [u8; BYTES] {
    std::array::from_fn(|i| bytes[at + i])
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAGIC: Magic = *b"FBTESTS\0";

    #[test]
    fn a_header_survives_its_stored_form_and_any_flipped_byte_is_seen() {
        let header = Header::new(MAGIC, 3, 9).with(24, u64::MAX.to_le_bytes()).with(44, [5; 16]);
        let bytes = header.seal();
        let found = Header::read(MAGIC, &bytes).unwrap();
        assert_eq!(
            (found.number(), found.store_id(), found.u64_at(24), found.u32_at(32)),
            (3, 9, u64::MAX, 0)
        );
        assert_eq!(found.u128_at(44), u128::from_le_bytes([5; 16]));
        assert_eq!(found.seal(), bytes);
        for at in 0..HEADER_BYTES {
            let mut damaged = bytes;
            damaged[at] ^= 1;
            assert_eq!(Header::read(MAGIC, &damaged), Err(HeaderFault::Damaged), "byte {at}");
        }
    }

    #[test]
    fn another_kind_is_damage_and_another_format_is_told_only_by_a_whole_header() {
        let next = Header::new(MAGIC, 3, 9).with(8, 7_u32.to_le_bytes());
        let mut bytes = next.seal();
        assert_eq!(Header::read(MAGIC, &bytes), Err(HeaderFault::Format(7)));
        assert_eq!(Header::read(*b"FBOTHER\0", &bytes), Err(HeaderFault::Damaged));
        bytes[50] ^= 1;
        assert_eq!(Header::read(MAGIC, &bytes), Err(HeaderFault::Damaged));
        assert_eq!((format_told(MAGIC, &bytes), format_told(MAGIC, &bytes[..12])), (Some(7), Some(7)));
        assert_eq!((format_told(MAGIC, &bytes[..11]), format_told(*b"FBOTHER\0", &bytes)), (None, None));
    }
}
