//! Columns of a system table, added one by one.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, ListArray, RecordBatch, RecordBatchOptions, StringArray, StructArray,
    TimestampMicrosecondArray, UInt64Array,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{ArrowError, DataType, Field, Schema};
use forebay_store::Timestamp;

/// The columns so far.
#[derive(Default)]
pub(super) struct Fields {
    fields: Vec<Field>,
    arrays: Vec<ArrayRef>,
}

impl Fields {
    fn add(mut self, name: &str, nullable: bool, array: ArrayRef) -> Self {
        self.fields.push(Field::new(name, array.data_type().clone(), nullable));
        self.arrays.push(array);
        self
    }

    pub(super) fn texts<T: AsRef<str>>(self, name: &str, values: impl Iterator<Item = T>) -> Self {
        self.add(name, false, Arc::new(StringArray::from_iter(values.map(Some))))
    }

    pub(super) fn optional_texts<T: AsRef<str>>(
        self,
        name: &str,
        values: impl Iterator<Item = Option<T>>,
    ) -> Self {
        self.add(name, true, Arc::new(StringArray::from_iter(values)))
    }

    pub(super) fn bools(self, name: &str, values: impl Iterator<Item = bool>) -> Self {
        self.add(name, false, Arc::new(BooleanArray::from_iter(values.map(Some))))
    }

    pub(super) fn numbers(self, name: &str, values: impl Iterator<Item = u64>) -> Self {
        self.add(name, false, Arc::new(UInt64Array::from_iter_values(values)))
    }

    pub(super) fn optional_numbers(self, name: &str, values: impl Iterator<Item = Option<u64>>) -> Self {
        self.add(name, true, Arc::new(UInt64Array::from_iter(values)))
    }

    /// Moments, UTC.
    pub(super) fn times(self, name: &str, values: impl Iterator<Item = Timestamp>) -> Self {
        let times = TimestampMicrosecondArray::from_iter_values(values.map(|time| time.0));
        self.add(name, false, Arc::new(times.with_timezone("+00:00")))
    }

    /// Moments that may not have come yet, UTC.
    pub(super) fn optional_times(self, name: &str, values: impl Iterator<Item = Option<Timestamp>>) -> Self {
        let times = TimestampMicrosecondArray::from_iter(values.map(|time| time.map(|time| time.0)));
        self.add(name, true, Arc::new(times.with_timezone("+00:00")))
    }

    /// A list a row, of `lengths` entries each, whose entries together are the rows of `entries`.
    pub(super) fn lists(
        self,
        name: &str,
        lengths: impl Iterator<Item = usize>,
        entries: Fields,
    ) -> Result<Self, ArrowError> {
        let entries = StructArray::try_new(entries.fields.into(), entries.arrays, None)?;
        let item = Field::new_list_field(DataType::Struct(entries.fields().clone()), false);
        let offsets = OffsetBuffer::from_lengths(lengths);
        let lists = ListArray::try_new(Arc::new(item), offsets, Arc::new(entries), None)?;
        Ok(self.add(name, false, Arc::new(lists)))
    }

    pub(super) fn batch(self, rows: usize) -> Result<RecordBatch, ArrowError> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::new(Schema::new(self.fields)), self.arrays, &options)
    }
}
