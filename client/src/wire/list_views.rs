//! Lists that came one behind the other, as list views of what came.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, ListViewArray, RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, Field, Fields, Schema};
use forebay_store::ColumnClass;

use super::malformed;
use crate::error::Result;

/// The same rows with lists and tensors of data columns as list views, as [`forebay_store::Claim::columns_in_place`] gives them.
///
/// # Errors
/// None for a batch that is one.
pub(crate) fn as_views(batch: &RecordBatch) -> Result<RecordBatch> {
    let schema = batch.schema_ref();
    let columns = schema.fields().iter().zip(batch.columns());
    let (fields, arrays): (Vec<Arc<Field>>, Vec<ArrayRef>) = columns.map(viewed).unzip();
    let schema = Schema::new_with_metadata(Fields::from(fields), schema.metadata().clone());
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(schema), arrays, &options)
        .map_err(|error| malformed(&format!("columns that do not fit together ({error})")).because(error))
}

fn viewed((field, array): (&Arc<Field>, &ArrayRef)) -> (Arc<Field>, ArrayRef) {
    let is_data = field.metadata().get("class").is_some_and(|class| class == ColumnClass::Data.as_str());
    let views: ListViewArray = match array.data_type() {
        DataType::List(_) if is_data => array.as_list::<i32>().clone().into(),
        DataType::FixedSizeList(..) if is_data => array.as_fixed_size_list().clone().into(),
        _ => return (field.clone(), array.clone()),
    };
    let views: ArrayRef = Arc::new(views);
    (Arc::new(field.as_ref().clone().with_data_type(views.data_type().clone())), views)
}
