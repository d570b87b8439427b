//! A client on the server's machine that may open the store's files: values stay out of the socket.
//!
//! Values of [`PLACED_BYTES_MIN`] and more are put into extents that the server lends ([`Filling`]), and claims say where
//! their values lie, which are read through mappings ([`forebay_store::ValueReader`]). A client becomes a neighbour when
//! the server knows it for a process of its own user, and the store's files can be opened; else values go through
//! [slabs](crate::slabs), or are sent. Whatever goes wrong here does not fail a call either: then its values are sent.

mod fillers;
mod filling;
mod layouts;

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::RecordBatch;
use bytes::Bytes;
use forebay_store::{Hold, Lists, PlacedKind, Places, ValuePlace, ValueReader};

pub(crate) use fillers::{Fillers, Lender};
pub(crate) use filling::Filling;
pub(crate) use layouts::{Layout, Layouts};

use crate::error::Result;
use crate::wire::{self, proto};

/// Shorter values are sent, in bytes: to place one costs the server two calls to the kernel.
pub(crate) const PLACED_BYTES_MIN: usize = 1 << 10;

/// What a neighbour has.
#[derive(Debug)]
pub(crate) struct Neighbour {
    pub(crate) reader: Arc<ValueReader>,
    pub(crate) fillers: Fillers,
    pub(crate) layouts: Layouts,
}

impl Neighbour {
    /// Begins to be one, where that can be.
    pub(crate) fn begin(store_id: u64, found: &proto::Neighbourhood) -> Option<Self> {
        let directory = PathBuf::from(&found.directory);
        match ValueReader::open(&directory, store_id) {
            Ok(reader) => {
                reader.knows(found.commits);
                reader.check_values(found.check_values);
                let (fillers, layouts) = (Fillers::new(directory, store_id), Layouts::default());
                Some(Neighbour { reader, fillers, layouts })
            }
            Err(error) => {
                tracing::info!(%error, "the store's files cannot be opened from here, so values are sent");
                None
            }
        }
    }

    /// To be had before a question is asked whose answer names places; none where that cannot be, and values have to be
    /// sent.
    pub(crate) fn hold(&self) -> Option<Hold> {
        self.reader
            .hold()
            .inspect_err(
                |error| tracing::warn!(%error, "values are sent, for they cannot be held in their files"),
            )
            .ok()
    }
}

/// Columns with their values, where they were left in their files. Lists that were sent are where they came.
pub(crate) fn columns(hold: Option<&Hold>, batch: RecordBatch, lists: Lists) -> Result<RecordBatch> {
    let batch = match hold {
        Some(hold) => hold.columns(&Places::of_batch(batch), lists)?,
        None => batch,
    };
    if lists == Lists::InPlace { wire::as_views(&batch) } else { Ok(batch) }
}

/// The bytes of a value in its file.
pub(crate) fn value(hold: &Hold, place: ValuePlace) -> Result<Bytes> {
    Ok(Bytes::from_owner(hold.value(place)?))
}

/// The bytes of a value, and what kind it is, where it is worth being placed.
pub(crate) fn placeable<'v>(value: &'v forebay_store::Value<'_>) -> Option<(PlacedKind, &'v [u8])> {
    use forebay_store::Value;
    let found = match value {
        Value::Utf8(text) => (PlacedKind::Utf8, text.as_bytes()),
        Value::Binary(bytes) => (PlacedKind::Binary, &**bytes),
        Value::Numbers(element, bytes) => (PlacedKind::Numbers(*element), &**bytes),
        Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::Placed(_) => return None,
    };
    Some(found).filter(|(_, bytes)| bytes.len() >= PLACED_BYTES_MIN)
}
