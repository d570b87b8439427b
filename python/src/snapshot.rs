//! Snapshots: one instant of all tables or some, which may be read again and again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch as Batch;
use forebay::client::{self, ReadRows, SnapshotBatches, SnapshotTable as ClientTable, TakeSnapshot};
use forebay::store::{ScanOrder, Timestamp};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::answer::Answer;
use crate::arguments;
use crate::arrow::RecordBatch;
use crate::failure::{Result, state};
use crate::handle::{Handle, Open};
use crate::options;
use crate::pending::{entered, in_thread};
use crate::slot::Slot;
use crate::wait::heed_signals;

/// One instant of tables. It lies in a slot of its store, so that closing either ends it; its tables end with it.
#[pyclass(frozen, module = "forebay")]
#[derive(Debug)]
pub(crate) struct Snapshot {
    handle: Arc<Handle>,
    held: Arc<Slot<client::Snapshot>>,
    commit: u64,
    tables: Vec<String>,
}

/// A table of a snapshot.
#[pyclass(frozen, module = "forebay")]
#[derive(Debug)]
pub(crate) struct SnapshotTable {
    handle: Arc<Handle>,
    held: Arc<Slot<client::Snapshot>>,
    name: String,
    policy: String,
    current_version: u64,
    rows: u64,
}

/// The rows of a table of a snapshot, batch by batch.
#[pyclass(frozen, module = "forebay", weakref)]
#[derive(Debug)]
pub(crate) struct SnapshotReader {
    handle: Arc<Handle>,
    held: Arc<Slot<client::Snapshot>>,
    batches: Arc<Slot<SnapshotBatches>>,
}

fn seconds(moment: Timestamp) -> f64 {
    moment.0 as f64 / 1e6
}

fn over() -> crate::failure::Failure {
    state("the snapshot was closed; take another")
}

/// Looks at a snapshot that is held.
fn with<T>(
    held: &Slot<client::Snapshot>,
    look: impl FnOnce(&client::Snapshot) -> client::Result<T>,
) -> Result<T> {
    let slot = held.lock();
    Ok(look(slot.as_ref().ok_or_else(over)?)?)
}

impl Snapshot {
    pub(crate) fn take(handle: &Arc<Handle>, open: &Open, take: &TakeSnapshot) -> Result<Self> {
        let taken = open.client.snapshot(take)?;
        let (commit, tables) =
            (taken.commit(), taken.tables().map(|table| table.name().to_owned()).collect());
        Ok(Snapshot { handle: handle.clone(), held: open.hold(taken), commit, tables })
    }

    fn close_now(&self) {
        let held = self.held.lock().take();
        drop(held); // with the slot free again: a server is told
    }
}

#[pymethods]
impl Snapshot {
    /// How many records made what it shows.
    #[getter]
    fn commit(&self) -> u64 {
        self.commit
    }

    /// When it ends, in seconds since 1970, by the clock of the store.
    #[getter]
    fn deadline(&self, py: Python<'_>) -> Result<f64> {
        py.detach(|| with(&self.held, |held| Ok(seconds(held.deadline()))))
    }

    /// The names of its tables, in the order of their creation.
    #[getter]
    fn tables(&self) -> Vec<String> {
        self.tables.clone()
    }

    /// The table of that name.
    fn table(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::name)] name: String,
    ) -> Result<SnapshotTable> {
        let table = self.handle.run(py, |_| with(&self.held, |held| held.table(&name)))?;
        Ok(SnapshotTable {
            handle: self.handle.clone(),
            held: self.held.clone(),
            policy: table.policy().to_owned(),
            current_version: table.current_version(),
            rows: table.row_count(),
            name,
        })
    }

    /// Holds it for so many seconds from now. Gives the new deadline.
    fn extend(&self, py: Python<'_>, seconds: &Bound<'_, PyAny>) -> Result<f64> {
        let time = options::seconds("seconds", seconds)?;
        self.handle.run(py, |_| with(&self.held, |held| held.extend(time).map(self::seconds)))
    }

    /// The same for an event loop.
    fn extend_async<'py>(slf: &Bound<'py, Self>, seconds: Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        in_thread(slf, "extend", &PyTuple::new(slf.py(), [seconds])?, None)
    }

    /// Lets go of it.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.close_now());
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    fn __aenter__<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>> {
        entered(slf)
    }

    #[pyo3(signature = (*_exception))]
    fn __aexit__<'py>(slf: &Bound<'py, Self>, _exception: &Bound<'py, PyTuple>) -> Result<Bound<'py, PyAny>> {
        in_thread(slf, "close", &PyTuple::empty(slf.py()), None)
    }

    fn __repr__(&self) -> String {
        format!("<snapshot of {} at commit {}: {}>", self.handle.place(), self.commit, self.tables.join(", "))
    }
}

/// What is to be read.
fn reading(
    columns: Option<Vec<String>>,
    version: Option<u64>,
    by_arrival: bool,
    size: Option<usize>,
) -> ReadRows {
    let order = if by_arrival { ScanOrder::Arrival } else { ScanOrder::SampleId };
    ReadRows { columns, version, order, batch_rows: size }
}

impl SnapshotTable {
    fn found(&self) -> Result<ClientTable> {
        with(&self.held, |held| held.table(&self.name))
    }

    /// All batches. Signals are heeded between them.
    fn all(&self, rows: ReadRows) -> Result<Vec<Batch>> {
        let mut all = Vec::new();
        for batch in self.found()?.read(rows) {
            all.push(batch?);
            heed_signals()?;
        }
        Ok(all)
    }
}

#[pymethods]
impl SnapshotTable {
    /// The table's name.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// The policy whose versions its rows carry.
    #[getter]
    fn policy(&self) -> &str {
        &self.policy
    }

    /// The policy's version at the instant of the snapshot.
    #[getter]
    fn current_version(&self) -> u64 {
        self.current_version
    }

    fn __len__(&self) -> usize {
        usize::try_from(self.rows).unwrap_or(usize::MAX)
    }

    /// How many rows there are of each policy version.
    fn versions(&self, py: Python<'_>) -> Result<BTreeMap<u64, u64>> {
        let versions = self.handle.run(py, |_| Ok(self.found()?.versions()?))?;
        Ok(versions.into_iter().map(|(version, of)| (version, of.rows)).collect())
    }

    /// Rows as a `pyarrow.Table`.
    #[pyo3(signature = (columns=None, *, version=None, by_arrival=false))]
    fn arrow<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = arguments::columns)] columns: Option<Vec<String>>,
        #[pyo3(from_py_with = arguments::version_or_none)] version: Option<u64>,
        #[pyo3(from_py_with = arguments::by_arrival)] by_arrival: bool,
    ) -> Result<Bound<'py, PyAny>> {
        let rows = reading(columns, version, by_arrival, None);
        let batches = self.handle.run(py, |_| self.all(rows))?;
        let schema = batches.first().map(Batch::schema).ok_or_else(over)?; // there is one, also without a row
        Answer::arrow(&Bound::new(py, Answer::new((schema, batches)))?)
    }

    /// [`versions`](Self::versions) for an event loop.
    fn versions_async<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>> {
        in_thread(slf, "versions", &PyTuple::empty(slf.py()), None)
    }

    /// [`arrow`](Self::arrow) for an event loop.
    #[pyo3(signature = (columns=None, **keywords))]
    fn arrow_async<'py>(
        slf: &Bound<'py, Self>,
        columns: Option<Bound<'py, PyAny>>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> Result<Bound<'py, PyAny>> {
        in_thread(slf, "arrow", &PyTuple::new(slf.py(), [columns])?, keywords)
    }

    /// Rows batch by batch, each read when it is asked for.
    #[pyo3(signature = (columns=None, *, version=None, by_arrival=false, size=None))]
    fn batches(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::columns)] columns: Option<Vec<String>>,
        #[pyo3(from_py_with = arguments::version_or_none)] version: Option<u64>,
        #[pyo3(from_py_with = arguments::by_arrival)] by_arrival: bool,
        #[pyo3(from_py_with = arguments::size)] size: Option<usize>,
    ) -> Result<SnapshotReader> {
        let rows = reading(columns, version, by_arrival, size);
        let batches = self.handle.run(py, |open| Ok(open.hold(self.found()?.read(rows))))?;
        Ok(SnapshotReader { handle: self.handle.clone(), held: self.held.clone(), batches })
    }

    fn __repr__(&self) -> String {
        format!("<table {:?} of a snapshot: {} rows>", self.name, self.rows)
    }
}

#[pymethods]
impl SnapshotReader {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyAny>>> {
        let batch = self.handle.run(py, |_| {
            let mut batches = self.batches.lock();
            let batches = batches.as_mut().filter(|_| self.held.is_full()).ok_or_else(over)?;
            Ok(batches.next().transpose()?)
        })?;
        let Some(batch) = batch else { return Ok(None) };
        let pyarrow = crate::packages::pyarrow(py)?;
        Ok(Some(pyarrow.getattr("record_batch")?.call1((Bound::new(py, RecordBatch::new(batch))?,))?))
    }

    fn __aiter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __anext__<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>> {
        Ok(slf.py().import("forebay._async")?.getattr("next_read")?.call1((slf,))?)
    }
}

/// What is to be taken.
pub(crate) fn taking(
    tables: Option<Vec<String>>,
    time: Option<Duration>,
    owner: Option<&str>,
) -> TakeSnapshot {
    let take = TakeSnapshot::default();
    let take = match tables {
        Some(tables) => take.tables(tables),
        None => take,
    };
    let take = time.into_iter().fold(take, TakeSnapshot::time);
    owner.into_iter().fold(take, TakeSnapshot::owner)
}
