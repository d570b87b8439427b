//! Values that are held against the trailers behind them: always before they are moved, and as they are read where that is wished
//! ([`Options::check_values`](crate::Options::check_values)).
//!
//! A trailer lies in the same extent as its value, so nothing else is asked. Both are read through the mapping.

use super::file::Extent;
use super::layout::{TRAILER_BYTES, Trailer};
use super::view::View;
use crate::error::{Cause, Result};

impl Extent {
    /// The trailer of a value that lies in this generation of the extent, which is what its trailer says.
    ///
    /// # Errors
    /// `corrupt` with file, offset and reason.
    pub(super) fn sound_trailer(&self, view: View) -> Result<Trailer> {
        self.trailer_of(view).map_err(|why| {
            let reason =
                format!("a value of {} bytes, generation {}, {why}", view.length(), view.generation());
            Cause::Corrupt { path: self.path().to_owned(), offset: view.offset() as u64, reason }.into()
        })
    }

    fn trailer_of(&self, view: View) -> Result<Trailer, &'static str> {
        let end = (view.offset() + view.length()).next_multiple_of(8);
        let trailer = self.stable(end, TRAILER_BYTES).and_then(|bytes| bytes.first_chunk());
        let trailer = trailer.and_then(|bytes| Trailer::decode(bytes, self.number()));
        let trailer = trailer.ok_or("has no sound trailer")?;
        if !trailer.is_of(view) {
            return Err("has the trailer of another value");
        }
        let bytes = self.stable(view.offset(), view.length()).unwrap_or_default();
        match crate::checksum::crc32c(bytes) == trailer.crc32c {
            true => Ok(trailer),
            false => Err("does not match its checksum"),
        }
    }
}
