//! Numbers in lists: those of a list, and those of a tensor, flat or in lists within lists of its sides.

use forebay::store::Element;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use super::item::number;
use super::numbers;

/// Why a list is no value of a column.
#[derive(Debug)]
pub(super) enum Misfit {
    /// Something in it is no number, or none of the column's.
    Element,
    /// The lists within it are not those of the tensor's sides; how long the first ones are that differ, from the outermost on.
    Shape(Vec<usize>),
    /// Lists lie in it deeper than any tensor has sides, without an end where one contains itself.
    Depth,
}

/// Lists within each other that are looked at: as many as numpy has sides of an array. A list that contains itself has no last one.
pub(super) const LEVELS_MAX: usize = 64;

pub(super) fn is_sequence(value: &Bound<'_, PyAny>) -> bool {
    value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>()
}

/// Appends the numbers of a list.
pub(super) fn push_flat(
    list: &mut Vec<u8>,
    element: Element,
    values: &Bound<'_, PyAny>,
) -> Result<(), Misfit> {
    for value in values.try_iter().map_err(|_| Misfit::Element)? {
        push_number(list, element, &value.map_err(|_| Misfit::Element)?)?;
    }
    Ok(())
}

/// Appends the numbers of a tensor. How many a flat one has is seen where it is written, as for arrays.
pub(super) fn push_tensor(
    list: &mut Vec<u8>,
    element: Element,
    sides: &[u32],
    values: &Bound<'_, PyAny>,
) -> Result<(), Misfit> {
    let mut entries = values.try_iter().map_err(|_| Misfit::Element)?;
    match entries.any(|entry| entry.is_ok_and(|entry| is_sequence(&entry))) {
        true if sides.len() > LEVELS_MAX => Err(Misfit::Depth),
        true => push_nested(list, element, sides, values),
        false => push_flat(list, element, values),
    }
}

fn push_number(list: &mut Vec<u8>, element: Element, value: &Bound<'_, PyAny>) -> Result<(), Misfit> {
    let number = number(value).ok_or(Misfit::Element)?;
    numbers::push(list, number, element).map_err(|_| Misfit::Element)
}

/// Appends the numbers of lists in lists: as many entries as the first side says, each of the sides that are left.
fn push_nested(
    list: &mut Vec<u8>,
    element: Element,
    sides: &[u32],
    values: &Bound<'_, PyAny>,
) -> Result<(), Misfit> {
    let length = values.len().map_err(|_| Misfit::Element)?;
    let (side, rest) = sides.split_first().map_or((None, sides), |(side, rest)| (Some(*side as usize), rest));
    if side != Some(length) {
        return Err(shape_of(values));
    }
    for value in values.try_iter().map_err(|_| Misfit::Element)? {
        let value = value.map_err(|_| Misfit::Element)?;
        let pushed = match (is_sequence(&value), rest.is_empty()) {
            (true, _) => push_nested(list, element, rest, &value),
            (false, true) => push_number(list, element, &value),
            (false, false) => Err(Misfit::Shape(Vec::new())),
        };
        pushed.map_err(|misfit| match misfit {
            Misfit::Shape(below) => Misfit::Shape([vec![length], below].concat()),
            other => other,
        })?;
    }
    Ok(())
}

/// How long a list is, the first within it, and so on.
fn shape_of(values: &Bound<'_, PyAny>) -> Misfit {
    let mut shape = Vec::new();
    let mut list = Some(values.clone());
    while let Some(values) = list.filter(is_sequence) {
        if shape.len() == LEVELS_MAX {
            return Misfit::Depth;
        }
        shape.push(values.len().unwrap_or(0));
        list = values.get_item(0).ok();
    }
    Misfit::Shape(shape)
}
