//! Single values: one cell from one Python object.

use forebay::store::{DataType, Element, Value};
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyList, PyMemoryView, PyTuple};

use super::buffer::Numbers;
use super::{Buffer, Cell, Column, numbers};
use crate::failure::{Failure, Result};
use crate::options::wrong;

/// Adds the value of the next row to its column. `None` is a value that is known to be absent.
pub(super) fn push(column: &mut Column, data_type: &DataType, value: &Bound<'_, PyAny>) -> Result<()> {
    if value.is_none() {
        column.cells.push(Cell::Plain(Value::Null));
        return Ok(());
    }
    match data_type {
        DataType::Bool | DataType::Number(_) => {
            let number = number(value).ok_or_else(|| refused(column, data_type, value))?;
            column.cells.push(Cell::Plain(number));
        }
        DataType::Utf8 => {
            let text: Option<PyBackedStr> = value.extract().ok();
            column.cells.push(Cell::Text(text.ok_or_else(|| refused(column, data_type, value))?));
        }
        DataType::Binary => {
            let bytes = bytes(value)?.ok_or_else(|| refused(column, data_type, value))?;
            column.cells.push(Cell::Binary(bytes));
        }
        DataType::List(element) | DataType::Tensor(element, _) => {
            push_list(column, data_type, *element, value)?;
        }
    }
    Ok(())
}

fn refused(column: &Column, data_type: &DataType, value: &Bound<'_, PyAny>) -> Failure {
    wrong(&format!("a value of column {:?}", column.name), &data_type.to_string(), value)
}

/// A number or bool: Python's own, or what converts to one without a loss, as numpy's do.
fn number(value: &Bound<'_, PyAny>) -> Option<Value<'static>> {
    if value.is_instance_of::<PyBool>() {
        return value.extract().ok().map(Value::Bool);
    }
    if value.is_instance_of::<PyInt>() {
        return integer(value);
    }
    if value.is_instance_of::<PyFloat>() {
        return value.extract().ok().map(Value::Float);
    }
    let bool = value.extract().ok().map(Value::Bool); // numpy's
    bool.or_else(|| integer(value)).or_else(|| value.extract().ok().map(Value::Float))
}

fn integer(value: &Bound<'_, PyAny>) -> Option<Value<'static>> {
    let signed = value.extract::<i64>().ok().map(Value::from);
    signed.or_else(|| value.extract::<u64>().ok().map(Value::from))
}

/// The bytes of a `bytes`, or a copy of what another object with the buffer protocol holds.
fn bytes(value: &Bound<'_, PyAny>) -> Result<Option<PyBackedBytes>> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(Some(bytes.clone().into()));
    }
    let Ok(view) = PyMemoryView::from(value) else { return Ok(None) };
    let copy = view.call_method0("tobytes")?.cast_into::<PyBytes>().map_err(PyErr::from)?;
    Ok(Some(copy.into()))
}

fn push_list(
    column: &mut Column,
    data_type: &DataType,
    element: Element,
    value: &Bound<'_, PyAny>,
) -> Result<()> {
    if let Some(numbers) = Numbers::of(value)? {
        return numbers.push_to(column, data_type);
    }
    if is_sequence(value) {
        let mut list = Vec::with_capacity(value.len()? * element.width_bytes());
        let nested = matches!(data_type, DataType::Tensor(..));
        flatten(&mut list, element, nested, value).ok_or_else(|| refused(column, data_type, value))?;
        column.push_numbers(Buffer::Own(list));
        return Ok(());
    }
    let arranged = match super::buffer::is_one(value) {
        true if value.hasattr("tolist")? => value.call_method0("tolist")?, // of objects, or in another order of bytes
        _ => super::arranged(&column.name, value)?,
    };
    match Numbers::of(&arranged)? {
        Some(numbers) => numbers.push_to(column, data_type),
        None if is_sequence(&arranged) => push_list(column, data_type, element, &arranged),
        None => Err(refused(column, data_type, value)),
    }
}

fn is_sequence(value: &Bound<'_, PyAny>) -> bool {
    value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>()
}

/// Appends the numbers of a list; of lists in lists where those may be `nested`. `None` when one does not fit.
fn flatten(list: &mut Vec<u8>, element: Element, nested: bool, values: &Bound<'_, PyAny>) -> Option<()> {
    for value in values.try_iter().ok()? {
        let value = value.ok()?;
        if nested && is_sequence(&value) {
            flatten(list, element, nested, &value)?;
        } else {
            numbers::push(list, number(&value)?, element).ok()?;
        }
    }
    Some(())
}
