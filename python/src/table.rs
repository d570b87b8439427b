//! A table: what writers call.

use std::num::NonZeroU32;
use std::sync::Arc;

use forebay::client::Table as ClientTable;
use forebay::store::{DataColumn, Delete, Purpose, SampleId, Schema};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::arguments;
use crate::begun::Begun;
use crate::cells::grown;
use crate::changes::{List, Said, Terms, What, say, starts};
use crate::failure::{Result, input};
use crate::handle::{Handle, Open};
use crate::history;
use crate::input::{Column, columns, gathered, names, single};
use crate::pending::in_thread;
use crate::rows::Rows;
use crate::schema::data_type;
use crate::wait::heed_signals;

/// How many rows are shown before signals are heeded: as many as a server shows in one call.
const SHOWN_AT_ONCE: usize = 256;

/// How many rows are found before signals are heeded: as many as a server finds in one call.
const FOUND_AT_ONCE: usize = 10_000;

/// What a deletion is told that names its rows in no way, or in several.
const DELETE_ONE_WAY: &str =
    "say in one way which rows to delete: rows, version=, versions_up_to= or all=True";

/// The rows of one agent.
#[pyclass(frozen, module = "forebay")]
#[derive(Debug)]
pub(crate) struct Table {
    handle: Arc<Handle>,
    name: Arc<str>,
    /// Where changes are put that it is told to make; nowhere for one that makes them.
    list: Option<Arc<List>>,
}

impl Table {
    pub(crate) fn new(handle: &Arc<Handle>, name: &str) -> Self {
        Table { handle: handle.clone(), name: name.into(), list: None }
    }

    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// The same, of which changes go on a list.
    pub(crate) fn saying_to(self, list: &Arc<List>) -> Self {
        Table { list: Some(list.clone()), ..self }
    }

    /// Makes a change, or puts it on the list. Gives the rows that it inserts.
    fn say(&self, py: Python<'_>, what: What, terms: Terms) -> Result<Rows> {
        say(py, &self.handle, self.list.as_deref(), Said { table: self.name.clone(), what }, terms)
    }

    /// The schema that values of these columns are made of.
    fn schema(&self, py: Python<'_>, columns: &[String]) -> Result<Arc<Schema>> {
        self.handle.run(py, |open| open.schema(&self.name, columns))
    }

    /// The columns that a call gives, of so many rows.
    fn converted(
        &self,
        py: Python<'_>,
        given: Option<&Bound<'_, PyDict>>,
        rows: usize,
    ) -> Result<Vec<Column>> {
        let schema = self.schema(py, &names(given)?)?;
        let converted = columns(&schema, given, rows);
        if converted.is_err() {
            self.handle.run(py, |open| {
                open.forget_schema(&self.name);
                Ok(())
            })?;
        }
        converted
    }

    /// Runs a call on the table.
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&Open, &ClientTable) -> Result<T> + Send,
    ) -> Result<T> {
        self.handle.run(py, |open| call(open, &open.table(&self.name)))
    }
}

#[pymethods]
impl Table {
    /// The table's name.
    #[getter]
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The data columns, with the names of their types.
    #[getter]
    fn columns<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let columns = PyDict::new(py);
        let schema = self.handle.run(py, |open| open.schema_now(&self.name))?;
        for column in schema.data_columns().iter().filter(|column| !column.retired) {
            columns.set_item(&column.name, column.data_type.to_string())?;
        }
        Ok(columns)
    }

    /// Begins rows of a policy version, with what is known of them already.
    #[pyo3(signature = (batch=None, /, *, policy_version, sample_ids, purpose=None, agent=None, parents=None, weights=None,
        idempotency_tokens=None, version_spans=None, trainable_from=None, rollouts=NonZeroU32::MIN, next_attempt=false, late=false, excluded=None, origin=None,
        durability=None, timeout=None, **columns))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of one Python call")]
    fn insert(
        &self,
        py: Python<'_>,
        batch: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = arguments::policy_version)] policy_version: u64,
        sample_ids: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = arguments::purpose)] purpose: Option<String>,
        #[pyo3(from_py_with = arguments::agent)] agent: Option<String>,
        #[pyo3(from_py_with = arguments::parents)] parents: Option<Vec<Option<String>>>,
        #[pyo3(from_py_with = arguments::weights)] weights: Option<String>,
        #[pyo3(from_py_with = arguments::idempotency_tokens)] idempotency_tokens: Option<Vec<u128>>,
        #[pyo3(from_py_with = arguments::version_spans)] version_spans: Option<Vec<Vec<(u32, u64)>>>,
        trainable_from: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = arguments::rollouts)] rollouts: NonZeroU32,
        #[pyo3(from_py_with = arguments::next_attempt)] next_attempt: bool,
        #[pyo3(from_py_with = arguments::late)] late: bool,
        #[pyo3(from_py_with = arguments::excluded)] excluded: Option<String>,
        #[pyo3(from_py_with = arguments::origin)] origin: Option<String>,
        durability: Option<&Bound<'_, PyAny>>,
        timeout: Option<&Bound<'_, PyAny>>,
        columns: Option<&Bound<'_, PyDict>>,
    ) -> Result<Rows> {
        let begun = Begun {
            policy_version,
            purpose,
            agent,
            parents,
            weights,
            idempotency_tokens,
            version_spans,
            next_attempt,
            late,
            excluded,
            origin,
        };
        let rows = begun.rows(sample_ids, trainable_from)?;
        let columns = self.converted(py, gathered(batch, columns)?.as_ref(), rows.len())?;
        self.say(py, What::Insert { rows, rollouts, columns }, Terms::of(durability, timeout)?)
    }

    /// Turns cells of rows final, all of them or none.
    #[pyo3(signature = (rows, batch=None, /, *, durability=None, timeout=None, **columns))]
    fn write(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::rows)] rows: Py<Rows>,
        batch: Option<&Bound<'_, PyAny>>,
        durability: Option<&Bound<'_, PyAny>>,
        timeout: Option<&Bound<'_, PyAny>>,
        columns: Option<&Bound<'_, PyDict>>,
    ) -> Result<()> {
        let rows = rows.get().of(&self.name)?;
        let columns = self.converted(py, gathered(batch, columns)?.as_ref(), rows.len())?;
        self.say(py, What::Write { rows, columns }, Terms::of(durability, timeout)?).map(drop)
    }

    /// [`insert`](Self::insert) for an event loop.
    #[pyo3(signature = (batch=None, /, **keywords))]
    fn insert_async<'py>(
        slf: &Bound<'py, Self>,
        batch: Option<Bound<'py, PyAny>>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> Result<Bound<'py, PyAny>> {
        in_thread(slf, "insert", &PyTuple::new(slf.py(), [batch])?, keywords)
    }

    /// [`write`](Self::write) for an event loop.
    #[pyo3(signature = (rows, batch=None, /, **keywords))]
    fn write_async<'py>(
        slf: &Bound<'py, Self>,
        rows: Bound<'py, PyAny>,
        batch: Option<Bound<'py, PyAny>>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> Result<Bound<'py, PyAny>> {
        in_thread(slf, "write", &(rows, batch).into_pyobject(slf.py())?, keywords)
    }

    /// Lets a text, binary or list cell of one row grow.
    fn append(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::rows)] row: Py<Rows>,
        #[pyo3(from_py_with = arguments::column)] column: String,
        value: &Bound<'_, PyAny>,
    ) -> Result<()> {
        let row = row.get().one_of(&self.name)?;
        let fragment = single(&*self.schema(py, std::slice::from_ref(&column))?, &column, value)?;
        self.run(py, |_, table| Ok(table.append(row, &column, fragment.cell(0).1)?))
    }

    /// [`append`](Self::append) for an event loop.
    fn append_async<'py>(
        slf: &Bound<'py, Self>,
        row: Bound<'py, PyAny>,
        column: Bound<'py, PyAny>,
        value: Bound<'py, PyAny>,
    ) -> Result<Bound<'py, PyAny>> {
        in_thread(slf, "append", &PyTuple::new(slf.py(), [row, column, value])?, None)
    }

    /// Closes a cell that grew: its fragments become one final value.
    fn finalize(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::rows)] row: Py<Rows>,
        #[pyo3(from_py_with = arguments::column)] column: String,
    ) -> Result<()> {
        let row = row.get().one_of(&self.name)?;
        self.run(py, |_, table| Ok(table.finalize(row, &column)?))
    }

    /// [`finalize`](Self::finalize) for an event loop.
    fn finalize_async<'py>(
        slf: &Bound<'py, Self>,
        row: Bound<'py, PyAny>,
        column: Bound<'py, PyAny>,
    ) -> Result<Bound<'py, PyAny>> {
        in_thread(slf, "finalize", &PyTuple::new(slf.py(), [row, column])?, None)
    }

    /// Says that rows go on under a later version, each from its token on.
    #[pyo3(signature = (rows, /, *, start, version))]
    fn span(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::rows)] rows: Py<Rows>,
        start: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = arguments::version)] version: u64,
    ) -> Result<()> {
        let rows = rows.get().of(&self.name)?;
        let starts = starts(start, "start", rows.len())?;
        self.say(py, What::Span { rows, starts, version }, Terms::default()).map(drop)
    }

    /// Says that only the tokens of rows from there on are trained on.
    fn trainable_from(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::rows)] rows: Py<Rows>,
        start: &Bound<'_, PyAny>,
    ) -> Result<()> {
        let rows = rows.get().of(&self.name)?;
        let starts = starts(start, "start", rows.len())?;
        self.say(py, What::TrainableFrom { rows, starts }, Terms::default()).map(drop)
    }

    /// Leaves rows out for good, all of them or none.
    fn exclude(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::rows)] rows: Py<Rows>,
        #[pyo3(from_py_with = arguments::reason)] reason: String,
    ) -> Result<()> {
        let rows = rows.get().of(&self.name)?;
        self.say(py, What::Exclude { rows, reason }, Terms::default()).map(drop)
    }

    /// The live rows with these identities, for instance those of a run that goes on after a crash.
    #[pyo3(signature = (*, policy_version, sample_ids))]
    fn find(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::policy_version)] policy_version: u64,
        #[pyo3(from_py_with = arguments::sample_ids)] sample_ids: Vec<String>,
    ) -> Result<Rows> {
        let samples = sample_ids.iter().map(|id| Ok(id.parse()?)).collect::<Result<Vec<SampleId>>>()?;
        let missing = |sample: &SampleId| {
            let id = sample.to_string();
            input(format!("table {:?} has no row {id:?} of policy version {policy_version}", self.name))
        };
        let rows = self.run(py, |_, table| {
            let mut rows = Vec::with_capacity(samples.len());
            for samples in samples.chunks(FOUND_AT_ONCE) {
                heed_signals()?;
                let asked: Vec<_> = samples.iter().map(|sample| (policy_version, sample)).collect();
                for (row, sample) in table.find_all(&asked)?.into_iter().zip(samples) {
                    rows.push(row.ok_or_else(|| missing(sample))?);
                }
            }
            Ok(rows)
        })?;
        Ok(Rows::new(&self.name, rows))
    }

    /// The live row with this identity, with what became of it; `None` where there is none.
    #[pyo3(signature = (*, policy_version, sample_id))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = arguments::policy_version)] policy_version: u64,
        #[pyo3(from_py_with = arguments::sample_id)] sample_id: String,
    ) -> Result<Option<Bound<'py, PyDict>>> {
        let sample: SampleId = sample_id.parse()?;
        let row = self.run(py, |_, table| Ok(table.get(policy_version, &sample)?))?;
        row.map(|row| history::shown(py, &self.name, row)).transpose()
    }

    /// [`get`](Self::get) for an event loop.
    #[pyo3(signature = (**keywords))]
    fn get_async<'py>(
        slf: &Bound<'py, Self>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> Result<Bound<'py, PyAny>> {
        in_thread(slf, "get", &PyTuple::empty(slf.py()), keywords)
    }

    /// What became of rows, one by one: also of those that a later attempt has taken the place of.
    fn show<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = arguments::rows)] rows: Py<Rows>,
    ) -> Result<Vec<Bound<'py, PyDict>>> {
        let rows = rows.get().of(&self.name)?;
        let shown = self.run(py, |_, table| {
            let mut shown = Vec::with_capacity(rows.len());
            for rows in rows.chunks(SHOWN_AT_ONCE) {
                heed_signals()?;
                shown.extend(table.show_all(rows)?);
            }
            Ok(shown)
        })?;
        shown.into_iter().map(|row| history::shown(py, &self.name, row)).collect()
    }

    /// [`show`](Self::show) for an event loop.
    fn show_async<'py>(slf: &Bound<'py, Self>, rows: Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        in_thread(slf, "show", &PyTuple::new(slf.py(), [rows])?, None)
    }

    /// A column of rows, whoever holds them: one value a row, `None` where a cell is null or not final; of one that still grows what there is
    /// so far where `partial` is true.
    #[pyo3(signature = (rows, column, *, partial=false))]
    fn cells<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = arguments::rows)] rows: Py<Rows>,
        #[pyo3(from_py_with = arguments::column)] column: String,
        #[pyo3(from_py_with = arguments::partial)] partial: bool,
    ) -> Result<Bound<'py, PyAny>> {
        let rows = rows.get().of(&self.name)?;
        let (data_type, cells) = self.run(py, |open, table| {
            let schema = open.schema_now(&self.name)?;
            let data_type = schema.data_columns()[schema.index_of(&column)?].data_type.clone();
            Ok((data_type, table.cells(&rows, &column)?))
        })?;
        crate::cells::show(py, &data_type, if partial { grown(cells) } else { cells })
    }

    /// [`cells`](Self::cells) for an event loop.
    #[pyo3(signature = (rows, column, **keywords))]
    fn cells_async<'py>(
        slf: &Bound<'py, Self>,
        rows: Bound<'py, PyAny>,
        column: Bound<'py, PyAny>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> Result<Bound<'py, PyAny>> {
        in_thread(slf, "cells", &PyTuple::new(slf.py(), [rows, column])?, keywords)
    }

    /// Deletes rows and frees what they hold, all of them or none: those that are given, those of versions, or every one there is. Gives
    /// how many there were.
    #[pyo3(signature = (rows=None, *, version=None, versions_up_to=None, all=false, force=false))]
    fn delete(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::rows_or_none)] rows: Option<Py<Rows>>,
        #[pyo3(from_py_with = arguments::version_or_none)] version: Option<u64>,
        #[pyo3(from_py_with = arguments::versions_up_to)] versions_up_to: Option<u64>,
        #[pyo3(from_py_with = arguments::all)] all: bool,
        #[pyo3(from_py_with = arguments::force)] force: bool,
    ) -> Result<u64> {
        let rule = match (rows, version, versions_up_to, all) {
            (Some(rows), None, None, false) => Delete::rows(rows.get().of(&self.name)?),
            (None, Some(version), None, false) => Delete::version(version),
            (None, None, Some(version), false) => Delete::versions_up_to(version),
            (None, None, None, true) => Delete::all_confirmed(),
            _ => return Err(input(DELETE_ONE_WAY)),
        };
        let rule = if force { rule.force() } else { rule };
        self.run(py, |_, table| Ok(table.delete(&rule)?.rows))
    }

    /// How many rows there are, by what became of them.
    fn counts<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let counts = self.run(py, |_, table| Ok(table.counts()?))?;
        let shown = PyDict::new(py);
        shown.set_item("written", counts.written)?;
        shown.set_item("consumed", counts.consumed)?;
        shown.set_item("open", counts.open())?;
        shown.set_item(
            "excluded",
            counts
                .excluded
                .iter()
                .map(|(reason, rows)| (reason.to_string(), *rows))
                .collect::<std::collections::BTreeMap<_, _>>(),
        )?;
        Ok(shown)
    }

    /// Adds a data column while others write and read.
    #[pyo3(signature = (name, r#type, *, lazy=false))]
    fn add_column(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::name)] name: String,
        r#type: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = arguments::is_lazy)] lazy: bool,
    ) -> Result<()> {
        let column = DataColumn::new(&name, data_type(r#type)?);
        let column = if lazy { column.lazy() } else { column };
        self.run(py, |_, table| Ok(table.add_column(column)?))
    }

    /// Gives a data column another name.
    fn rename_column(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::column)] column: String,
        #[pyo3(from_py_with = arguments::name)] name: String,
    ) -> Result<()> {
        self.run(py, |_, table| Ok(table.rename_column(&column, &name)?))
    }

    /// Takes a data column out of the table.
    fn retire_column(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::column)] column: String,
    ) -> Result<()> {
        self.run(py, |_, table| Ok(table.retire_column(&column)?))
    }

    fn __repr__(&self) -> String {
        format!("<table {:?} of {}>", self.name, self.handle.place())
    }
}

/// A purpose by its word.
pub(crate) fn purpose_named(word: &str) -> Result<Purpose> {
    let purposes = [Purpose::Train, Purpose::Eval, Purpose::WarmUp];
    purposes.into_iter().find(|purpose| purpose.as_str() == word).ok_or_else(|| {
        let words = purposes.map(Purpose::as_str).join(", ");
        input(format!("{word:?} is no purpose of a row; the purposes are {words}"))
    })
}
