//! `system.extents`: a row an extent that may hold something to read.

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;

use super::Moment;
use super::fields::Fields;

pub(super) fn make(moment: &Moment) -> Result<RecordBatch, ArrowError> {
    let extents = moment.store.extents();
    Fields::default()
        .numbers("extent", extents.iter().map(|extent| u64::from(extent.number)))
        .numbers("generation", extents.iter().map(|extent| u64::from(extent.generation)))
        .numbers("bytes", extents.iter().map(|extent| extent.bytes))
        .numbers("live_bytes", extents.iter().map(|extent| extent.live_bytes))
        .numbers("live_values", extents.iter().map(|extent| extent.live_values))
        .bools("sealed", extents.iter().map(|extent| extent.sealed))
        .batch(extents.len())
}
