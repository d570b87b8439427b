//! Rows, as their writers name them.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};

use forebay::store::Row;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyRange, PySlice};

use crate::arguments;
use crate::failure::{Result, input, state};

/// Rows of one table, in order: what an insert, a look-up or a claim gives. Those of the same rows in the same order are equal.
#[pyclass(frozen, module = "forebay", sequence)]
#[derive(Debug)]
pub(crate) struct Rows {
    table: Arc<str>,
    rows: Arc<Awaited>,
}

/// Rows that are there, or that changes insert which are not made yet.
#[derive(Debug)]
pub(crate) struct Awaited {
    count: usize,
    rows: OnceLock<Vec<Row>>,
}

impl Awaited {
    /// So many rows to come.
    pub(crate) fn of(count: usize) -> Self {
        Awaited { count, rows: OnceLock::new() }
    }

    /// They are inserted: the next ones of these.
    pub(crate) fn come(&self, rows: impl Iterator<Item = Row>) {
        self.rows.get_or_init(|| rows.take(self.count).collect());
    }
}

impl Rows {
    pub(crate) fn new(table: &str, rows: Vec<Row>) -> Self {
        let rows = Awaited { count: rows.len(), rows: rows.into() };
        Rows { table: table.into(), rows: Arc::new(rows) }
    }

    /// Rows of changes, which bring them when they are made.
    pub(crate) fn awaited(table: &Arc<str>, rows: &Arc<Awaited>) -> Self {
        Rows { table: table.clone(), rows: rows.clone() }
    }

    /// The rows, once they are there.
    fn there(&self) -> Result<&[Row]> {
        self.rows.rows.get().map(Vec::as_slice).ok_or_else(|| {
            state(format!(
                "these {} rows of table {:?} are inserted by changes that are not made; use them after the block of \
                 store.changes() has ended without an error",
                self.rows.count, self.table
            ))
        })
    }

    /// The rows, for a call on that table.
    pub(crate) fn of(&self, table: &str) -> Result<Vec<Row>> {
        if *self.table == *table {
            return Ok(self.there()?.to_vec());
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
            _ => Err(input(format!("this call is about one row and {} were given", self.rows.count))),
        }
    }
}

/// What `rows[...]` is asked for.
#[derive(FromPyObject)]
pub(crate) enum Position<'py> {
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
    fn concat(#[pyo3(from_py_with = arguments::parts)] parts: Vec<Py<Rows>>) -> Result<Rows> {
        let Some(first) = parts.first().map(Py::get) else {
            return Err(input("there are no rows to put one after the other; give at least one"));
        };
        let rows = parts.iter().map(|part| part.get().of(&first.table)).collect::<Result<Vec<_>>>()?;
        Ok(Rows::new(&first.table, rows.concat()))
    }

    fn __len__(&self) -> usize {
        self.rows.count
    }

    fn __getitem__(
        &self,
        #[pyo3(from_py_with = arguments::position)] position: Position<'_>,
    ) -> PyResult<Rows> {
        let there = self.there()?;
        let length = there.len() as isize;
        let rows = match position {
            Position::Index(index) => {
                let at = if index < 0 { index + length } else { index };
                if !(0..length).contains(&at) {
                    return Err(PyIndexError::new_err(format!("row {index} of {length}")));
                }
                vec![there[at as usize]]
            }
            Position::Slice(slice) => {
                let range = slice.indices(length)?;
                (0..range.slicelength)
                    .map(|n| there[(range.start + n as isize * range.step) as usize])
                    .collect()
            }
        };
        Ok(Rows::new(&self.table, rows))
    }

    /// Row after row, each as the rows that it is alone.
    fn __iter__<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>> {
        let count = slf.get().there()?.len() as isize;
        let positions = PyRange::new(slf.py(), 0, count)?;
        Ok(slf.py().import("builtins")?.getattr("map")?.call1((slf.getattr("__getitem__")?, positions))?)
    }

    fn __eq__(&self, other: PyRef<'_, Rows>) -> Result<bool> {
        let is_one = Arc::ptr_eq(&self.rows, &other.rows);
        Ok(self.table == other.table && (is_one || self.there()? == other.there()?))
    }

    fn __hash__(&self) -> Result<u64> {
        let mut hasher = DefaultHasher::new();
        (&self.table, self.there()?).hash(&mut hasher);
        Ok(hasher.finish())
    }

    /// What pickling asks for: refused, for rows are of the store that is open here.
    fn __reduce__(&self) -> Result<Py<PyAny>> {
        Err(input(format!(
            "these {} rows of table {:?} are of a store that is open in this process and cannot be pickled; send their sample ids \
             and policy version, and look them up there with Table.find(policy_version=..., sample_ids=[...])",
            self.rows.count, self.table
        )))
    }

    fn __repr__(&self) -> String {
        format!("<{} rows of {:?}>", self.rows.count, self.table)
    }
}
