//! The tokens of rows that something begins at, as a call names them.

use pyo3::prelude::*;

use crate::failure::{Result, input};
use crate::options::wrong;

/// The token of each row, as the argument that is called `what` says it: one is given for all of them, or one a row.
pub(crate) fn starts(given: &Bound<'_, PyAny>, what: &str, rows: usize) -> Result<Vec<u32>> {
    if let Ok(start) = given.extract() {
        return Ok(vec![start; rows]);
    }
    let starts: Vec<u32> = given.extract().map_err(|_| {
        wrong(what, "the number of a token, 0 or more, or a list with one such number a row", given)
    })?;
    match starts.len() == rows {
        true => Ok(starts),
        false => Err(input(format!("{what} has {} entries for {rows} rows", starts.len()))),
    }
}
