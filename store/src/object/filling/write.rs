//! The bytes of a filling, put where they belong by this process or by another one.

use std::ops::Range;
use std::sync::Arc;

use super::filled::Piece;
use super::{Filling, FillingRange};
use crate::error::{Cause, Result};
use crate::object::Dtype;
use crate::object::manifest::chunk_count;
use crate::object::set::too_long;

/// Zeros that fill a tensor up to where the next may begin.
pub(super) const PAD: [u8; 256] = [0; 256];

impl Filling {
    /// Fills a part of a tensor: `bytes` from byte `offset` of it on. Any number of threads may fill at a time, each its own
    /// ranges.
    ///
    /// # Errors
    /// `input` when there is no such tensor, or the bytes reach beyond it; `state` when another thread is filling a part of
    /// the range now, or the version is committed.
    pub fn write(&self, tensor: &str, offset: u64, bytes: &[u8]) -> Result<()> {
        let found = self.layout.tensor(tensor)?;
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= found.bytes);
        if end.is_none() {
            let found = format!("{} bytes at {offset}", bytes.len());
            return Err(too_long(tensor, found, self.layout.tensor(tensor)?.bytes).into());
        }
        self.write_payload(found.payload, found.offset + offset, bytes)
    }

    /// Fills a whole tensor, when it is what is meant.
    ///
    /// # Errors
    /// As for [`write`](Self::write), and `input` when the type or the shape is another.
    pub fn put(&self, tensor: &str, dtype: Dtype, shape: &[u64], bytes: &[u8]) -> Result<()> {
        let found = self.layout.tensor(tensor)?;
        if (found.dtype, &*found.shape) != (dtype, shape) {
            return Err(Cause::TensorMismatch {
                tensor: tensor.to_owned(),
                expected: format!("{} {:?}", found.dtype, found.shape),
                found: format!("{dtype} {shape:?}"),
            }
            .into());
        }
        if bytes.len() as u64 != found.bytes {
            return Err(too_long(tensor, format!("{} bytes", bytes.len()), found.bytes).into());
        }
        self.write(tensor, 0, bytes)
    }

    /// Fills a part of a memory class, whatever tensors lie there: `bytes` from byte `offset` of its payload on. For whoever
    /// has the whole class in one buffer of the same layout; what lies between tensors is kept as it is given.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn write_class(&self, class: &str, offset: u64, bytes: &[u8]) -> Result<()> {
        let payload = self.layout.payload(class)?;
        let there = self.layout.payloads()[payload].bytes;
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > there) {
            return Err(too_long(class, format!("{} bytes at {offset}", bytes.len()), there).into());
        }
        self.write_payload(payload, offset, bytes)
    }

    /// Lends a part of a memory class to a device, which writes it where it lies: `bytes` from byte `offset` of its payload on. Nothing
    /// where the payload lies in no mapping: it is to be written then.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn lend_class(
        self: &Arc<Self>,
        class: &str,
        offset: u64,
        bytes: u64,
    ) -> Result<Option<FillingRange>> {
        let payload = self.layout.payload(class)?;
        let there = self.layout.payloads()[payload].bytes;
        let Some(end) = offset.checked_add(bytes).filter(|end| *end <= there) else {
            return Err(too_long(class, format!("{bytes} bytes at {offset}"), there).into());
        };
        let range = offset..end + self.layout.pad_after(payload, end, bytes as usize);
        let pieces = self.take(payload, range.clone())?;
        Ok(FillingRange::new(self.clone(), payload, (range, end), pieces))
    }

    fn write_payload(&self, payload: usize, start: u64, bytes: &[u8]) -> Result<()> {
        let end = start + bytes.len() as u64;
        let range = start..end + self.layout.pad_after(payload, end, bytes.len());
        let mut pieces = self.take(payload, range.clone())?;
        let extent = &self.extents[payload];
        write_pieces(&mut pieces, start, bytes, |at, data, crc| extent.write_summed(at, data, crc));
        self.state.lock().payloads[payload].written(range, &pieces);
        Ok(())
    }

    fn take(&self, payload: usize, range: Range<u64>) -> Result<Vec<Piece>> {
        self.objects.check_open()?; // a forked child shares the memory with its parent
        let mut state = self.state.lock();
        self.check_phase(state.phase)?;
        state.payloads[payload].take(range.clone()).map_err(|busy| {
            let class = self.layout.payloads()[payload].class.clone();
            Cause::FillOverlap { key: self.key.clone(), class, start: busy.start, end: busy.end }.into()
        })
    }

    /// Says that another process has filled all of a memory class through a mapping of its own, and will not write there any
    /// more. Its bytes are read once, at the commit.
    ///
    /// # Errors
    /// As for [`write`](Self::write), and `input` where it was begun for no other process: its memory holds what was there before.
    pub fn filled_elsewhere(&self, class: &str) -> Result<()> {
        self.take_over(class, None)
    }

    /// As [`filled_elsewhere`](Self::filled_elsewhere), and says the crc32c of every chunk, as the other process has them of what it
    /// wrote. Its bytes are not read then: where others came to lie there, whoever verifies, moves or copies the version is told.
    ///
    /// # Errors
    /// As there, and `input` for another number of checksums than of chunks.
    pub fn filled_elsewhere_as(&self, class: &str, sums: &[u32]) -> Result<()> {
        self.take_over(class, Some(sums))
    }

    fn take_over(&self, class: &str, sums: Option<&[u32]>) -> Result<()> {
        self.objects.check_open()?;
        if self.is_ours {
            let reason = format!("object {:?} was given to no other process; write it here", self.key);
            return Err(Cause::Argument { what: "filling", reason }.into());
        }
        let payload = self.layout.payload(class)?;
        let range = 0..self.layout.payloads()[payload].bytes;
        let meant = chunk_count(range.end);
        if let Some(sums) = sums.filter(|sums| sums.len() != meant) {
            let reason = format!("{} checksums of {class:?}, which has {meant} chunks", sums.len());
            return Err(Cause::Argument { what: "checksums", reason }.into());
        }
        let mut pieces = self.take(payload, range.clone())?;
        for (at, piece) in pieces.iter_mut().enumerate() {
            piece.crc = piece.crc.and(sums.map(|sums| sums[at]));
        }
        self.state.lock().payloads[payload].written(range, &pieces);
        Ok(())
    }
}

/// Writes `bytes`, which begin at `start` of a payload, piece by piece with its checksum, and zeros behind them up to the end of the
/// last piece. `write` puts bytes at a place and adds them to a checksum.
pub(in crate::object) fn write_pieces(
    pieces: &mut [Piece],
    start: u64,
    bytes: &[u8],
    write: impl Fn(u64, &[u8], u32) -> u32,
) {
    let end = start + bytes.len() as u64;
    for piece in pieces {
        let data = &bytes[(piece.start.min(end) - start) as usize..(piece.end.min(end) - start) as usize];
        let mut crc = write(piece.start, data, piece.crc.unwrap_or(0));
        if piece.end > end {
            let pad = &PAD[..(piece.end - piece.start.max(end)) as usize];
            crc = write(piece.start.max(end), pad, crc);
        }
        piece.crc = piece.crc.map(|_| crc);
    }
}
