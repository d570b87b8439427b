//! Values on their way out: a column of a claim as Python sees it.
//!
//! | column | Python | copied |
//! | --- | --- | --- |
//! | list | a list with one array a row | no (bfloat16: yes, as float32) |
//! | tensor | a list with one array a row, in the tensor's shape | no (bfloat16: yes, as float32) |
//! | binary | a list of memory views | no |
//! | text | a list of `str` | yes |
//! | number, bool | one array; a masked one where cells are null or not final | yes |
//!
//! Meta and status columns come as numbers, bools and texts do. What is null or not final is `None` in a list.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_schema::DataType as ArrowType;
use forebay::client::{CellValue, Claim};
use forebay::store::{DataType, Element, Schema};
use half::bf16;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyMemoryView};

use crate::arrays::{self, Numpy};
use crate::failure::{Failure, Result, input};
use crate::view::View;

/// A column, read from the store and not yet seen by Python.
#[derive(Debug)]
pub(crate) enum Fetched {
    /// Values where they lie.
    Cells(DataType, Vec<CellValue>),
    /// Values that were gathered; of tensors with their sides.
    Array(ArrayRef, Option<Vec<u32>>),
}

impl Fetched {
    /// Reads a column of a claim.
    pub(crate) fn of(schema: &Schema, claim: &Claim, name: &str) -> Result<Self> {
        let columns = schema.data_columns();
        let data_type = schema.index_of(name).ok().map(|index| &columns[index].data_type);
        Ok(match data_type {
            Some(data_type) if lies_ready(data_type) => {
                Fetched::Cells(data_type.clone(), claim.cells([name])?.pop().unwrap_or_default())
            }
            _ => {
                let sides = match data_type {
                    Some(DataType::Tensor(_, sides)) => Some(sides.clone()),
                    _ => None,
                };
                Fetched::Array(claim.columns([name])?.column(0).clone(), sides)
            }
        })
    }

    /// How many bytes of values were copied for it.
    pub(crate) fn copied_bytes(&self) -> usize {
        match self {
            Fetched::Cells(..) => 0,
            Fetched::Array(array, _) => copied_bytes(array),
        }
    }

    /// The column for Python.
    pub(crate) fn show<'py>(self, py: Python<'py>, name: &str) -> Result<Bound<'py, PyAny>> {
        match self {
            Fetched::Cells(data_type, cells) => show_cells(py, &data_type, cells),
            Fetched::Array(array, sides) => show_array(py, name, &array, sides.as_deref()),
        }
    }
}

/// Whether a value in its extent is what Python sees of it.
pub(crate) fn lies_ready(data_type: &DataType) -> bool {
    match data_type {
        DataType::Binary => true,
        DataType::List(element) | DataType::Tensor(element, _) => *element != Element::BFloat16,
        _ => false,
    }
}

/// What the rows of a column of lists or tensors are: numpy's name of their numbers, and the sides, 0 for those of a list. Nothing for
/// other columns.
pub(crate) fn kind(data_type: &DataType) -> Option<(&'static str, Vec<u32>)> {
    let (element, sides) = match data_type {
        DataType::List(element) => (*element, vec![0]),
        DataType::Tensor(element, sides) => (*element, sides.clone()),
        _ => return None,
    };
    arrays::name_of(shown(element)).map(|name| (name, sides))
}

/// The type as which numpy shows one: it has no bfloat16.
fn shown(element: Element) -> Element {
    if element == Element::BFloat16 { Element::Float32 } else { element }
}

/// Bytes of values that were copied to make an array. Texts and bytes in a record batch lie where they lay, and so do lists with
/// something between them, for each value has a trailer behind it, and lists that share values. One list alone is taken for one
/// that lies where it lay.
pub(crate) fn copied_bytes(array: &ArrayRef) -> usize {
    match array.data_type() {
        ArrowType::Utf8View | ArrowType::BinaryView => 0,
        ArrowType::ListView(_) => {
            let lists = array.as_list_view::<i32>();
            let elements: usize = lists.value_sizes().iter().map(|size| *size as usize).sum();
            let is_one = lists.value_sizes().iter().filter(|size| **size > 0).count() < 2;
            let is_apart = is_one || elements != lists.values().len();
            if is_apart { 0 } else { lists.values().to_data().get_slice_memory_size().unwrap_or_default() }
        }
        _ => array.to_data().get_slice_memory_size().unwrap_or_default(),
    }
}

/// A byte for each bit.
fn bytes_of_bits(bits: &BooleanBuffer) -> Buffer {
    Buffer::from_vec(bits.iter().map(u8::from).collect::<Vec<u8>>())
}

/// A byte for each value: 1 where it is null.
fn nulls_of(nulls: Option<&NullBuffer>) -> Option<Buffer> {
    nulls.map(|nulls| bytes_of_bits(&!nulls.inner()))
}

/// Numbers of bfloat16 as those of float32, which has them all.
fn widened(bytes: &[u8]) -> Buffer {
    let numbers = bytes.chunks_exact(2).map(|two| bf16::from_le_bytes([two[0], two[1]]).to_f32());
    Buffer::from_vec(numbers.collect::<Vec<f32>>())
}

/// Values where they lie, one a row; those of bfloat16 widened.
pub(crate) fn show_cells<'py>(
    py: Python<'py>,
    data_type: &DataType,
    cells: Vec<CellValue>,
) -> Result<Bound<'py, PyAny>> {
    let list = PyList::empty(py);
    if *data_type == DataType::Binary {
        for cell in cells {
            match cell {
                CellValue::Bytes(bytes) => {
                    list.append(PyMemoryView::from(Bound::new(py, View::of_value(bytes))?.as_any())?)?;
                }
                _ => list.append(py.None())?,
            }
        }
        return Ok(list.into_any());
    }
    let numpy = Numpy::get(py)?;
    let (element, sides) = match data_type {
        DataType::Tensor(element, sides) => {
            (*element, Some(sides.iter().map(|side| *side as usize).collect::<Vec<_>>()))
        }
        DataType::List(element) => (*element, None),
        _ => return Err(input(format!("{data_type} has no array a row"))),
    };
    let element_type = numpy.element_type(Some(shown(element)))?;
    for cell in cells {
        let CellValue::Bytes(bytes) = cell else {
            list.append(py.None())?;
            continue;
        };
        let length = [bytes.len() / element.width_bytes()];
        let view = match element {
            Element::BFloat16 => View::of_buffer(widened(&bytes)),
            _ => View::of_value(bytes),
        };
        list.append(numpy.array(py, sides.as_deref().unwrap_or(&length), element_type, view)?)?;
    }
    Ok(list.into_any())
}

fn show_array<'py>(
    py: Python<'py>,
    name: &str,
    array: &ArrayRef,
    sides: Option<&[u32]>,
) -> Result<Bound<'py, PyAny>> {
    let texts =
        |texts: Vec<Option<&str>>| -> Result<Bound<'py, PyAny>> { Ok(PyList::new(py, texts)?.into_any()) };
    match array.data_type() {
        ArrowType::Utf8View => texts(array.as_string_view().iter().collect()),
        ArrowType::Utf8 => texts(array.as_string::<i32>().iter().collect()),
        ArrowType::Boolean => {
            let bools = array.as_boolean();
            Numpy::get(py)?.column(py, None, bytes_of_bits(bools.values()), nulls_of(bools.nulls()))
        }
        ArrowType::List(_) => {
            let lists = array.as_list::<i32>();
            show_lists(py, (0..lists.len()).map(|at| lists.is_valid(at).then(|| lists.value(at))), None)
        }
        ArrowType::FixedSizeList(..) => {
            let lists = array.as_fixed_size_list();
            show_lists(py, (0..lists.len()).map(|at| lists.is_valid(at).then(|| lists.value(at))), sides)
        }
        other => match element_of(other) {
            Some(element) => {
                Numpy::get(py)?.column(py, Some(element), values_of(array), nulls_of(array.nulls()))
            }
            None => Err(unseen(name, other)),
        },
    }
}

/// A list with one array a row, over what was gathered; of tensors in their shape.
fn show_lists<'py>(
    py: Python<'py>,
    rows: impl Iterator<Item = Option<ArrayRef>>,
    sides: Option<&[u32]>,
) -> Result<Bound<'py, PyAny>> {
    let (numpy, list) = (Numpy::get(py)?, PyList::empty(py));
    for row in rows {
        match row {
            None => list.append(py.None())?,
            Some(row) => {
                let element =
                    element_of(row.data_type()).ok_or_else(|| unseen("of lists", row.data_type()))?;
                let flat = numpy.column(py, Some(element), values_of(&row), None)?;
                list.append(match sides {
                    Some(sides) => flat.call_method1("reshape", (sides,))?,
                    None => flat,
                })?;
            }
        }
    }
    Ok(list.into_any())
}

/// The bytes of an array of numbers.
fn values_of(array: &ArrayRef) -> Buffer {
    let data = array.to_data();
    let width = data.data_type().primitive_width().unwrap_or(1);
    data.buffers()[0].slice_with_length(data.offset() * width, data.len() * width)
}

fn element_of(data_type: &ArrowType) -> Option<Element> {
    Some(match data_type {
        ArrowType::Int8 => Element::Int8,
        ArrowType::Int16 => Element::Int16,
        ArrowType::Int32 => Element::Int32,
        ArrowType::Int64 => Element::Int64,
        ArrowType::UInt8 => Element::UInt8,
        ArrowType::UInt16 => Element::UInt16,
        ArrowType::UInt32 => Element::UInt32,
        ArrowType::UInt64 => Element::UInt64,
        ArrowType::Float16 => Element::Float16,
        ArrowType::Float32 => Element::Float32,
        ArrowType::Float64 => Element::Float64,
        _ => return None,
    })
}

fn unseen(name: &str, data_type: &ArrowType) -> Failure {
    input(format!(
        "column {name:?} holds {data_type}, which is no array of numpy; take it from batch.arrow([{name:?}])"
    ))
}
