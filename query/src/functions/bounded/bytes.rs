//! How many bytes values take in memory, whatever they share with others.

use std::ops::Range;

use arrow::compute::cast;
use arrow_array::cast::AsArray;
use arrow_array::types::{ByteArrayType, ByteViewType, Int64Type};
use arrow_array::{Array, ArrayRef, GenericByteArray, GenericByteViewArray, OffsetSizeTrait};
use arrow_buffer::ArrowNativeType;
use arrow_schema::DataType;

/// What a text or a list takes beside its bytes: its view, or its offsets.
pub(super) const VALUE: u64 = 16;

/// The bytes of these values.
pub(super) fn of(values: &ArrayRef, range: Range<usize>) -> u64 {
    let place = values.data_type().primitive_width().map_or(VALUE, |width| width as u64);
    let places = range.len() as u64 * place;
    places.saturating_add(match values.data_type() {
        DataType::Utf8 => of_offsets(values.as_string::<i32>(), &range),
        DataType::LargeUtf8 => of_offsets(values.as_string::<i64>(), &range),
        DataType::Binary => of_offsets(values.as_binary::<i32>(), &range),
        DataType::LargeBinary => of_offsets(values.as_binary::<i64>(), &range),
        DataType::Utf8View => of_views(values.as_string_view(), range),
        DataType::BinaryView => of_views(values.as_binary_view(), range),
        DataType::FixedSizeBinary(width) => range.len() as u64 * u64::try_from(*width).unwrap_or(0),
        DataType::Struct(_) => {
            sum(values.as_struct().columns().iter().map(|column| of(column, range.clone())))
        }
        DataType::Dictionary(_, _) => of_dictionary(values, range),
        _ => inner(values, range).map_or(0, |(inner, range)| of(inner, range)),
    })
}

/// How many values there are, those in lists counted one by one.
pub(super) fn leaves(values: &ArrayRef, range: Range<usize>) -> u64 {
    let own = range.len() as u64;
    inner(values, range).map_or(own, |(inner, range)| own + leaves(inner, range))
}

/// What lists hold, and where what these lists hold is in it; `None` for what is no list.
fn inner(values: &ArrayRef, range: Range<usize>) -> Option<(&ArrayRef, Range<usize>)> {
    Some(match values.data_type() {
        DataType::List(_) => {
            (values.as_list::<i32>().values(), between(values.as_list::<i32>().value_offsets(), &range))
        }
        DataType::LargeList(_) => {
            (values.as_list::<i64>().values(), between(values.as_list::<i64>().value_offsets(), &range))
        }
        DataType::FixedSizeList(_, _) => {
            let list = values.as_fixed_size_list();
            let length = list.value_length().as_usize();
            (list.values(), range.start * length..range.end * length)
        }
        _ => return None,
    })
}

fn between<O: OffsetSizeTrait>(offsets: &[O], range: &Range<usize>) -> Range<usize> {
    offsets[range.start].as_usize()..offsets[range.end].as_usize()
}

fn of_offsets<T: ByteArrayType>(values: &GenericByteArray<T>, range: &Range<usize>) -> u64 {
    between(values.value_offsets(), range).len() as u64
}

fn of_views<T: ByteViewType + ?Sized>(values: &GenericByteViewArray<T>, range: Range<usize>) -> u64 {
    // The low half of the low word of a view is the length.
    values.views()[range].iter().map(|view| u64::from(*view as u32)).sum()
}

fn of_dictionary(values: &ArrayRef, range: Range<usize>) -> u64 {
    let dictionary = values.as_any_dictionary();
    let Ok(keys) = cast(&dictionary.keys().slice(range.start, range.len()), &DataType::Int64) else {
        return 0;
    };
    let keys = keys.as_primitive::<Int64Type>().iter().flatten().map(|key| key as usize);
    sum(keys.map(|key| of(dictionary.values(), key..key + 1)))
}

/// All together, or the largest number.
pub(super) fn sum(bytes: impl Iterator<Item = u64>) -> u64 {
    bytes.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::Int32Type;
    use arrow_array::{
        DictionaryArray, Int32Array, LargeStringArray, ListArray, StringArray, StringViewArray,
    };

    use super::*;

    #[test]
    fn values_are_as_large_as_what_is_seen_of_them() {
        let texts = ["", "abc", "a text that does not fit into its view"];
        let lists =
            ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1); 5]), None, Some(vec![])]);
        let cases: [(ArrayRef, u64); 6] = [
            (Arc::new(StringArray::from_iter_values(texts)), 3 * 16 + 41),
            (Arc::new(LargeStringArray::from_iter_values(texts)), 3 * 16 + 41),
            (Arc::new(StringViewArray::from_iter_values(texts)), 3 * 16 + 41),
            (Arc::new(DictionaryArray::<Int32Type>::from_iter(["abc", "abc", "de"])), 3 * 16 + 3 * 16 + 8),
            (Arc::new(lists), 3 * 16 + 5 * 4),
            (Arc::new(Int32Array::from(vec![1, 2, 3])), 3 * 4),
        ];
        for (values, bytes) in cases {
            assert_eq!(of(&values, 0..3), bytes, "{values:?}");
            let sliced = values.slice(1, 2);
            assert_eq!(of(&values, 1..3), of(&sliced, 0..2), "{values:?}");
        }
    }
}
