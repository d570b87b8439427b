//! Python values on their way into the store: columns of a call, checked against the types of the table.
//!
//! Reading them needs the interpreter's lock, writing them does not want it; so a call first makes a [`Column`] of each
//! argument and then lets the lock go. What Python cannot change (`str`, `bytes`) stays where it is. What it can (arrays) is
//! copied, in one piece a value or array: another thread may write to it as soon as the lock is free, and then nobody could
//! say what was stored.
//!
//! A column of many rows may be: a list or tuple with one value a row; an array with one row a first index (anything with the
//! buffer protocol: numpy, `array.array`, `memoryview`); an Arrow array; or whatever numpy makes an array of (torch tensors,
//! pandas series). [`numbers`] turns numbers of one type into those of another, [`buffer`] reads arrays, [`masked`] what of them is no
//! value, [`item`] single values, [`nested`] tensors in lists.

mod buffer;
mod item;
mod masked;
mod nested;
mod numbers;
mod tabular;

use std::borrow::Cow;
use std::ops::Range;

use forebay::store::{DataType, Element, Schema, Value};
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

use crate::failure::{Failure, Result, input};
use buffer::Numbers;
pub(crate) use tabular::gathered;

/// The values of one column, a cell a row.
#[derive(Debug)]
pub(crate) struct Column {
    name: String,
    /// The type of the elements, where cells are lists or tensors.
    element: Element,
    buffers: Vec<Buffer>,
    cells: Vec<Cell>,
}

/// Bytes that nobody changes.
#[derive(Debug)]
enum Buffer {
    Python(PyBackedBytes),
    Own(Vec<u8>),
    /// The first so many bytes of what is aligned for any number.
    Words(Vec<u64>, usize),
}

/// One value, as the store takes it.
#[derive(Debug)]
enum Cell {
    Plain(Value<'static>),
    Text(PyBackedStr),
    Binary(PyBackedBytes),
    /// A part of a buffer of the column.
    Numbers(usize, Range<usize>),
}

impl Buffer {
    fn bytes(&self) -> &[u8] {
        match self {
            Buffer::Python(bytes) => bytes,
            Buffer::Own(bytes) => bytes,
            Buffer::Words(words, length) => &bytemuck::cast_slice(words)[..*length],
        }
    }
}

impl Column {
    /// The name and the value of a row, for a batch.
    pub(crate) fn cell(&self, row: usize) -> (&str, Value<'_>) {
        let value = match &self.cells[row] {
            Cell::Plain(value) => value.clone(),
            Cell::Text(text) => Value::Utf8(Cow::Borrowed(text)),
            Cell::Binary(bytes) => Value::Binary(Cow::Borrowed(bytes)),
            Cell::Numbers(buffer, range) => {
                Value::Numbers(self.element, Cow::Borrowed(&self.buffers[*buffer].bytes()[range.clone()]))
            }
        };
        (&self.name, value)
    }

    fn new(name: String, element: Element) -> Self {
        Column { name, element, buffers: Vec::new(), cells: Vec::new() }
    }

    fn push_numbers(&mut self, buffer: Buffer) {
        let length = buffer.bytes().len();
        self.buffers.push(buffer);
        self.cells.push(Cell::Numbers(self.buffers.len() - 1, 0..length));
    }
}

/// The cells of a row, over all columns of a call.
pub(crate) fn cells(columns: &[Column], row: usize) -> impl Iterator<Item = (&str, Value<'_>)> {
    columns.iter().map(move |column| column.cell(row))
}

/// The names of the columns that a call gives as keyword arguments.
pub(crate) fn names(given: Option<&Bound<'_, PyDict>>) -> Result<Vec<String>> {
    Ok(given.into_iter().flatten().map(|(name, _)| name.extract()).collect::<PyResult<_>>()?)
}

/// The keyword arguments of a call as columns of so many rows.
pub(crate) fn columns(
    schema: &Schema,
    given: Option<&Bound<'_, PyDict>>,
    rows: usize,
) -> Result<Vec<Column>> {
    let column = |(name, values): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let name: String = name.extract()?;
        let data_type = &schema.data_columns()[schema.index_of(&name)?].data_type;
        column(name, data_type, &values, rows)
    };
    given.into_iter().flatten().map(column).collect()
}

/// One value of a column, for calls about one row.
pub(crate) fn single(schema: &Schema, name: &str, value: &Bound<'_, PyAny>) -> Result<Column> {
    let data_type = &schema.data_columns()[schema.index_of(name)?].data_type;
    column(name.to_owned(), data_type, PyList::new(value.py(), [value])?.as_any(), 1)
}

fn column(name: String, data_type: &DataType, values: &Bound<'_, PyAny>, rows: usize) -> Result<Column> {
    if let DataType::List(element) = data_type
        && let Some((numbers, lengths)) = ragged(values)?
    {
        check_rows(&name, lengths.len(), rows)?;
        return numbers.ragged(name, data_type, *element, &lengths);
    }
    let plain = arranged(&name, values)?;
    let numbers = match data_type {
        DataType::Utf8 | DataType::Binary => None,
        _ => Numbers::of(&plain)?,
    };
    let count = match &numbers {
        Some(numbers) => numbers.rows(),
        None => plain.len().map_err(|_| one_value(&name, values))?, // an array without a side
    };
    check_rows(&name, count, rows)?;
    match (data_type, numbers) {
        (DataType::Bool | DataType::Number(_), Some(numbers)) => numbers.scalars(name),
        (DataType::List(element) | DataType::Tensor(element, _), Some(numbers)) => {
            numbers.lists(name, data_type, *element)
        }
        (_, None) => {
            let element = match data_type {
                DataType::List(element) | DataType::Tensor(element, _) => *element,
                _ => Element::UInt8,
            };
            let mut column = Column::new(name, element);
            for value in plain.try_iter()? {
                item::push(&mut column, data_type, &value?)?;
            }
            Ok(column)
        }
        (DataType::Utf8 | DataType::Binary, Some(_)) => Ok(Column::new(name, Element::UInt8)), // not asked for
    }
}

fn check_rows(name: &str, count: usize, rows: usize) -> Result<()> {
    if count == rows {
        return Ok(());
    }
    Err(input(format!("column {name:?} has {count} values for {rows} rows")))
}

/// That what was given for a column is one value.
fn one_value(name: &str, values: &Bound<'_, PyAny>) -> Failure {
    let kind = values.get_type().name().map_or_else(|_| "value".to_owned(), |kind| kind.to_string());
    input(format!("column {name:?} is one {kind}; give a list with one value a row"))
}

/// Whether values are as [`arranged`] gives them.
fn is_plain(values: &Bound<'_, PyAny>) -> bool {
    values.is_instance_of::<PyList>() || values.is_instance_of::<PyTuple>() || buffer::is_one(values)
}

/// The lists of an Arrow array, one for each row: all their numbers, and how many each has.
fn ragged(values: &Bound<'_, PyAny>) -> Result<Option<(Numbers, Vec<Option<usize>>)>> {
    if is_plain(values) {
        return Ok(None);
    }
    let parts = values.py().import("forebay._arrays")?.getattr("ragged")?.call1((values,))?;
    let Some((numbers, lengths)) = parts.extract::<Option<(Bound<'_, PyAny>, Vec<Option<usize>>)>>()? else {
        return Ok(None);
    };
    Ok(Numbers::of(&numbers)?.map(|numbers| (numbers, lengths)))
}

/// The values as a list, a tuple or something with the buffer protocol.
fn arranged<'py>(name: &str, values: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    let is_text = values.is_instance_of::<PyString>() || values.is_instance_of::<pyo3::types::PyBytes>();
    if is_text || values.is_instance_of::<PyDict>() {
        return Err(one_value(name, values));
    }
    if is_plain(values) {
        return Ok(values.clone());
    }
    let arrange = values.py().import("forebay._arrays")?.getattr("arranged")?;
    Ok(arrange.call1((name, values))?)
}
