//! A value that another process has put into an extent that it was lent.

use std::ops::Range;
use std::sync::Arc;

use super::lent::{ALIGN_BYTES, LentExtent};
use super::loan::Loan;
use super::taken::Taken;
use crate::copy::StoreFence;
use crate::error::{Cause, Result};
use crate::extent::{HEADER_BYTES, Lifetime, TRAILER_BYTES, ValueOwner, ValueWriter, View};
use crate::schema::{DataType, Element, StorageClass};
use crate::store::Store;
use crate::value::tensor_bytes;

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
        if Arc::ptr_eq(&self.lent.0.store.0, &store.0) {
            return Ok(());
        }
        Err(self.misplaced("the extent is another store's"))
    }

    /// Makes the value part of the store, where it lies, once the writer is flushed. Where it cannot stay there its bytes are
    /// copied. Where it will lie goes to `view`.
    pub(crate) fn take(
        &self,
        writer: &mut ValueWriter<'_>,
        class: StorageClass,
        lifetime: Lifetime,
        owner: ValueOwner,
        fence: &StoreFence,
        view: &mut View,
    ) -> Result<()> {
        let place = self.place()?;
        *view = self.view();
        if view.is_inline(class) || lifetime != Lifetime::Version(self.lent.policy_version()) {
            return writer.write_among(&[&self.read()?], class, lifetime, owner, fence, view);
        }
        if !self.lent.0.taken.lock().take(place) {
            return Err(self.misplaced("another value lies there"));
        }
        let (lent, is_text) = (self.lent.0.clone(), self.kind == PlacedKind::Utf8);
        writer.hold(lent.extent.clone());
        writer.count(u64::from(self.spot.length));
        writer.taken().push(Taken { lent, spot: self.spot, is_text, owner });
        Ok(())
    }

    /// The bytes, in memory of their own, held against their checksum.
    ///
    /// # Errors
    /// `input` when they are not there, are others, or are no text where they should be.
    pub(crate) fn read(&self) -> Result<Vec<u8>> {
        self.place()?;
        let (extent, mut bytes) = (&self.lent.0.extent, vec![0; self.spot.length as usize]);
        extent.read_at(&mut bytes, self.spot.offset as usize).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => self.misplaced("the file was cut short"),
            _ => Cause::io("read", extent.path(), error).into(),
        })?;
        if crate::checksum::crc32c(&bytes) != self.spot.crc32c {
            return Err(self.misplaced("other bytes lie there"));
        }
        if self.kind == PlacedKind::Utf8 && std::str::from_utf8(&bytes).is_err() {
            return Err(self.misplaced("its bytes are no UTF-8"));
        }
        Ok(bytes)
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
        match end.filter(|end| is_aligned && *end as usize <= self.lent.0.extent.capacity()) {
            Some(end) => Ok(offset..end),
            None => Err(self.misplaced("no value can lie there")),
        }
    }

    fn misplaced(&self, reason: &'static str) -> crate::Error {
        self.spot.misplaced(self.lent.0.extent.number(), reason)
    }
}

impl Spot {
    /// Nothing that can be taken lies there, in an extent of that number.
    pub(super) fn misplaced(self, extent: u32, reason: &'static str) -> crate::Error {
        Cause::Misplaced { extent, offset: self.offset, bytes: self.length, reason }.into()
    }
}
