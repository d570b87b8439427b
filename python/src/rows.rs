//! Rows, as their writers name them.

use std::sync::Arc;

use forebay::store::Row;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::PySlice;

use crate::failure::{Result, input};

/// Rows of one table, in order: what an insert, a look-up or a claim gives.
#[pyclass(frozen, module = "forebay", sequence)]
#[derive(Debug)]
pub(crate) struct Rows {
    table: Arc<str>,
    rows: Vec<Row>,
}

impl Rows {
    pub(crate) fn new(table: &str, rows: Vec<Row>) -> Self {
        Rows { table: table.into(), rows }
    }

    /// The rows, for a call on that table.
    pub(crate) fn of(&self, table: &str) -> Result<Vec<Row>> {
        if *self.table == *table {
            return Ok(self.rows.clone());
        }
        Err(input(format!("these are rows of table {:?}, not of {table:?}", self.table)))
    }

    /// The name of the table, to keep.
    pub(crate) fn table_name(&self) -> Arc<str> {
        self.table.clone()
    }

    /// The one row, for a call that is about one.
    pub(crate) fn one_of(&self, table: &str) -> Result<Row> {
        match self.of(table)?[..] {
            [row] => Ok(row),
            _ => Err(input(format!("this call is about one row and {} were given", self.rows.len()))),
        }
    }
}

/// What `rows[...]` is asked for.
#[derive(FromPyObject)]
enum Position<'py> {
    Index(isize),
    Slice(Bound<'py, PySlice>),
}

#[pymethods]
impl Rows {
    /// The name of the table.
    #[getter]
    fn table(&self) -> &str {
        &self.table
    }

    /// Rows of one table, one after the other.
    #[staticmethod]
    fn concat(parts: Vec<PyRef<'_, Rows>>) -> Result<Rows> {
        let Some(first) = parts.first() else {
            return Err(input("there are no rows to put one after the other; give at least one"));
        };
        let rows = parts.iter().map(|part| part.of(&first.table)).collect::<Result<Vec<_>>>()?;
        Ok(Rows { table: first.table.clone(), rows: rows.concat() })
    }

    fn __len__(&self) -> usize {
        self.rows.len()
    }

    fn __getitem__(&self, position: Position<'_>) -> PyResult<Rows> {
        let length = self.rows.len() as isize;
        let rows = match position {
            Position::Index(index) => {
                let at = if index < 0 { index + length } else { index };
                if !(0..length).contains(&at) {
                    return Err(PyIndexError::new_err(format!("row {index} of {length}")));
                }
                vec![self.rows[at as usize]]
            }
            Position::Slice(slice) => {
                let range = slice.indices(length)?;
                (0..range.slicelength)
                    .map(|n| self.rows[(range.start + n as isize * range.step) as usize])
                    .collect()
            }
        };
        Ok(Rows { table: self.table.clone(), rows })
    }

    fn __repr__(&self) -> String {
        format!("<{} rows of {:?}>", self.rows.len(), self.table)
    }
}
