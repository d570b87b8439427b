//! Batches on their way out.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, DataType as ArrowType};

/// The same batch with only the bytes that it uses.
///
/// Text and binary columns of a scan or a claim are views over windows of mapped extents: nothing is copied, but whoever
/// ships such a batch, or keeps it, ships or keeps whole windows, and holds their extents. Call this before a batch goes
/// out (to a file, over a wire) or is kept for long.
///
/// # Errors
/// None that a batch of this crate can cause: the columns keep their types and lengths.
pub fn compact(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let compacted = |column: &ArrayRef| -> ArrayRef {
        match column.data_type() {
            ArrowType::Utf8View => Arc::new(column.as_string_view().gc()),
            ArrowType::BinaryView => Arc::new(column.as_binary_view().gc()),
            _ => column.clone(),
        }
    };
    RecordBatch::try_new(batch.schema(), batch.columns().iter().map(compacted).collect())
}
