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
/// `input` for tensors of more elements than a list view can count.
pub(crate) fn as_views(batch: &RecordBatch) -> Result<RecordBatch> {
    let schema = batch.schema_ref();
    let columns = schema.fields().iter().zip(batch.columns());
    let columns = columns.map(viewed).collect::<Result<Vec<_>>>()?;
    let (fields, arrays): (Vec<Arc<Field>>, Vec<ArrayRef>) = columns.into_iter().unzip();
    let schema = Schema::new_with_metadata(Fields::from(fields), schema.metadata().clone());
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(schema), arrays, &options)
        .map_err(|error| malformed(&format!("columns that do not fit together ({error})")).because(error))
}

fn viewed((field, array): (&Arc<Field>, &ArrayRef)) -> Result<(Arc<Field>, ArrayRef)> {
    let is_data = field.metadata().get("class").is_some_and(|class| class == ColumnClass::Data.as_str());
    let views: ListViewArray = match array.data_type() {
        DataType::List(_) if is_data => array.as_list::<i32>().clone().into(),
        DataType::FixedSizeList(_, size) if is_data => {
            let elements = array.len().checked_mul(*size as usize);
            if elements.is_none_or(|elements| i32::try_from(elements).is_err()) {
                let reason =
                    format!("{} tensors of {size} elements are more than list views count", array.len());
                return Err(malformed(&reason));
            }
            array.as_fixed_size_list().clone().into()
        }
        _ => return Ok((field.clone(), array.clone())),
    };
    let views: ArrayRef = Arc::new(views);
    Ok((Arc::new(field.as_ref().clone().with_data_type(views.data_type().clone())), views))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use arrow_array::{Array, FixedSizeListArray, NullArray};

    use super::*;

    /// What a peer may send in a few bytes: elements that take none.
    #[test]
    fn tensors_of_more_elements_than_list_views_count_are_refused() {
        for (rows, is_refused) in [(1, false), (2, true), (3, true)] {
            let item = Arc::new(Field::new_list_field(DataType::Null, true));
            let values = Arc::new(NullArray::new(rows << 30));
            let tensors = FixedSizeListArray::new(item, 1 << 30, values, None);
            let class = HashMap::from([("class".to_owned(), ColumnClass::Data.as_str().to_owned())]);
            let field = Field::new("tensor", tensors.data_type().clone(), true).with_metadata(class);
            let schema = Arc::new(Schema::new(vec![field]));
            let batch = RecordBatch::try_new(schema, vec![Arc::new(tensors)]).unwrap();
            assert_eq!(as_views(&batch).is_err(), is_refused, "{rows}");
        }
    }
}
