//! Cells of rows that nobody has claimed, as Python sees them: one value a row.

use forebay::client::CellValue as Cell;
use forebay::store::{DataType, Element};
use half::{bf16, f16};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use crate::failure::{Failure, Result};
use crate::output::show_cells;

/// The cells of a column; `None` for what is null or not final.
pub(crate) fn show<'py>(
    py: Python<'py>,
    data_type: &DataType,
    cells: Vec<Cell>,
) -> Result<Bound<'py, PyAny>> {
    if matches!(data_type, DataType::Binary | DataType::List(_) | DataType::Tensor(..)) {
        return show_cells(py, data_type, cells);
    }
    let list = PyList::empty(py);
    for cell in cells {
        match (cell, data_type) {
            (Cell::Inline(bits), DataType::Bool) => list.append(bits != 0)?,
            (Cell::Inline(bits), DataType::Number(element)) => append_number(&list, *element, bits)?,
            (Cell::Bytes(bytes), DataType::Utf8) => {
                let text = std::str::from_utf8(&bytes).map_err(|error| {
                    Failure::Here("CorruptError", format!("a text is not UTF-8: {error}; verify the store"))
                })?;
                list.append(PyString::new(py, text))?;
            }
            _ => list.append(py.None())?,
        }
    }
    Ok(list.into_any())
}

/// The same cells, those that grow as far as they have come.
pub(crate) fn grown(cells: Vec<Cell>) -> Vec<Cell> {
    let so_far = |cell| match cell {
        Cell::Partial(bytes) => Cell::Bytes(bytes),
        other => other,
    };
    cells.into_iter().map(so_far).collect()
}

/// A number of its low bits.
#[allow(clippy::cast_possible_truncation, reason = "the low bits are the number")]
fn append_number(list: &Bound<'_, PyList>, element: Element, bits: u64) -> PyResult<()> {
    match element {
        Element::Int8 => list.append(bits as u8 as i8),
        Element::Int16 => list.append(bits as u16 as i16),
        Element::Int32 => list.append(bits as u32 as i32),
        Element::Int64 => list.append(bits as i64),
        Element::UInt8 | Element::UInt16 | Element::UInt32 | Element::UInt64 => list.append(bits),
        Element::Float16 => list.append(f16::from_bits(bits as u16).to_f32()),
        Element::BFloat16 => list.append(bf16::from_bits(bits as u16).to_f32()),
        Element::Float32 => list.append(f32::from_bits(bits as u32)),
        Element::Float64 => list.append(f64::from_bits(bits)),
    }
}
