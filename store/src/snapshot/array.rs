//! Arrow arrays of data columns.

use std::sync::Arc;

use arrow_array::types::*;
use arrow_array::{
    ArrayRef, BinaryViewArray, BooleanArray, FixedSizeListArray, ListArray, ListViewArray, PrimitiveArray,
    StringViewArray,
};
use arrow_buffer::{Buffer, MutableBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType as ArrowType, Field};

use super::windows::Windows;
use crate::error::{Cause, Error, Result};
use crate::extent::{Extents, ValueBytes, View};
use crate::log::record::StoredValue;
use crate::schema::{DataType, Element, StorageClass};

/// The Arrow type that a data column is shown as. Arrow has no bfloat16: it is shown as float32, exactly.
pub(super) fn arrow_type(data_type: &DataType) -> ArrowType {
    match data_type {
        DataType::Bool => ArrowType::Boolean,
        DataType::Number(element) => element_type(*element),
        DataType::Utf8 => ArrowType::Utf8View,
        DataType::Binary => ArrowType::BinaryView,
        DataType::List(element) => ArrowType::List(item(*element)),
        DataType::Tensor(element, shape) => {
            ArrowType::FixedSizeList(item(*element), elements_of(shape) as i32)
        }
    }
}

fn elements_of(shape: &[u32]) -> usize {
    shape.iter().map(|&side| side as usize).product()
}

fn item(element: Element) -> Arc<Field> {
    Arc::new(Field::new_list_field(element_type(element), false))
}

fn element_type(element: Element) -> ArrowType {
    match element {
        Element::Int8 => ArrowType::Int8,
        Element::Int16 => ArrowType::Int16,
        Element::Int32 => ArrowType::Int32,
        Element::Int64 => ArrowType::Int64,
        Element::UInt8 => ArrowType::UInt8,
        Element::UInt16 => ArrowType::UInt16,
        Element::UInt32 => ArrowType::UInt32,
        Element::UInt64 => ArrowType::UInt64,
        Element::Float16 => ArrowType::Float16,
        Element::BFloat16 | Element::Float32 => ArrowType::Float32,
        Element::Float64 => ArrowType::Float64,
    }
}

/// How lists and tensors come out of their extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lists {
    /// Gathered, one behind the other, as lists and as lists of a fixed size.
    Together,
    /// Left where they lie, as list views.
    InPlace,
}

/// The array of a data column; cells that are not final or are null are null in it.
pub(crate) fn data_array(
    data_type: &DataType,
    values: &[Option<StoredValue>],
    extents: &Extents,
    lists: Lists,
) -> Result<ArrayRef> {
    let nulls =
        NullBuffer::from_iter(values.iter().map(|value| !matches!(value, None | Some(StoredValue::Null))));
    let nulls = Some(nulls).filter(|nulls| nulls.null_count() > 0);
    match data_type {
        DataType::Bool => {
            let bits = values.iter().map(|value| matches!(value, Some(StoredValue::Inline(1))));
            Ok(Arc::new(BooleanArray::new(bits.collect(), nulls)))
        }
        DataType::Number(element) => {
            let width = element.width_bytes();
            let mut bytes = MutableBuffer::with_capacity(values.len() * width);
            for value in values {
                let bits = if let Some(StoredValue::Inline(bits)) = value { *bits } else { 0 };
                bytes.extend_from_slice(&bits.to_le_bytes()[..width]);
            }
            Ok(numbers(*element, bytes.into(), nulls))
        }
        DataType::Utf8 | DataType::Binary => view_array(data_type, values, nulls, extents),
        DataType::List(element) | DataType::Tensor(element, _) if lists == Lists::InPlace => {
            list_view_array(*element, values, nulls, extents)
        }
        DataType::List(element) => Ok(Arc::new(list_array(*element, values, nulls, extents)?)),
        DataType::Tensor(element, shape) => {
            tensor_array(*element, elements_of(shape), values, nulls, extents)
        }
    }
}

/// Raw little-endian numbers as an array.
pub(super) fn numbers(element: Element, bytes: Buffer, nulls: Option<NullBuffer>) -> ArrayRef {
    fn typed<T: ArrowPrimitiveType>(bytes: Buffer, nulls: Option<NullBuffer>) -> ArrayRef {
        let length = bytes.len() / size_of::<T::Native>();
        Arc::new(PrimitiveArray::<T>::new(ScalarBuffer::new(bytes, 0, length), nulls))
    }
    match element {
        Element::Int8 => typed::<Int8Type>(bytes, nulls),
        Element::Int16 => typed::<Int16Type>(bytes, nulls),
        Element::Int32 => typed::<Int32Type>(bytes, nulls),
        Element::Int64 => typed::<Int64Type>(bytes, nulls),
        Element::UInt8 => typed::<UInt8Type>(bytes, nulls),
        Element::UInt16 => typed::<UInt16Type>(bytes, nulls),
        Element::UInt32 => typed::<UInt32Type>(bytes, nulls),
        Element::UInt64 => typed::<UInt64Type>(bytes, nulls),
        Element::Float16 => typed::<Float16Type>(bytes, nulls),
        Element::BFloat16 => typed::<Float32Type>(widen_bfloat16(&bytes), nulls),
        Element::Float32 => typed::<Float32Type>(bytes, nulls),
        Element::Float64 => typed::<Float64Type>(bytes, nulls),
    }
}

fn widen_bfloat16(bytes: &[u8]) -> Buffer {
    let widen = |pair: &[u8]| f32::from_bits(u32::from(u16::from_le_bytes([pair[0], pair[1]])) << 16);
    Buffer::from_vec(bytes.chunks_exact(2).map(widen).collect::<Vec<f32>>())
}

/// Text and binary: the values stay where they are, and the array points at windows of their extents.
fn view_array(
    data_type: &DataType,
    values: &[Option<StoredValue>],
    nulls: Option<NullBuffer>,
    extents: &Extents,
) -> Result<ArrayRef> {
    let mut windows = Windows::default();
    let mut views = Vec::with_capacity(values.len());
    for value in values {
        let Some(StoredValue::View(view)) = value else {
            views.push(None);
            continue;
        };
        views.push(Some(View(*view)));
        windows.cover(View(*view), StorageClass::View, extents)?;
    }
    extents.count_reads(windows.values());
    let views: ScalarBuffer<u128> = views.into_iter().map(|view| windows.arrow_view(view)).collect();
    let buffers = windows.into_buffers();
    let invalid = |error: ArrowError| -> Error {
        let reason = format!("a stored text is not UTF-8 any more: {error}");
        Cause::Corrupt { path: extents.directory().to_owned(), offset: 0, reason }.into()
    };
    Ok(match data_type {
        DataType::Utf8 => Arc::new(StringViewArray::try_new(views, buffers, nulls).map_err(invalid)?),
        _ => Arc::new(BinaryViewArray::try_new(views, buffers, nulls).map_err(invalid)?),
    })
}

/// Lists: gathered once into one buffer.
fn list_array(
    element: Element,
    values: &[Option<StoredValue>],
    nulls: Option<NullBuffer>,
    extents: &Extents,
) -> Result<ListArray> {
    let width = element.width_bytes();
    let slices = slices(values, extents)?;
    let lengths = || slices.iter().map(|slice| slice.as_deref().map_or(0, <[u8]>::len) / width);
    let total: usize = lengths().sum();
    if i32::try_from(total).is_err() {
        return Err(Cause::TooMany {
            what: "list elements in one batch",
            limit: i32::MAX as usize,
            found: total,
        }
        .into());
    }
    let mut bytes = MutableBuffer::with_capacity(total * width);
    slices.iter().flatten().for_each(|slice| bytes.extend_from_slice(slice));
    let child = numbers(element, bytes.into(), None);
    Ok(ListArray::new(item(element), OffsetBuffer::from_lengths(lengths()), child, nulls))
}

/// Lists and tensors where they lie: each row is a part of one window of their extent. Where they lie in several, or are shown
/// as numbers of another width, they are gathered and then as much a list view.
fn list_view_array(
    element: Element,
    values: &[Option<StoredValue>],
    nulls: Option<NullBuffer>,
    extents: &Extents,
) -> Result<ArrayRef> {
    let mut windows = Windows::default();
    let views: Vec<View> = values.iter().map(|value| value.and_then(View::of).unwrap_or_default()).collect();
    views.iter().try_for_each(|view| windows.cover(*view, StorageClass::Slice, extents))?;
    let only = windows.only_one().filter(|_| element != Element::BFloat16);
    let Some((bytes, parts)) = only.and_then(|(start, bytes)| Some((bytes, parts(&views, start, element)?)))
    else {
        let gathered = list_array(element, values, nulls, extents)?;
        return Ok(Arc::new(ListViewArray::from(gathered)));
    };
    extents.count_reads(windows.values());
    let (offsets, sizes): (Vec<i32>, Vec<i32>) = parts.into_iter().unzip();
    let child = numbers(element, bytes, None);
    Ok(Arc::new(ListViewArray::new(item(element), offsets.into(), sizes.into(), child, nulls)))
}

/// From which element of a window on each list lies, and how many it has; none where one does not lie as lists do, or further
/// away than can be told.
fn parts(views: &[View], start: usize, element: Element) -> Option<Vec<(i32, i32)>> {
    let width = element.width_bytes();
    let part = |view: &View| {
        let offset = if view.length() == 0 { 0 } else { view.offset() - start };
        let lies_ready = view.offset().is_multiple_of(width) && view.length().is_multiple_of(width);
        let part = (i32::try_from(offset / width).ok()?, i32::try_from(view.length() / width).ok()?);
        lies_ready.then_some(part)
    };
    views.iter().map(part).collect()
}

/// The bytes of lists or tensors; `None` where there is none.
fn slices(values: &[Option<StoredValue>], extents: &Extents) -> Result<Vec<Option<ValueBytes>>> {
    extents.read_all(values.iter().map(|value| value.and_then(View::of)), StorageClass::Slice)
}

/// Tensors: gathered once into one buffer, zeros where there is none.
fn tensor_array(
    element: Element,
    elements: usize,
    values: &[Option<StoredValue>],
    nulls: Option<NullBuffer>,
    extents: &Extents,
) -> Result<ArrayRef> {
    let row_bytes = elements * element.width_bytes();
    let mut bytes = MutableBuffer::from_len_zeroed(values.len() * row_bytes);
    for (row, value) in slices(values, extents)?.into_iter().enumerate() {
        if let Some(value) = value.filter(|value| value.len() == row_bytes) {
            bytes.as_slice_mut()[row * row_bytes..][..row_bytes].copy_from_slice(&value);
        }
    }
    let child = numbers(element, bytes.into(), None);
    Ok(Arc::new(FixedSizeListArray::new(item(element), elements as i32, child, nulls)))
}
