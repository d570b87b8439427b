//! Extents: append-only files of values.
//!
//! Text, bytes, lists and tensors do not lie in the table but in extents; the table holds a 16-byte [`View`] that says
//! where. An extent has exactly one writer for life, so value bytes move once, in parallel, outside every lock.
//!
//! Invariants
//! - A value is written once, before the log record that names it; from then on its bytes never change. That is what
//!   lets [`ValueBytes`] hand them out as `&[u8]`.
//! - Every value is followed by a trailer that says what it is, so that a damaged store can be checked without its log.
//! - Extent numbers are never used twice in a store; an extent that exists when a store is opened is never written again.
//!
//! Layout: a 64-byte header, then values. A value starts at a multiple of 64 (lists, tensors) or of 8 (text, bytes);
//! its trailer follows at the next multiple of 8. Sizes and offsets are drawn in `docs/format.md`.

mod layout;
mod reader;
mod stored;
mod view;
mod writer;

pub(crate) use layout::{ExtentHeader, Trailer};
pub use reader::ValueBytes;
pub(crate) use reader::{Extent, Extents};
pub(crate) use stored::{StoredValues, stored_bytes};
#[cfg(test)]
pub(crate) use view::INLINE_BYTES_MAX;
pub(crate) use view::View;
pub(crate) use writer::ValueSource;

use crate::directory::FORMAT_VERSION;

/// What begins an extent file.
pub(crate) const HEADER_BYTES: usize = 64;
const MAGIC: [u8; 8] = *b"FBEXTENT";

/// What follows each value: length u32, crc32c of the value u32, row key u64, table u32, column u32, extent u32,
/// crc32c of the 28 bytes before it u32.
pub(crate) const TRAILER_BYTES: usize = 32;

pub(crate) fn header(store_id: u64, extent: u32, capacity: u64) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&extent.to_le_bytes());
    bytes[16..24].copy_from_slice(&store_id.to_le_bytes());
    bytes[24..32].copy_from_slice(&capacity.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..60]);
    bytes[60..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Who a value belongs to, for its trailer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValueOwner {
    /// A hash of the row's version and sample id: known before the row has a number, and for good. All attempts at a
    /// sample share it.
    pub(crate) row_key: u64,
    pub(crate) table: u32,
    pub(crate) column: u32,
}

fn trailer(value: &[u8], owner: ValueOwner, extent: u32) -> [u8; TRAILER_BYTES] {
    let mut bytes = [0; TRAILER_BYTES];
    bytes[..4].copy_from_slice(&(value.len() as u32).to_le_bytes());
    bytes[4..8].copy_from_slice(&crc32c::crc32c(value).to_le_bytes());
    bytes[8..16].copy_from_slice(&owner.row_key.to_le_bytes());
    bytes[16..20].copy_from_slice(&owner.table.to_le_bytes());
    bytes[20..24].copy_from_slice(&owner.column.to_le_bytes());
    bytes[24..28].copy_from_slice(&extent.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..28]);
    bytes[28..].copy_from_slice(&crc.to_le_bytes());
    bytes
}
