//! A value that another process has put into an extent that it was lent.

use std::ops::Range;
use std::sync::Arc;

use super::lent::{ALIGN_BYTES, LentExtent};
use super::loan::Loan;
use crate::error::{Cause, Result};
use crate::extent::{HEADER_BYTES, Lifetime, TRAILER_BYTES, Trailer, ValueOwner, ValueWriter, View};
use crate::schema::{DataType, Element, StorageClass};
use crate::store::Store;
use crate::value::tensor_bytes;

/// How much of a value is held at once while it is checked.
const PIECE_BYTES: usize = 64 << 10;

/// Where a value was put, and what its bytes add up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// From the start of the extent, in bytes: a multiple of 64.
    pub offset: u32,
    /// In bytes.
    pub length: u32,
    /// Of the bytes.
    pub crc32c: u32,
}

/// What kind of value was put somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacedKind {
    /// Text.
    Utf8,
    /// Bytes.
    Binary,
    /// Raw little-endian numbers.
    Numbers(Element),
}

/// A value that lies in a lent extent already: see [`LentExtent::value`].
#[derive(Clone, Copy, Debug)]
pub struct Placed<'a> {
    pub(crate) lent: &'a LentExtent,
    pub(crate) kind: PlacedKind,
    pub(crate) spot: Spot,
}

impl PartialEq for Placed<'_> {
    fn eq(&self, other: &Self) -> bool {
        (self.lent.loan(), self.kind, self.spot) == (other.lent.loan(), other.kind, other.spot)
    }
}

impl Placed<'_> {
    /// What was lent that it lies in.
    pub fn loan(&self) -> Loan {
        self.lent.loan()
    }

    /// What kind of value it is said to be.
    pub fn kind(&self) -> PlacedKind {
        self.kind
    }

    /// Where it is said to lie.
    pub fn spot(&self) -> Spot {
        self.spot
    }

    /// How many bytes it is said to have.
    pub(crate) fn bytes(&self) -> usize {
        self.spot.length as usize
    }

    /// Whether a column of that type can hold it.
    pub(crate) fn fits(&self, data_type: &DataType) -> bool {
        match (self.kind, data_type) {
            (PlacedKind::Utf8, DataType::Utf8) | (PlacedKind::Binary, DataType::Binary) => true,
            (PlacedKind::Numbers(found), DataType::List(element)) => {
                found == *element && self.bytes().is_multiple_of(element.width_bytes())
            }
            (PlacedKind::Numbers(found), DataType::Tensor(element, shape)) => {
                found == *element && self.bytes() == tensor_bytes(*element, shape)
            }
            _ => false,
        }
    }

    /// Whether it was lent by that store.
    pub(crate) fn check_store(&self, store: &Store) -> Result<()> {
        if Arc::ptr_eq(&self.lent.store.0, &store.0) {
            return Ok(());
        }
        Err(self.misplaced("the extent is another store's"))
    }

    /// Makes the value part of the store, where it lies. Where it cannot stay there it is given back as bytes.
    pub(crate) fn take(
        &self,
        writer: &mut ValueWriter<'_>,
        class: StorageClass,
        lifetime: Lifetime,
        owner: ValueOwner,
    ) -> Result<View> {
        let (view, place) = (self.view(), self.place()?);
        if self.kind == PlacedKind::Utf8 || view.is_inline(class) || !self.is_at_home(lifetime) {
            let bytes = self.read()?;
            if view.is_inline(class) || !self.is_at_home(lifetime) {
                return writer.write(&[&bytes], class, lifetime, owner);
            }
        } else {
            self.check_bytes()?;
        }
        if !self.lent.taken.lock().take(place) {
            return Err(self.misplaced("another value lies there"));
        }
        self.close(owner)?;
        writer.hold(self.lent.extent.clone());
        writer.count(u64::from(self.spot.length));
        Ok(view)
    }

    /// The bytes, in memory of their own, held against their checksum.
    ///
    /// # Errors
    /// `input` when they are not there, are others, or are no text where they should be.
    pub(crate) fn read(&self) -> Result<Vec<u8>> {
        self.place()?;
        let mut bytes = vec![0; self.spot.length as usize];
        self.read_at(&mut bytes, 0)?;
        self.check_sum(crc32c::crc32c(&bytes))?;
        if self.kind == PlacedKind::Utf8 && std::str::from_utf8(&bytes).is_err() {
            return Err(self.misplaced("its bytes are no UTF-8"));
        }
        Ok(bytes)
    }

    fn is_at_home(&self, lifetime: Lifetime) -> bool {
        lifetime == Lifetime::Version(self.lent.policy_version())
    }

    fn view(&self) -> View {
        let Loan { extent, generation, .. } = self.lent.loan();
        View::located(self.spot.length, extent, generation, self.spot.offset)
    }

    /// What it takes of the extent, with what follows it.
    fn place(&self) -> Result<Range<u32>> {
        let Spot { offset, length, .. } = self.spot;
        let is_aligned = (offset as usize).is_multiple_of(ALIGN_BYTES) && offset as usize >= HEADER_BYTES;
        let end = offset.checked_add(length).and_then(|end| end.checked_next_multiple_of(8));
        let end = end.and_then(|end| end.checked_add(TRAILER_BYTES as u32));
        match end.filter(|end| is_aligned && *end as usize <= self.lent.extent.capacity()) {
            Some(end) => Ok(offset..end),
            None => Err(self.misplaced("no value can lie there")),
        }
    }

    /// Reads it through once, without believing that it stays.
    fn check_bytes(&self) -> Result<()> {
        let length = self.spot.length as usize;
        let mut piece = vec![0; length.min(PIECE_BYTES)];
        let (mut crc, mut at) = (0, 0);
        while at < length {
            let piece = &mut piece[..PIECE_BYTES.min(length - at)];
            self.read_at(piece, at)?;
            crc = crc32c::crc32c_append(crc, piece);
            at += piece.len();
        }
        self.check_sum(crc)
    }

    fn read_at(&self, into: &mut [u8], at: usize) -> Result<()> {
        let offset = self.spot.offset as usize + at;
        self.lent.extent.read_at(into, offset).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => self.misplaced("the file was cut short"),
            _ => Cause::io("read", self.lent.extent.path(), error).into(),
        })
    }

    fn check_sum(&self, crc32c: u32) -> Result<()> {
        if crc32c == self.spot.crc32c { Ok(()) } else { Err(self.misplaced("other bytes lie there")) }
    }

    /// Puts zeros and the trailer behind it.
    fn close(&self, owner: ValueOwner) -> Result<()> {
        let Spot { offset, length, crc32c } = self.spot;
        let generation = self.lent.extent.generation();
        let trailer = Trailer { length, crc32c, owner, generation }.encode(self.lent.extent.number());
        let end = (offset + length) as usize;
        let zeros = end.next_multiple_of(8) - end;
        let mut behind = [0; 8 + TRAILER_BYTES];
        behind[zeros..zeros + TRAILER_BYTES].copy_from_slice(&trailer);
        let written = self.lent.extent.write_at(end, &behind[..zeros + TRAILER_BYTES]);
        written.map_err(|e| Cause::io("write to", self.lent.extent.path(), e).into())
    }

    fn misplaced(&self, reason: &'static str) -> crate::Error {
        let (extent, Spot { offset, length: bytes, .. }) = (self.lent.extent.number(), self.spot);
        Cause::Misplaced { extent, offset, bytes, reason }.into()
    }
}
