//! A micro-batch: rows that were claimed, by a task or for a step.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use forebay::client::{Changes, Claim};
use forebay::store::{MicroBatch, Row, SampleId, Schema};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple};

use crate::arguments;
use crate::arrow::{RecordBatch, not_arrow, schema_capsule};
use crate::changes::write_rows;
use crate::failure::{Failure, Result, input, state};
use crate::handle::{Handle, Open};
use crate::input::{columns, names};
use crate::metrics::Share;
use crate::options;
use crate::output::{Fetched, copied_bytes, kind};
use crate::packages;
use crate::pending::{entered, in_thread};
use crate::rows::Rows;
use crate::slot::Slot;

/// Rows in the hands of one holder. Its columns are read from it by name; it ends by `finish` (of a task), `accumulated` (of
/// a trainer) or `release`, and gives its rows back when it is dropped before.
#[pyclass(frozen, module = "forebay", weakref)]
#[derive(Debug)]
pub(crate) struct Batch {
    handle: Arc<Handle>,
    claim: Arc<Slot<Claim>>,
    consumer: Arc<str>,
    table: Arc<str>,
    rows: Vec<Row>,
    samples: Vec<SampleId>,
    place: Place,
    /// That of the table while the claim is held, once somebody looks at a column.
    schema: OnceLock<Arc<Schema>>,
    copied_bytes: AtomicU64,
    share: Option<Share>,
}

/// Where a micro-batch stands.
#[derive(Clone, Copy, Debug)]
struct Place {
    epoch: (u64, u64),
    step: Option<u64>,
    sequence: u32,
    rows_in_gang: u64,
    tokens_in_gang: u64,
}

/// How much a claim takes: so many rows, or whole groups up to so many, or up to so many tokens of a column.
pub(crate) fn micro_batch(
    size: Option<usize>,
    tokens: Option<(String, u64)>,
    exact: bool,
) -> Result<MicroBatch> {
    let rows = size.map(|rows| if exact { MicroBatch::of(rows) } else { MicroBatch::up_to(rows) });
    match (rows, tokens) {
        (Some(_), _) if size == Some(0) => Err(input("size is 0; a micro-batch has at least one row")),
        (Some(rows), None) => Ok(rows),
        (Some(rows), Some((column, tokens))) => Ok(rows.tokens_at_most(&column, tokens)),
        (None, Some((column, tokens))) => Ok(MicroBatch::tokens(&column, tokens)),
        (None, None) => Err(input("give size= (rows) or tokens= (a column and a number), or both")),
    }
}

/// Whatever is ready, members of so many groups among it whose groups are not complete.
pub(crate) fn early_micro_batch(
    size: Option<usize>,
    tokens: Option<(String, u64)>,
    groups: usize,
) -> Result<MicroBatch> {
    let rows = micro_batch(size, tokens.clone(), false)?.rows();
    let rule = MicroBatch::early(rows, groups);
    Ok(tokens.iter().fold(rule, |rule, (column, tokens)| rule.tokens_at_most(column, *tokens)))
}

/// The columns that are shown where none are named: all that are not lazy, with sample id and version.
fn shown_columns(schema: &Schema) -> Vec<String> {
    let data = schema.data_columns().iter().filter(|column| !column.lazy && !column.retired);
    let data = data.map(|column| column.name.clone());
    ["sample_id", "policy_version"].into_iter().map(str::to_owned).chain(data).collect()
}

impl Batch {
    pub(crate) fn new(handle: &Arc<Handle>, open: &Open, consumer: &str, claim: Claim) -> Self {
        let place = Place {
            epoch: (claim.epoch().0, claim.epoch().1),
            step: claim.step(),
            sequence: claim.sequence_in_step(),
            rows_in_gang: claim.rows_in_gang(),
            tokens_in_gang: claim.tokens_in_gang(),
        };
        Batch {
            handle: handle.clone(),
            consumer: consumer.into(),
            table: claim.table().into(),
            rows: claim.rows().to_vec(),
            samples: claim.sample_ids().to_vec(),
            place,
            schema: OnceLock::new(),
            copied_bytes: AtomicU64::new(0),
            claim: open.hold(claim),
            share: None,
        }
    }

    /// The same, as part of a step's record.
    pub(crate) fn counted_as(mut self, share: Share) -> Self {
        self.share = Some(share);
        self
    }

    pub(crate) fn claim(&self) -> &Arc<Slot<Claim>> {
        &self.claim
    }

    fn ended(&self) -> Failure {
        state(format!(
            "this micro-batch of consumer {:?} was finished, accumulated, released or given up before; claim again",
            self.consumer
        ))
    }

    /// Runs a call on the live claim.
    fn with_claim<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&Open, &Claim) -> Result<T> + Send,
    ) -> Result<T> {
        self.handle.run(py, |open| match &*self.claim.lock() {
            Some(claim) => call(open, claim),
            None => Err(self.ended()),
        })
    }

    /// Takes the claim, for the call that ends it.
    fn end<T: Send>(&self, py: Python<'_>, call: impl FnOnce(&Open, Claim) -> Result<T> + Send) -> Result<T> {
        self.handle.run(py, |open| {
            let claim = self.claim.lock().take();
            call(open, claim.ok_or_else(|| self.ended())?)
        })
    }

    /// The schema that the columns of this claim are read by.
    fn schema(&self, open: &Open) -> Result<&Arc<Schema>> {
        if let Some(schema) = self.schema.get() {
            return Ok(schema);
        }
        let schema = open.schema_now(&self.table)?;
        Ok(self.schema.get_or_init(|| schema))
    }

    /// What the rows of a column of lists or tensors are, for a part of a micro-batch that has none to show it.
    fn kind(&self, py: Python<'_>, column: &str) -> Result<Option<(&'static str, Vec<u32>)>> {
        self.with_claim(py, |open, _| {
            let schema = self.schema(open)?;
            let index = schema.index_of(column).ok(); // none for what every table has
            Ok(index.and_then(|index| kind(&schema.data_columns()[index].data_type)))
        })
    }

    /// Says that the gradient of the rows is in the cache.
    fn accumulate(&self, py: Python<'_>) -> Result<()> {
        self.end(py, |_, claim| {
            self.share.as_ref().map_or(Ok(()), |share| share.read(&claim))?;
            Ok(claim.accumulated()?)
        })?;
        if let Some(share) = &self.share {
            share.add();
        }
        Ok(())
    }

    fn count_copied(&self, bytes: usize) {
        self.copied_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if let Some(share) = &self.share {
            share.tally().copied(bytes as u64);
        }
    }

    fn record_batch(
        &self,
        py: Python<'_>,
        columns: Option<Vec<String>>,
        in_place: bool,
    ) -> Result<RecordBatch> {
        let batch = self.with_claim(py, |open, claim| {
            let names = match columns {
                Some(names) => names,
                None => {
                    let schema = open.schema_now(&self.table)?;
                    shown_columns(&schema)
                }
            };
            let names = names.iter().map(String::as_str);
            Ok(if in_place { claim.columns_in_place(names)? } else { claim.columns(names)? })
        })?;
        self.count_copied(batch.columns().iter().map(copied_bytes).sum());
        Ok(RecordBatch::new(batch))
    }
}

#[pymethods]
impl Batch {
    /// The name of the table. A micro-batch never mixes tables.
    #[getter]
    fn table(&self) -> &str {
        &self.table
    }

    /// The name of the consumer that claimed it.
    #[getter]
    fn consumer(&self) -> &str {
        &self.consumer
    }

    /// The rows, to write to.
    #[getter]
    fn rows(&self) -> Rows {
        Rows::new(&self.table, self.rows.clone())
    }

    /// The rows' sample ids, in their order.
    #[getter]
    fn sample_ids(&self) -> Vec<String> {
        self.samples.iter().map(ToString::to_string).collect()
    }

    /// The step that it is part of, for a trainer's.
    #[getter]
    fn step(&self) -> Option<u64> {
        self.place.step
    }

    /// Its place among its step's micro-batches of the same consumer, from 0.
    #[getter]
    fn sequence(&self) -> u32 {
        self.place.sequence
    }

    /// The claim's epoch: incarnation of the store, and number in it.
    #[getter]
    pub(crate) fn epoch(&self) -> (u64, u64) {
        self.place.epoch
    }

    /// How many rows the micro-batch has over all ranks of its gang.
    #[getter]
    fn rows_in_gang(&self) -> u64 {
        self.place.rows_in_gang
    }

    /// How many tokens of the counted column it has over all ranks of its gang; 0 where nothing is counted.
    #[getter]
    fn tokens_in_gang(&self) -> u64 {
        self.place.tokens_in_gang
    }

    /// How many bytes of values were copied so far to show them.
    #[getter]
    fn copied_bytes(&self) -> u64 {
        self.copied_bytes.load(Ordering::Relaxed)
    }

    /// The keys of the groups of which the step will hand out more; nothing for a task, and once all that was planned has been
    /// handed out.
    fn open_groups(&self, py: Python<'_>) -> Result<Vec<String>> {
        let Some(step) = self.place.step else { return Ok(Vec::new()) };
        self.handle.run(py, |open| {
            let connection = open.client.connection();
            let is_over = connection.is_complete(step, &self.consumer)?;
            Ok(if is_over { Vec::new() } else { connection.open_groups(&self.consumer)? })
        })
    }

    /// Whether the rows are still this holder's, as far as is known here.
    #[getter]
    fn is_held(&self) -> bool {
        self.claim.is_full()
    }

    fn __len__(&self) -> usize {
        self.rows.len()
    }

    /// A column of the rows, by name.
    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = arguments::named_column)] column: String,
    ) -> Result<Bound<'py, PyAny>> {
        let column = column.as_str();
        let fetched = self.with_claim(py, |open, claim| Fetched::of(self.schema(open)?, claim, column))?;
        if let (Fetched::Cells(_, cells), Some(share)) = (&fetched, &self.share) {
            share.see(column, cells);
        }
        self.count_copied(fetched.copied_bytes());
        fetched.show(py, column)
    }

    /// Columns of the rows as a `pyarrow.RecordBatch`: all that are not lazy, with sample id and version, unless some are
    /// named.
    #[pyo3(signature = (columns=None, *, in_place=false))]
    fn arrow<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = arguments::columns)] columns: Option<Vec<String>>,
        #[pyo3(from_py_with = arguments::in_place)] in_place: bool,
    ) -> Result<Bound<'py, PyAny>> {
        let batch = self.record_batch(py, columns, in_place)?;
        Ok(packages::pyarrow(py)?.getattr("record_batch")?.call1((batch,))?)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyTuple>> {
        let batch = Bound::new(py, self.record_batch(py, None, false)?)?;
        let capsules = batch.getattr("__arrow_c_array__")?.call1((requested_schema,))?;
        Ok(capsules.cast_into::<PyTuple>().map_err(PyErr::from)?)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyCapsule>> {
        let schema = self.handle.run(py, |open| {
            let schema = open.schema_now(&self.table)?;
            let (names, all) = (shown_columns(&schema), schema.arrow_schema());
            let columns =
                names.iter().map(|name| all.index_of(name)).collect::<std::result::Result<Vec<_>, _>>();
            columns.and_then(|columns| all.project(&columns)).map_err(not_arrow)
        })?;
        schema_capsule(py, &schema)
    }

    /// A column of lists as torch tensors: `padded`, `nested`, or `packed` with the offsets of its rows.
    #[pyo3(signature = (column, *, device=None, pad=0.0, layout="padded".to_owned()))]
    fn torch<'py>(
        slf: &Bound<'py, Self>,
        #[pyo3(from_py_with = arguments::column)] column: String,
        device: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = arguments::pad)] pad: f64,
        #[pyo3(from_py_with = arguments::layout)] layout: String,
    ) -> Result<Bound<'py, PyAny>> {
        let (py, batch) = (slf.py(), slf.get());
        let values = batch.__getitem__(py, column.clone())?;
        let kind = if batch.rows.is_empty() { batch.kind(py, &column)? } else { None };
        let tensor = py.import("forebay._torch")?.getattr("tensor")?;
        Ok(tensor.call1((column, values, device, pad, layout, kind))?)
    }

    /// Completes a task: the columns that it writes, one value a row, and the end of the claim are one record. After an
    /// error of the store the rows go back.
    #[pyo3(signature = (**columns))]
    fn finish(&self, py: Python<'_>, columns: Option<&Bound<'_, PyDict>>) -> Result<()> {
        let names = names(columns)?;
        let schema = self.with_claim(py, |open, _| open.schema(&self.table, &names))?;
        let columns = self::columns(&schema, columns, self.rows.len());
        if columns.is_err() {
            self.handle.run(py, |open| {
                open.forget_schema(&self.table);
                Ok(())
            })?;
        }
        let columns = columns?;
        self.end(py, |open, claim| {
            let mut changes = Changes::new();
            write_rows(&mut changes, &self.table, &self.rows, &columns);
            let finished = claim.finish(&changes).inspect_err(|_| open.forget_schema(&self.table));
            Ok(finished.map(drop)?)
        })
    }

    /// The same for an event loop.
    #[pyo3(signature = (**columns))]
    fn finish_async<'py>(
        slf: &Bound<'py, Self>,
        columns: Option<&Bound<'py, PyDict>>,
    ) -> Result<Bound<'py, PyAny>> {
        in_thread(slf, "finish", &PyTuple::empty(slf.py()), columns)
    }

    /// Says that the gradient of these rows is in the trainer's cache, which lists them from then on.
    #[pyo3(signature = (cache=None))]
    fn accumulated<'py>(slf: &Bound<'py, Self>, cache: Option<&Bound<'py, PyAny>>) -> Result<()> {
        match cache {
            None => slf.get().accumulate(slf.py()),
            Some(cache) => {
                let listed = slf.py().import("forebay._cache")?.getattr("listed")?.call1((slf, cache))?;
                // What was not accumulated is not in the list either.
                slf.get().accumulate(slf.py()).inspect_err(|_| _ = listed.call0())
            }
        }
    }

    /// The same for an event loop.
    #[pyo3(signature = (cache=None))]
    fn accumulated_async<'py>(
        slf: &Bound<'py, Self>,
        cache: Option<Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyAny>> {
        in_thread(slf, "accumulated", &PyTuple::new(slf.py(), [cache])?, None)
    }

    /// Holds the rows for so many seconds from now on, and no shorter than they are held already. Gives the end of that, in seconds since
    /// 1970.
    fn extend(&self, py: Python<'_>, seconds: &Bound<'_, PyAny>) -> Result<f64> {
        let time = options::seconds("seconds", seconds)?;
        let until = self.with_claim(py, |_, claim| Ok(claim.extend(time)?))?;
        Ok(until.0 as f64 / 1e6)
    }

    /// The same for an event loop.
    fn extend_async<'py>(slf: &Bound<'py, Self>, seconds: Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        in_thread(slf, "extend", &PyTuple::new(slf.py(), [seconds])?, None)
    }

    /// Gives the rows back, to be claimed again.
    fn release(&self, py: Python<'_>) -> Result<()> {
        self.end(py, |_, claim| Ok(claim.release()?))
    }

    /// The same for an event loop.
    fn release_async<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>> {
        in_thread(slf, "release", &PyTuple::empty(slf.py()), None)
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// Gives the rows back, if they were not finished or accumulated before.
    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> Result<bool> {
        let released = py.detach(|| self.claim.lock().take().map_or(Ok(()), Claim::release));
        let raised = exception.iter().any(|part| !part.is_none());
        if !raised {
            released?; // else what was raised tells more
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
        format!("<micro-batch of {} rows of {:?} for {:?}>", self.rows.len(), self.table, self.consumer)
    }
}
