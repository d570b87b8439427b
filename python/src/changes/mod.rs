//! Changes over any tables, made all or not at all.
//!
//! Each call of [`Changes`] is its namesake of a table or a consumer: the same object of Python is called, told to put what is said on the
//! [`List`] instead of making it. So arguments, values and errors are the same. Values are read at the call; the store is asked when the
//! block ends.

mod list;
mod said;
mod starts;
mod terms;

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::arguments;
use crate::consumer::{Consumer, ConsumerName};
use crate::failure::Result;
use crate::handle::Handle;
use crate::pending::{entered, in_thread};
use crate::rows::Rows;
use crate::table::Table;
use crate::table_name::TableName;
pub(crate) use list::List;
use said::make;
pub(crate) use said::{About, Said, What, write_rows};
pub(crate) use starts::starts;
pub(crate) use terms::Terms;

/// Changes to be made together. As a context manager they are made when the block ends, and given up when it raises.
#[pyclass(frozen, module = "forebay")]
#[derive(Debug)]
pub(crate) struct Changes {
    handle: Arc<Handle>,
    list: Arc<List>,
}

impl Changes {
    pub(crate) fn new(handle: &Arc<Handle>, terms: Terms) -> Self {
        Changes { handle: handle.clone(), list: Arc::new(List::new(terms)) }
    }

    /// Calls a method of the table of that name, for the list.
    fn of_table<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        method: &str,
        arguments: impl pyo3::call::PyCallArgs<'py>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> Result<Bound<'py, PyAny>> {
        let table = Bound::new(py, Table::new(&self.handle, name).saying_to(&self.list))?;
        Ok(table.getattr(method)?.call(arguments, keywords)?)
    }

    /// Calls a method of the consumer, for the list.
    fn of_consumer<'py>(
        &self,
        py: Python<'py>,
        consumer: &ConsumerName<'py>,
        method: &str,
        arguments: &Bound<'py, PyTuple>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> Result<Bound<'py, PyAny>> {
        let consumer = Consumer::new(&self.handle, consumer.name()).saying_to(&self.list);
        Ok(Bound::new(py, consumer)?.getattr(method)?.call(arguments, keywords)?)
    }
}

#[pymethods]
impl Changes {
    /// Begins rows of a table, as `Table.insert`.
    #[pyo3(signature = (table, batch=None, /, **keywords))]
    fn insert<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = arguments::table_or_name)] table: TableName<'py>,
        batch: Option<Bound<'py, PyAny>>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> Result<Bound<'py, PyAny>> {
        self.of_table(py, table.name_in(&self.handle)?, "insert", (batch,), keywords)
    }

    /// Turns cells of rows final, as `Table.write`.
    #[pyo3(signature = (rows, batch=None, /, **keywords))]
    fn write<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = arguments::rows)] rows: Py<Rows>,
        batch: Option<Bound<'py, PyAny>>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> Result<()> {
        let table = rows.get().table_name();
        self.of_table(py, &table, "write", (rows, batch), keywords).map(drop)
    }

    /// Says that rows go on under a later version, as `Table.span`.
    #[pyo3(signature = (rows, /, **keywords))]
    fn span<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = arguments::rows)] rows: Py<Rows>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> Result<()> {
        let table = rows.get().table_name();
        self.of_table(py, &table, "span", (rows,), keywords).map(drop)
    }

    /// Says from which token on rows are trained on, as `Table.trainable_from`.
    fn trainable_from(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::rows)] rows: Py<Rows>,
        start: Bound<'_, PyAny>,
    ) -> Result<()> {
        let table = rows.get().table_name();
        self.of_table(py, &table, "trainable_from", (rows, start), None).map(drop)
    }

    /// Leaves rows out for good, as `Table.exclude`.
    fn exclude(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::rows)] rows: Py<Rows>,
        reason: Bound<'_, PyAny>,
    ) -> Result<()> {
        let table = rows.get().table_name();
        self.of_table(py, &table, "exclude", (rows, reason), None).map(drop)
    }

    /// Says that a group has exactly so many members, as `Consumer.expect_group`.
    #[pyo3(signature = (consumer, *arguments, **keywords))]
    fn expect_group<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = arguments::consumer)] consumer: ConsumerName<'py>,
        arguments: &Bound<'py, PyTuple>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> Result<()> {
        self.of_consumer(py, &consumer, "expect_group", arguments, keywords).map(drop)
    }

    /// Says that nobody more will come to a group, as `Consumer.close_group`.
    #[pyo3(signature = (consumer, *arguments, **keywords))]
    fn close_group<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = arguments::consumer)] consumer: ConsumerName<'py>,
        arguments: &Bound<'py, PyTuple>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> Result<()> {
        self.of_consumer(py, &consumer, "close_group", arguments, keywords).map(drop)
    }

    /// Says that a trajectory of a group has all its rows, as `Consumer.close_trajectory`.
    #[pyo3(signature = (consumer, *arguments, **keywords))]
    fn close_trajectory<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = arguments::consumer)] consumer: ConsumerName<'py>,
        arguments: &Bound<'py, PyTuple>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> Result<()> {
        self.of_consumer(py, &consumer, "close_trajectory", arguments, keywords).map(drop)
    }

    /// Makes the changes, all or none.
    fn apply(&self, py: Python<'_>) -> Result<()> {
        self.list.make(py, &self.handle)
    }

    /// The same for an event loop.
    fn apply_async<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>> {
        in_thread(slf, "apply", &PyTuple::empty(slf.py()), None)
    }

    /// Gives the changes up, if they were not made.
    fn give_up(&self) {
        self.list.give_up();
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// Makes the changes, unless the block raised, or has made them or given them up.
    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> Result<bool> {
        if exception.iter().any(|part| !part.is_none()) {
            self.list.give_up();
        }
        if self.list.len().is_some() {
            self.apply(py)?;
        }
        Ok(false)
    }

    fn __aenter__<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>> {
        entered(slf)
    }

    #[pyo3(signature = (*exception))]
    fn __aexit__<'py>(slf: &Bound<'py, Self>, exception: &Bound<'py, PyTuple>) -> Result<Bound<'py, PyAny>> {
        in_thread(slf, "__exit__", exception, None)
    }

    fn __repr__(&self) -> String {
        let place = self.handle.place();
        match self.list.len() {
            Some(calls) => format!("<changes of {place}: {calls} to be made together>"),
            None => format!("<changes of {place}: made or given up>"),
        }
    }
}

/// Makes what a call says, or puts it on the list of the call. Gives the rows that it inserts.
pub(crate) fn say(
    py: Python<'_>,
    handle: &Handle,
    list: Option<&List>,
    said: Said,
    terms: Terms,
) -> Result<Rows> {
    let Some(list) = list else {
        let mut said = [said];
        let rows = handle.run(py, |open| make(open, terms, &mut said))?;
        return Ok(Rows::new(&said[0].table, rows));
    };
    list.add(said, terms)
}
