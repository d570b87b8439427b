//! Batches on their way out.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryViewArray, ListArray, ListViewArray, RecordBatch, new_empty_array};
use arrow_buffer::{Buffer, OffsetBuffer};
use arrow_data::{ByteView, MAX_INLINE_VIEW_LEN};
use arrow_schema::{ArrowError, DataType as ArrowType};
use arrow_select::concat::concat;

/// A binary value that is at least so long is a buffer of its own where it is left in its place.
const LEFT_BYTES_MIN: u32 = 64 << 10;

/// The same batch with only the bytes that it uses.
///
/// Text and binary columns of a scan or a claim are views over windows of mapped extents, and so are lists that were left
/// [in place](crate::Claim::columns_in_place): nothing is copied, but whoever
/// ships such a batch, or keeps it, ships or keeps whole windows, and holds their extents. Call this before a batch goes
/// out (to a file, over a wire) or is kept for long.
///
/// # Errors
/// Lists of more elements than an array can count; nothing else that a batch of this crate can cause: the columns keep their
/// types and lengths.
pub fn compact(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    of_columns(batch, compacted)
}

/// The same for whoever copies it at once and lets go of it, as the writer of a stream: only the bytes that it uses are in its buffers, but
/// long binary values stay where they lie, so their extents are held as long as it is.
///
/// # Errors
/// As [`compact`].
pub fn compact_to_copy(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    of_columns(batch, |column| match column.as_binary_view_opt().map(left) {
        Some(Some(left)) => left.map(|array| Arc::new(array) as ArrayRef),
        _ => compacted(column),
    })
}

fn of_columns(
    batch: &RecordBatch,
    of: impl Fn(&ArrayRef) -> Result<ArrayRef, ArrowError>,
) -> Result<RecordBatch, ArrowError> {
    RecordBatch::try_new(batch.schema(), batch.columns().iter().map(of).collect::<Result<_, _>>()?)
}

fn compacted(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    Ok(match column.data_type() {
        ArrowType::Utf8View => Arc::new(column.as_string_view().gc()),
        ArrowType::BinaryView => Arc::new(column.as_binary_view().gc()),
        ArrowType::ListView(_) => Arc::new(together(column.as_list_view())?),
        _ => column.clone(),
    })
}

/// The same values, each in a buffer of its own; none where some are too short for that.
fn left(values: &BinaryViewArray) -> Option<Result<BinaryViewArray, ArrowError>> {
    let (mut views, mut buffers): (Vec<u128>, Vec<Buffer>) = (Vec::with_capacity(values.len()), Vec::new());
    for (at, view) in values.views().iter().enumerate() {
        let view = if values.is_null(at) { ByteView::default() } else { ByteView::from(*view) };
        if view.length <= MAX_INLINE_VIEW_LEN {
            views.push(view.as_u128());
            continue;
        }
        if view.length < LEFT_BYTES_MIN {
            return None;
        }
        let (of, offset) = (&values.data_buffers()[view.buffer_index as usize], view.offset as usize);
        views.push(view.with_buffer_index(buffers.len() as u32).with_offset(0).as_u128());
        buffers.push(of.slice_with_length(offset, view.length as usize));
    }
    Some(BinaryViewArray::try_new(views.into(), buffers, values.nulls().cloned()))
}

/// The same lists, one behind the other.
fn together(lists: &ListViewArray) -> Result<ListViewArray, ArrowError> {
    let ArrowType::ListView(item) = lists.data_type() else { return Ok(lists.clone()) };
    let nothing = new_empty_array(item.data_type());
    let rows: Vec<ArrayRef> = lists.iter().map(|list| list.unwrap_or_else(|| nothing.clone())).collect();
    let lengths = || rows.iter().map(Array::len);
    let elements: usize = lengths().sum(); // of rows that share a value more than there are
    if i32::try_from(elements).is_err() {
        return Err(ArrowError::OffsetOverflowError(elements));
    }
    // One array alone would be given back as it is.
    let all: Vec<&dyn Array> = rows.iter().map(|row| &**row).chain([&*nothing, &*nothing]).collect();
    let values = concat(&all)?;
    let offsets = OffsetBuffer::from_lengths(lengths());
    Ok(ListArray::new(item.clone(), offsets, values, lists.nulls().cloned()).into())
}
