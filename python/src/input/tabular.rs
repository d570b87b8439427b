//! Record batches and tables of Arrow on their way in: the columns of a call, by name.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::failure::{Failure, Result, input};
use crate::packages;

/// What a batch may be: a record batch or table of pyarrow, or whatever gives one by the Arrow C interface.
const WAYS_OUT: [&str; 2] = ["__arrow_c_stream__", "__arrow_c_array__"];

/// The columns of a call: those of a batch, where one is given, and those of its keywords.
pub(crate) fn gathered<'py>(
    batch: Option<&Bound<'py, PyAny>>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> Result<Option<Bound<'py, PyDict>>> {
    let Some(batch) = batch else { return Ok(keywords.cloned()) };
    if !WAYS_OUT.iter().any(|way| batch.hasattr(*way).unwrap_or(false)) {
        return Err(not_a_batch(batch));
    }
    // An array that is no struct has no columns, and pyarrow says so in its own way.
    let table = packages::pyarrow(batch.py())?.getattr("table")?.call1((batch,));
    let table = table.map_err(|_| not_a_batch(batch))?;
    let columns = PyDict::new(batch.py());
    for name in table.getattr("column_names")?.try_iter()? {
        let name: String = name?.extract()?;
        if columns.contains(&name)? || keywords.map_or(Ok(false), |given| given.contains(&name))? {
            return Err(input(format!("column {name:?} is given twice; give it once")));
        }
        columns.set_item(&name, table.call_method1("column", (&name,))?)?;
    }
    for (name, values) in keywords.into_iter().flatten() {
        columns.set_item(name, values)?;
    }
    Ok(Some(columns))
}

fn not_a_batch(found: &Bound<'_, PyAny>) -> Failure {
    let kind = found.get_type().name().map_or_else(|_| "that".to_owned(), |name| name.to_string());
    input(format!(
        "a batch is a record batch or a table of Arrow, not {kind}; give columns by name as keywords otherwise"
    ))
}
