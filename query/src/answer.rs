//! What a query answers.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

/// The rows that a query gave, as Arrow record batches.
///
/// [`Answer::render`] writes it for people and programs.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The columns, there also when no row is.
    pub schema: SchemaRef,
    /// The rows, in the order of the query.
    pub batches: Vec<RecordBatch>,
    /// Whether there are more rows, which [`Options::rows_max`](crate::Options::rows_max) cut off.
    pub cut: bool,
}

impl Answer {
    /// How many rows there are.
    pub fn row_count(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }
}
