//! The tokens of rows that something begins at, as a call names them.

use pyo3::prelude::*;

use crate::failure::{Result, input};
use crate::options::wrong;

/// The token of each row: one is given for all of them, or one a row.
pub(crate) fn starts(given: &Bound<'_, PyAny>, rows: usize) -> Result<Vec<u32>> {
    if let Ok(start) = given.extract() {
        return Ok(vec![start; rows]);
    }
    let starts: Vec<u32> = given.extract().map_err(|_| {
        wrong("start", "the number of a token, 0 or more, or a list with one such number a row", given)
    })?;
    match starts.len() == rows {
        true => Ok(starts),
        false => Err(input(format!("start has {} entries for {rows} rows", starts.len()))),
    }
}
