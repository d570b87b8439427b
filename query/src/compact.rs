//! Batches on their way out own their bytes, also inside of lists and structs.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::ByteViewType;
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, GenericByteViewArray, GenericListArray, OffsetSizeTrait,
    RecordBatch, StructArray,
};
use arrow_buffer::{Buffer, OffsetBuffer};
use arrow_schema::{ArrowError, DataType, FieldRef};

/// The same batch with only the bytes that it uses; see [`forebay_store::compact`], which this carries into nested types.
pub(crate) fn compact(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let compacted = forebay_store::compact(batch)?;
    if !batch.columns().iter().any(|column| column.data_type().is_nested() && has_views(column.data_type())) {
        return Ok(compacted);
    }
    let columns = compacted.columns().iter().map(compact_nested).collect::<Result<Vec<_>, _>>()?;
    RecordBatch::try_new(batch.schema(), columns)
}

/// How many times what a column uses its windows may take, before its values are copied instead.
const SPARSE_FROM: usize = 16;

/// The same column, in bytes of its own where it uses few of the extents that it spans: rows that a filter has left are far
/// apart, and who keeps them, as a sort does, would be counted, and would hold, all that lies between.
pub(crate) fn lean(column: ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Utf8View if is_sparse(column.as_string_view()) => Arc::new(column.as_string_view().gc()),
        DataType::BinaryView if is_sparse(column.as_binary_view()) => Arc::new(column.as_binary_view().gc()),
        _ => column,
    }
}

fn is_sparse<T: ByteViewType>(column: &GenericByteViewArray<T>) -> bool {
    let spanned: usize = column.data_buffers().iter().map(Buffer::len).sum();
    spanned > SPARSE_FROM.saturating_mul(column.total_buffer_bytes_used())
}

fn has_views(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8View | DataType::BinaryView => true,
        DataType::List(field) | DataType::LargeList(field) | DataType::FixedSizeList(field, _) => {
            has_views(field.data_type())
        }
        DataType::Struct(fields) => fields.iter().any(|field| has_views(field.data_type())),
        _ => false,
    }
}

fn compact_nested(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    if !has_views(array.data_type()) {
        return Ok(array.clone());
    }
    match array.data_type() {
        DataType::Utf8View => Ok(Arc::new(array.as_string_view().gc())),
        DataType::BinaryView => Ok(Arc::new(array.as_binary_view().gc())),
        DataType::List(field) => compact_list::<i32>(array, field),
        DataType::LargeList(field) => compact_list::<i64>(array, field),
        DataType::FixedSizeList(field, length) => {
            let list = array.as_fixed_size_list();
            let values = compact_nested(list.values())?;
            let list = FixedSizeListArray::try_new(field.clone(), *length, values, list.nulls().cloned())?;
            Ok(Arc::new(list))
        }
        DataType::Struct(fields) => {
            let (parts, nulls) = (array.as_struct(), array.nulls().cloned());
            let columns = parts.columns().iter().map(compact_nested).collect::<Result<Vec<_>, _>>()?;
            Ok(Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls, parts.len())?))
        }
        _ => Ok(array.clone()),
    }
}

/// The elements that the list's rows use, and no others.
fn compact_list<O: OffsetSizeTrait>(array: &ArrayRef, field: &FieldRef) -> Result<ArrayRef, ArrowError> {
    let list: &GenericListArray<O> = array.as_list();
    let (first, last) = (list.value_offsets()[0], list.value_offsets()[list.len()]);
    let used = list.values().slice(first.as_usize(), (last - first).as_usize());
    let offsets: Vec<O> = list.value_offsets().iter().map(|offset| *offset - first).collect();
    let offsets = OffsetBuffer::new(offsets.into());
    let list =
        GenericListArray::try_new(field.clone(), offsets, compact_nested(&used)?, list.nulls().cloned())?;
    Ok(Arc::new(list))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot make its own batch should stop there")]

    use arrow_array::StringViewArray;
    use arrow_array::builder::{ListBuilder, StringViewBuilder};
    use arrow_schema::Field;

    use super::*;

    /// A thousand texts of a kilobyte, as plain column, in a list and in a struct.
    fn wide() -> RecordBatch {
        let texts = || (0..1000).map(|n| format!("{n:01000}"));
        let plain: ArrayRef = Arc::new(StringViewArray::from_iter_values(texts()));
        let mut lists = ListBuilder::new(StringViewBuilder::new());
        for text in texts() {
            lists.values().append_value(text);
            lists.append(true);
        }
        let part = Arc::new(Field::new("text", DataType::Utf8View, true));
        let parts = StructArray::from(vec![(part, plain.clone())]);
        let columns =
            [("plain", plain), ("lists", Arc::new(lists.finish()) as _), ("parts", Arc::new(parts) as _)];
        RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| (name, array, true))).unwrap()
    }

    #[test]
    fn a_slice_goes_out_with_its_own_bytes() {
        let slice = wide().slice(500, 2);
        assert!(slice.get_array_memory_size() > 3_000_000, "{}", slice.get_array_memory_size());
        let compacted = compact(&slice).unwrap();
        assert_eq!(compacted, slice);
        assert!(compacted.get_array_memory_size() < 30_000, "{}", compacted.get_array_memory_size());
    }

    #[test]
    fn few_values_of_a_wide_window_are_copied_and_many_are_not() {
        let wide = wide().column(0).clone();
        for (rows, copied) in
            [(0..1000, false), (100..200, false), (500..560, true), (7..8, true), (3..3, true)]
        {
            let some = wide.slice(rows.start, rows.len());
            let lean = lean(some.clone());
            assert_eq!(&lean, &some);
            let bytes = |array: &ArrayRef| array.get_buffer_memory_size();
            assert_eq!(bytes(&lean) < bytes(&some), copied, "{rows:?}");
        }
    }

    #[test]
    fn what_is_empty_or_null_stays_so() {
        assert_eq!(compact(&wide().slice(0, 0)).unwrap().num_rows(), 0);
        let none = RecordBatch::new_empty(wide().schema());
        assert_eq!(compact(&none).unwrap(), none);
    }
}
