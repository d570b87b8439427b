//! Columns that say where values lie, and what they are once one who may read there has them.
//!
//! A column of texts, bytes, lists or tensors goes as its [views](View), 16 bytes a row, which hold what is short and say of
//! the rest where it lies; its type goes along in the field's metadata. All other columns go as they are. With the schema goes
//! how many records the store had when the rows were looked at.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::builder::FixedSizeBinaryBuilder;
use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, FixedSizeBinaryArray, RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, DataType as ArrowType, Field, Schema, SchemaRef};

use crate::error::{Cause, Result};
use crate::extent::{Extents, View};
use crate::log::record::StoredValue;
use crate::schema::{DataType, StorageClass};
use crate::snapshot::{GatheredColumn, Lists, data_array};

const TYPE: &str = "forebay.placed";
const COMMITS: &str = "forebay.commits";
const VIEW_BYTES: i32 = 16;

/// Columns of a claim's rows, with values that lie in extents left where they are: see [`Claim::places`](crate::Claim::places)
/// and [`Hold::columns`](crate::Hold::columns).
#[derive(Clone, Debug, PartialEq)]
pub struct Places(RecordBatch);

impl Places {
    /// Puts columns together: finished arrays, or values with their type.
    pub(crate) fn new(
        schema: &SchemaRef,
        rows: usize,
        columns: impl IntoIterator<Item = GatheredColumn>,
        commits: u64,
    ) -> Result<Self> {
        let (mut fields, mut arrays) = (Vec::new(), Vec::new());
        for (field, column) in schema.fields().iter().zip(columns) {
            let (field, array) = placed(column, field)?;
            fields.push(field);
            arrays.push(array);
        }
        let metadata = HashMap::from([(COMMITS.to_owned(), commits.to_string())]);
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let schema = Arc::new(Schema::new_with_metadata(fields, metadata));
        RecordBatch::try_new_with_options(schema, arrays, &options).map(Places).map_err(unfit)
    }

    /// As a plain batch, to be sent.
    pub fn batch(&self) -> &RecordBatch {
        &self.0
    }

    /// What a plain batch says that was sent.
    pub fn of_batch(batch: RecordBatch) -> Self {
        Places(batch)
    }

    /// How many records the store had when the rows were looked at; 0 where that was not said.
    pub fn commits(&self) -> u64 {
        self.0.schema_ref().metadata().get(COMMITS).and_then(|commits| commits.parse().ok()).unwrap_or(0)
    }

    /// Every place that is named.
    pub(super) fn views(&self) -> Result<Vec<View>> {
        let mut views = Vec::new();
        for (field, array) in self.0.schema_ref().fields().iter().zip(self.0.columns()) {
            if let Some(data_type) = placed_type(field)? {
                let class = data_type.storage_class();
                let stored = values_of(array)?.flatten().filter_map(View::of);
                views.extend(stored.filter(|view| !view.is_inline(class)));
            }
        }
        Ok(views)
    }

    /// The columns with their values, from where they lie.
    pub(super) fn fill(&self, extents: &Extents, lists: Lists) -> Result<RecordBatch> {
        let (mut fields, mut arrays) = (Vec::new(), Vec::new());
        for (field, array) in self.0.schema_ref().fields().iter().zip(self.0.columns()) {
            let Some(data_type) = placed_type(field)? else {
                fields.push(field.clone());
                arrays.push(array.clone());
                continue;
            };
            let mut metadata = field.metadata().clone();
            metadata.remove(TYPE);
            let values: Vec<_> = values_of(array)?.collect();
            let filled = data_array(&data_type, &values, extents, lists)?;
            let shown = Field::new(field.name(), filled.data_type().clone(), field.is_nullable());
            fields.push(Arc::new(shown.with_metadata(metadata)));
            arrays.push(filled);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.0.num_rows()));
        RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options).map_err(unfit)
    }
}

/// The field and the array that say where the values of a column lie.
fn placed(column: GatheredColumn, field: &Arc<Field>) -> Result<(Arc<Field>, ArrayRef)> {
    let (data_type, values) = match column {
        GatheredColumn::Array(array) => return Ok((field.clone(), array)),
        GatheredColumn::Values(data_type, values) => (data_type, values),
    };
    if data_type.storage_class() == StorageClass::Inline {
        let nowhere = Extents::none(PathBuf::new());
        return Ok((field.clone(), data_array(&data_type, &values, &nowhere, Lists::Together)?));
    }
    let mut views = FixedSizeBinaryBuilder::with_capacity(values.len(), VIEW_BYTES);
    for value in values {
        match value.and_then(View::of) {
            Some(view) => views.append_value(view.0).map_err(unfit)?,
            None => views.append_null(),
        }
    }
    let mut metadata = field.metadata().clone();
    metadata.insert(TYPE.to_owned(), data_type.to_string());
    let placed = Field::new(field.name(), ArrowType::FixedSizeBinary(VIEW_BYTES), field.is_nullable());
    Ok((Arc::new(placed.with_metadata(metadata)), Arc::new(views.finish())))
}

fn placed_type(field: &Field) -> Result<Option<DataType>> {
    field.metadata().get(TYPE).map(|name| name.parse()).transpose()
}

fn values_of(array: &ArrayRef) -> Result<impl Iterator<Item = Option<StoredValue>> + '_> {
    let views: &FixedSizeBinaryArray = array
        .as_fixed_size_binary_opt()
        .filter(|views| views.value_length() == VIEW_BYTES)
        .ok_or_else(|| unfit(ArrowError::SchemaError("a column of places holds no places".to_owned())))?;
    Ok(views.iter().map(|view| view?.try_into().ok().map(StoredValue::View)))
}

fn unfit(error: ArrowError) -> crate::Error {
    Cause::Argument { what: "columns", reason: error.to_string() }.into()
}
