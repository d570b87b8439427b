//! A digest of rows by everything but their data: which they are, and where they stood.
//!
//! Data cells are written once and their status says whether they are, so two instants of a version with the same digest
//! have the same rows to the byte. It does not depend on how the rows are cut into batches, nor on whether texts are views
//! (as in the store) or strings (as in files): both have the same bytes as rows.

use arrow::row::{RowConverter, SortField};
use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, Schema};
use xxhash_rust::xxh3::Xxh3;

use super::upload::plain_type;

/// The positions of the columns that are digested: those of the classes `meta` and `status`.
pub(super) fn digested(schema: &Schema) -> Vec<usize> {
    let class = |at: usize| schema.field(at).metadata().get("class").map(String::as_str);
    (0..schema.fields().len()).filter(|at| matches!(class(*at), Some("meta" | "status"))).collect()
}

/// Takes rows in their order.
pub(super) struct Digest {
    converter: RowConverter,
    hasher: Xxh3,
    rows: u64,
}

impl Digest {
    /// Of rows whose digested columns are those of `schema`.
    pub(super) fn new(schema: &Schema) -> Result<Self, ArrowError> {
        let mut hasher = Xxh3::new();
        for field in schema.fields() {
            hasher.update(format!("{}: {};", field.name(), plain_type(field.data_type())).as_bytes());
        }
        let fields = schema.fields().iter().map(|field| SortField::new(field.data_type().clone())).collect();
        Ok(Digest { converter: RowConverter::new(fields)?, hasher, rows: 0 })
    }

    /// The next rows; only digested columns, in their order.
    pub(super) fn update(&mut self, batch: &RecordBatch) -> Result<(), ArrowError> {
        let rows = self.converter.convert_columns(batch.columns())?;
        for row in &rows {
            self.hasher.update(&(row.data().len() as u64).to_le_bytes());
            self.hasher.update(row.data());
        }
        self.rows += batch.num_rows() as u64;
        Ok(())
    }

    /// How many rows there were.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// In hexadecimal.
    pub(super) fn finish(self) -> String {
        format!("{:032x}", self.hasher.digest128())
    }
}
