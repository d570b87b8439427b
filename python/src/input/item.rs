//! Single values: one cell from one Python object.

use forebay::store::{DataType, Element, Value};
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyMemoryView};

use super::buffer::Numbers;
use super::masked::{is_masked, mask_of};
use super::nested::{LEVELS_MAX, Misfit, is_sequence, push_flat, push_tensor};
use super::{Buffer, Cell, Column};
use crate::failure::{Failure, Result, input};
use crate::options::wrong;

/// Adds the value of the next row to its column. `None` is a value that is known to be absent, and so is a masked element of an array.
pub(super) fn push(column: &mut Column, data_type: &DataType, value: &Bound<'_, PyAny>) -> Result<()> {
    if value.is_none() || is_masked(value)? {
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

/// A number or bool: Python's own, or what converts to one without a loss, as numpy's do. A masked one is none, though it converts.
pub(super) fn number(value: &Bound<'_, PyAny>) -> Option<Value<'static>> {
    if value.is_instance_of::<PyBool>() {
        return value.extract().ok().map(Value::Bool);
    }
    if value.is_instance_of::<PyInt>() {
        return integer(value);
    }
    if value.is_instance_of::<PyFloat>() {
        return value.extract().ok().map(Value::Float);
    }
    if !mask_of(value).is_ok_and(|mask| mask.is_none()) {
        return None;
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
    if mask_of(value)?.is_some() {
        return Ok(None);
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
        let pushed = match data_type {
            DataType::Tensor(_, sides) => push_tensor(&mut list, element, sides, value),
            _ => push_flat(&mut list, element, value),
        };
        pushed.map_err(|misfit| match misfit {
            Misfit::Element => refused(column, data_type, value),
            Misfit::Shape(found) => input(format!(
                "column {:?} holds {data_type}, and lists of the shape {found:?} were given for a row; give lists within \
                 lists of its sides, or its numbers in one list",
                column.name
            )),
            Misfit::Depth => input(format!(
                "column {:?} holds {data_type}, and a list was given for a row that contains itself, or others on more than \
                 {LEVELS_MAX} levels; give lists within lists of its sides, or its numbers in one list",
                column.name
            )),
        })?;
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
