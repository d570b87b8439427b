//! Batches on their way out.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, ListArray, ListViewArray, RecordBatch, new_empty_array};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{ArrowError, DataType as ArrowType};
use arrow_select::concat::concat;

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
    let compacted = |column: &ArrayRef| -> Result<ArrayRef, ArrowError> {
        Ok(match column.data_type() {
            ArrowType::Utf8View => Arc::new(column.as_string_view().gc()),
            ArrowType::BinaryView => Arc::new(column.as_binary_view().gc()),
            ArrowType::ListView(_) => Arc::new(together(column.as_list_view())?),
            _ => column.clone(),
        })
    };
    RecordBatch::try_new(batch.schema(), batch.columns().iter().map(compacted).collect::<Result<_, _>>()?)
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
