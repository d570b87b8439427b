//! The values of one call that lie in lent extents: checked and closed together.
//!
//! A neighbour puts the values of a call behind each other. Such a run is read as a whole, each value in it is held against
//! its checksum, and what lies behind it against the trailer that the store would write. A neighbour that knows whose the values are
//! has put it there ([`CellName`](super::CellName)); where one is not there, they are put in and the run is written back. That
//! is two calls to the kernel for a run instead of two for each value, of which the small write was the dearer one: it costs as
//! much as the folio of the page cache is large that it falls into.

use std::io::ErrorKind;
use std::sync::Arc;

use super::lent::{ALIGN_BYTES, Lent};
use super::placed::Spot;
use crate::error::{Cause, Result};
use crate::extent::{TRAILER_BYTES, Trailer, ValueOwner};

/// The most that is read and written back at once: what the cache holds. A longer value is only read.
const RUN_BYTES_MAX: usize = 256 << 10;

/// A value that lies in a lent extent.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(super) lent: Arc<Lent>,
    pub(super) spot: Spot,
    pub(super) is_text: bool,
    pub(super) owner: ValueOwner,
}

/// Values that a call has taken and that are not closed yet. The places of those that never are go back.
#[derive(Debug, Default)]
pub(crate) struct TakenValues(Vec<Taken>);

impl TakenValues {
    /// Adds one. Its place was nobody's.
    pub(super) fn push(&mut self, value: Taken) {
        self.0.push(value);
    }

    /// Checks and closes all of them.
    ///
    /// # Errors
    /// `input` for the first whose bytes are others; what the disk says. None may be named then.
    pub(crate) fn close(&mut self) -> Result<()> {
        let (mut rest, mut buffer) = (&self.0[..], Vec::new());
        while let Some(first) = rest.first() {
            let (run, behind) = rest.split_at(run_of(rest));
            rest = behind;
            match run {
                [_] if first.place_bytes() > RUN_BYTES_MAX => first.close_alone(&mut buffer)?,
                _ => close_run(run, &mut buffer)?,
            }
        }
        self.0.clear();
        Ok(())
    }
}

impl Drop for TakenValues {
    fn drop(&mut self) {
        for value in &self.0 {
            value.lent.taken.lock().give_back(value.spot.offset..value.end() as u32);
        }
    }
}

/// How many values, from the first on, lie behind each other and are closed at once.
fn run_of(values: &[Taken]) -> usize {
    let start = values[0].spot.offset as usize;
    let joins = |pair: &&[Taken]| {
        let [before, value] = pair else { return false };
        value.follows(before) && value.end() - start <= RUN_BYTES_MAX
    };
    1 + values.windows(2).take_while(joins).count()
}

fn close_run(run: &[Taken], buffer: &mut Vec<u8>) -> Result<()> {
    let (Some(first), Some(last)) = (run.first(), run.last()) else { return Ok(()) };
    let start = first.spot.offset as usize;
    let bytes_of_run = scratch(buffer, last.end() - start);
    if first.lent.extent.read_at(bytes_of_run, start).is_err() {
        return run.iter().try_for_each(|value| value.close_alone(buffer)); // the one that fails is named
    }
    let mut is_closed = true;
    for value in run {
        let at = value.spot.offset as usize - start;
        let (bytes, behind) =
            bytes_of_run[at..at + value.place_bytes()].split_at_mut(value.spot.length as usize);
        value.check(crate::checksum::crc32c(bytes))?;
        if value.is_text && std::str::from_utf8(bytes).is_err() {
            return Err(value.misplaced("its bytes are no UTF-8"));
        }
        is_closed &= !value.put_behind(behind);
    }
    if is_closed {
        first.lent.extent.filled_by_other();
        return Ok(());
    }
    first.write(bytes_of_run, start)
}

/// So many bytes to read into. What was there before is not made zeros again.
fn scratch(buffer: &mut Vec<u8>, bytes: usize) -> &mut [u8] {
    if buffer.len() < bytes {
        buffer.resize(bytes, 0);
    }
    &mut buffer[..bytes]
}

/// The most that lies behind a value: the zeros up to its trailer, and that.
const TRAILED_BYTES_MAX: usize = 8 + TRAILER_BYTES;

impl Taken {
    /// What it takes, with its trailer.
    fn place_bytes(&self) -> usize {
        (self.spot.length as usize).next_multiple_of(8) + TRAILER_BYTES
    }

    fn end(&self) -> usize {
        self.spot.offset as usize + self.place_bytes()
    }

    /// Whether it lies right behind another.
    fn follows(&self, other: &Taken) -> bool {
        Arc::ptr_eq(&self.lent.extent, &other.lent.extent)
            && self.spot.offset as usize == other.end().next_multiple_of(ALIGN_BYTES)
    }

    /// Zeros and the trailer; as many of the last bytes belong behind the value as there is room.
    fn trailer(&self) -> [u8; TRAILED_BYTES_MAX] {
        let Spot { length, crc32c, .. } = self.spot;
        let (owner, generation) = (self.owner, self.lent.extent.generation());
        let trailer = Trailer { length, crc32c, owner, generation }.encode(self.lent.extent.number());
        let mut behind = [0; TRAILED_BYTES_MAX];
        behind[8..].copy_from_slice(&trailer);
        behind
    }

    /// Reads it through in pieces, and puts the trailer behind it.
    fn close_alone(&self, buffer: &mut Vec<u8>) -> Result<()> {
        let (offset, length) = (self.spot.offset as usize, self.spot.length as usize);
        let (mut crc, mut at) = (0, 0);
        let mut text = TextCheck::default();
        while at < length {
            let piece = scratch(buffer, RUN_BYTES_MAX.min(length - at));
            self.read(piece, offset + at)?;
            crc = crate::checksum::crc32c_append(crc, piece);
            at += piece.len();
            if self.is_text && !text.goes_on(piece, at == length) {
                return Err(self.misplaced("its bytes are no UTF-8"));
            }
        }
        self.check(crc)?;
        let mut behind = [0; TRAILED_BYTES_MAX];
        let behind = &mut behind[..self.place_bytes() - length];
        self.read(behind, offset + length)?;
        if self.put_behind(behind) {
            return self.write(behind, offset + length);
        }
        self.lent.extent.filled_by_other();
        Ok(())
    }

    /// Puts what follows the value where it is to be. Whether something else was there.
    fn put_behind(&self, behind: &mut [u8]) -> bool {
        let trailer = self.trailer();
        let expected = &trailer[TRAILED_BYTES_MAX - behind.len()..];
        let differs = *behind != *expected;
        behind.copy_from_slice(expected);
        differs
    }

    fn read(&self, into: &mut [u8], offset: usize) -> Result<()> {
        self.lent.extent.read_at(into, offset).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => self.misplaced("the file was cut short"),
            _ => Cause::io("read", self.lent.extent.path(), error).into(),
        })
    }

    fn write(&self, bytes: &[u8], offset: usize) -> Result<()> {
        let written = self.lent.extent.write_at(offset, bytes);
        written.map_err(|e| Cause::io("write to", self.lent.extent.path(), e).into())
    }

    fn check(&self, crc32c: u32) -> Result<()> {
        if crc32c == self.spot.crc32c { Ok(()) } else { Err(self.misplaced("other bytes lie there")) }
    }

    fn misplaced(&self, reason: &'static str) -> crate::Error {
        self.spot.misplaced(self.lent.extent.number(), reason)
    }
}

/// Whether bytes that come in pieces are text.
#[derive(Debug, Default)]
struct TextCheck {
    /// The beginning of a character that the last piece ended in.
    begun: Vec<u8>,
}

impl TextCheck {
    /// Whether all is text so far.
    fn goes_on(&mut self, piece: &[u8], is_last: bool) -> bool {
        let mut bytes = std::mem::take(&mut self.begun);
        bytes.extend_from_slice(piece);
        match std::str::from_utf8(&bytes) {
            Ok(_) => true,
            Err(error) if error.error_len().is_none() && !is_last => {
                self.begun = bytes.split_off(error.valid_up_to());
                true
            }
            Err(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_may_be_cut_anywhere_and_other_bytes_are_none() {
        let text = "a\u{e9}\u{20ac}\u{1f600}z".as_bytes();
        for cut in 0..=text.len() {
            let mut check = TextCheck::default();
            assert!(check.goes_on(&text[..cut], false) && check.goes_on(&text[cut..], true), "{cut}");
        }
        for (first, second) in [(&b"a\xff"[..], &b"b"[..]), (b"\xe2", b"a"), (b"a", b"\xe2\x82")] {
            let mut check = TextCheck::default();
            assert!(!(check.goes_on(first, false) && check.goes_on(second, true)), "{first:?} {second:?}");
        }
    }
}
