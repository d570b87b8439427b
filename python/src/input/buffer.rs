//! Arrays: whatever has the buffer protocol and holds numbers.
//!
//! The buffer of a masked array of numpy has the numbers that lie under its mask, too, and says nothing of that: see [`masked`].
//!
//! [`masked`]: super::masked

use bytemuck::Pod;
use forebay::store::{DataType, Element, Value};
use pyo3::buffer::{self, ElementType, PyUntypedBuffer};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyMemoryView};

use super::masked::mask_of;
use super::numbers::{Kind, converted};
use super::{Buffer, Cell, Column};
use crate::failure::{Result, input};

/// An array of numbers or bools: a copy of its values, row-major.
#[derive(Debug)]
pub(super) struct Numbers {
    copy: Buffer,
    kind: Kind,
    shape: Vec<usize>,
    /// A byte for each of them, 0 for what is a value, where one is none.
    mask: Option<PyBackedBytes>,
}

/// Whether a value has the buffer protocol.
pub(super) fn is_one(value: &Bound<'_, PyAny>) -> bool {
    PyUntypedBuffer::get(value).is_ok()
}

/// The type of an array's elements, when they are numbers in the machine's order of bytes.
fn kind_of(buffer: &PyUntypedBuffer) -> Option<Kind> {
    let format = buffer.format();
    if matches!(format.to_bytes().first(), Some(b'>' | b'!')) {
        return None;
    }
    Some(match ElementType::from_format(format) {
        ElementType::Bool => Kind::Bool,
        ElementType::SignedInteger { bytes: 1 } => Kind::Number(Element::Int8),
        ElementType::SignedInteger { bytes: 2 } => Kind::Number(Element::Int16),
        ElementType::SignedInteger { bytes: 4 } => Kind::Number(Element::Int32),
        ElementType::SignedInteger { bytes: 8 } => Kind::Number(Element::Int64),
        ElementType::UnsignedInteger { bytes: 1 } => Kind::Number(Element::UInt8),
        ElementType::UnsignedInteger { bytes: 2 } => Kind::Number(Element::UInt16),
        ElementType::UnsignedInteger { bytes: 4 } => Kind::Number(Element::UInt32),
        ElementType::UnsignedInteger { bytes: 8 } => Kind::Number(Element::UInt64),
        ElementType::Float { bytes: 2 } => Kind::Number(Element::Float16),
        ElementType::Float { bytes: 4 } => Kind::Number(Element::Float32),
        ElementType::Float { bytes: 8 } => Kind::Number(Element::Float64),
        _ => return None,
    })
}

/// The bytes of an array, row-major.
fn copied(value: &Bound<'_, PyAny>, buffer: &PyUntypedBuffer, kind: Kind) -> PyResult<Buffer> {
    let py = value.py();
    let is_aligned = buffer.buf_ptr().addr().is_multiple_of(kind.width_bytes());
    match kind {
        _ if !is_aligned => bytes_of(value),
        Kind::Number(Element::Int8) => words_of::<i8>(py, buffer),
        Kind::Number(Element::Int16) => words_of::<i16>(py, buffer),
        Kind::Number(Element::Int32) => words_of::<i32>(py, buffer),
        Kind::Number(Element::Int64) => words_of::<i64>(py, buffer),
        Kind::Number(Element::UInt8) => words_of::<u8>(py, buffer),
        Kind::Number(Element::UInt16) => words_of::<u16>(py, buffer),
        Kind::Number(Element::UInt32) => words_of::<u32>(py, buffer),
        Kind::Number(Element::UInt64) => words_of::<u64>(py, buffer),
        Kind::Number(Element::Float32) => words_of::<f32>(py, buffer),
        Kind::Number(Element::Float64) => words_of::<f64>(py, buffer),
        // What the interface to buffers has no type for.
        Kind::Bool | Kind::Number(Element::Float16 | Element::BFloat16) => bytes_of(value),
    }
}

fn bytes_of(value: &Bound<'_, PyAny>) -> PyResult<Buffer> {
    let copy = PyMemoryView::from(value)?.call_method0(intern!(value.py(), "tobytes"))?;
    Ok(Buffer::Python(copy.cast_into::<PyBytes>()?.into()))
}

fn words_of<T: buffer::Element + Pod>(py: Python<'_>, buffer: &PyUntypedBuffer) -> PyResult<Buffer> {
    let length = buffer.len_bytes();
    let mut words = vec![0_u64; length.div_ceil(size_of::<u64>())];
    let elements: &mut [T] = bytemuck::cast_slice_mut(&mut words);
    buffer.as_typed::<T>()?.copy_to_slice(py, &mut elements[..buffer.item_count()])?;
    Ok(Buffer::Words(words, length))
}

impl Numbers {
    /// Copies an array; `None` for what is no array, or one of something else.
    pub(super) fn of(value: &Bound<'_, PyAny>) -> Result<Option<Self>> {
        let Ok(buffer) = PyUntypedBuffer::get(value) else { return Ok(None) };
        let (Some(kind), shape) = (kind_of(&buffer), buffer.shape().to_vec()) else { return Ok(None) };
        if shape.is_empty() {
            return Ok(None); // a single number
        }
        let copy = copied(value, &buffer, kind)?;
        Ok(Some(Numbers { copy, kind, shape, mask: mask_of(value)? }))
    }

    /// How long the first side is.
    pub(super) fn rows(&self) -> usize {
        self.shape[0]
    }

    /// One number a row; null where it is masked.
    pub(super) fn scalars(self, name: String) -> Result<Column> {
        if self.shape.len() != 1 {
            return Err(input(format!(
                "column {name:?} has one number a row, and the array has the shape {:?}",
                self.shape
            )));
        }
        let mut column = Column::new(name, Element::UInt8);
        let values = self.copy.bytes().chunks_exact(self.kind.width_bytes());
        let is_null = |at: usize| self.mask.as_ref().is_some_and(|mask| mask.get(at) != Some(&0));
        let value = |(at, bytes)| if is_null(at) { Value::Null } else { self.kind.read(bytes) };
        column.cells = values.enumerate().map(value).map(Cell::Plain).collect();
        Ok(column)
    }

    /// One list or tensor a row.
    pub(super) fn lists(self, name: String, data_type: &DataType, element: Element) -> Result<Column> {
        let row_shape = self.shape[1..].to_vec();
        if row_shape.is_empty() {
            let kind = self.kind;
            return Err(input(format!(
                "column {name:?} holds {data_type}, and the array has one {kind} a row; give a list of arrays"
            )));
        }
        check_shape(&name, data_type, &row_shape)?;
        let rows = self.rows();
        let mut column = Column::new(name, element);
        let buffer = self.converted(&column.name, data_type, element)?;
        let row_bytes = buffer.bytes().len() / rows.max(1);
        column.cells =
            (0..rows).map(|row| Cell::Numbers(0, row * row_bytes..(row + 1) * row_bytes)).collect();
        column.buffers.push(buffer);
        Ok(column)
    }

    /// One list a row, of an array with the numbers of all: so many for each, or null.
    pub(super) fn ragged(
        self,
        name: String,
        data_type: &DataType,
        element: Element,
        lengths: &[Option<usize>],
    ) -> Result<Column> {
        let mut column = Column::new(name, element);
        let buffer = self.converted(&column.name, data_type, element)?;
        let mut start = 0;
        let cells = lengths.iter().map(|length| {
            let Some(length) = length else { return Cell::Plain(Value::Null) };
            let range = start..start + length * element.width_bytes();
            start = range.end;
            Cell::Numbers(0, range)
        });
        column.cells = cells.collect();
        column.buffers.push(buffer);
        Ok(column)
    }

    /// The whole array as the value of one row.
    pub(super) fn push_to(self, column: &mut Column, data_type: &DataType) -> Result<()> {
        check_shape(&column.name, data_type, &self.shape)?;
        let buffer = self.converted(&column.name, data_type, column.element)?;
        column.push_numbers(buffer);
        Ok(())
    }

    fn converted(self, name: &str, data_type: &DataType, element: Element) -> Result<Buffer> {
        if self.mask.is_some() {
            return Err(input(format!(
                "column {name:?} holds {data_type}, and the array has masked elements: a value is null as a whole or not at all; \
                 give array.filled(...), and the mask in a column of its own, or None for the whole row"
            )));
        }
        if self.kind == Kind::Number(element) {
            return Ok(self.copy);
        }
        let refused = |value: &Value<'_>| {
            let number = match value {
                Value::Integer(number) => number.to_string(),
                Value::Float(number) => number.to_string(),
                other => format!("{other:?}"),
            };
            input(format!("column {name:?} holds {data_type}, and {number} of the array does not fit"))
        };
        let own = converted(self.copy.bytes(), self.kind, element).map_err(|value| refused(&value))?;
        Ok(Buffer::Own(own))
    }
}

/// A list may be given as one row of numbers only; a tensor in its own shape, or flat.
fn check_shape(name: &str, data_type: &DataType, shape: &[usize]) -> Result<()> {
    let fits = match data_type {
        DataType::Tensor(_, sides) => {
            shape.len() == 1 || shape.iter().copied().eq(sides.iter().map(|&side| side as usize))
        }
        _ => shape.len() == 1,
    };
    if fits {
        return Ok(());
    }
    Err(input(format!("column {name:?} holds {data_type}, and the array has the shape {shape:?} a row")))
}
