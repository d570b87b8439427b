//! Values that are held against their checksums as they are read, where that is wished
//! ([`Options::check_values`](crate::Options::check_values)).
//!
//! A value's trailer lies behind it in the same extent, so nothing else is asked. It is read through the mapping, like the value
//! itself: a file that cannot be read ends the process by a signal that is named before ([`fault`](crate::disk)), checked or not.

use super::file::Extent;
use super::layout::{TRAILER_BYTES, Trailer};
use crate::error::{Cause, Result};

impl Extent {
    /// Holds the value of `length` bytes at `offset` against the trailer behind it.
    ///
    /// # Errors
    /// `corrupt` with file, offset and reason.
    pub(super) fn check_value(&self, offset: usize, length: usize) -> Result<()> {
        let Some(reason) = self.why_unsound(offset, length) else { return Ok(()) };
        let reason = format!("a value of {length} bytes, generation {}, {reason}", self.generation());
        let error = Cause::Corrupt { path: self.path().to_owned(), offset: offset as u64, reason };
        tracing::error!(%error, "a damaged value is not given");
        Err(error.into())
    }

    fn why_unsound(&self, offset: usize, length: usize) -> Option<&'static str> {
        let end = (offset + length).next_multiple_of(8);
        let trailer = self.stable(end, TRAILER_BYTES).and_then(|bytes| bytes.first_chunk());
        let Some(trailer) = trailer.and_then(|bytes| Trailer::decode(bytes, self.number())) else {
            return Some("has no sound trailer");
        };
        if (trailer.length as usize, trailer.generation) != (length, self.generation()) {
            return Some("has the trailer of another value");
        }
        let bytes = self.stable(offset, length).unwrap_or_default();
        (crate::checksum::crc32c(bytes) != trailer.crc32c).then_some("does not match its checksum")
    }
}
