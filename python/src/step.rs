//! A step: micro-batches, then one commit.

use std::collections::BTreeSet;
use std::sync::Arc;

use forebay::client::{Role, Step as ClientStep};
use forebay::store::{Gang, ObjectRef, Split};
use parking_lot::Mutex;
use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::arguments;
use crate::batch::{early_micro_batch, micro_batch};
use crate::consumer::ConsumerName;
use crate::failure::{Failure, Result, input, state};
use crate::handle::{Handle, Open};
use crate::history::epochs;
use crate::metrics::{Tally, Value};
use crate::micro_batches::{Counted, MicroBatches};
use crate::options;
use crate::pending::{entered, in_thread};
use crate::slot::Slot;
use crate::update::Update;

/// What `early=` does not go with.
const EARLY_ALONE: &str =
    "early= hands out members as they come, to one trainer; leave exact=True, rank= and world= out";

/// An open step. Leaving it without a commit gives it up: its rows go back.
#[pyclass(frozen, module = "forebay", weakref)]
#[derive(Debug)]
pub(crate) struct Step {
    handle: Arc<Handle>,
    step: Arc<Slot<ClientStep>>,
    number: u64,
    /// The consumers that it takes rows for; none where another process has begun it, and knows.
    planned: Option<BTreeSet<String>>,
    tally: Arc<Tally>,
    /// Who is told of the commit. It may refer to the step itself, so the collector of cycles sees it, and may take it.
    log: Mutex<Option<Py<PyAny>>>,
}

impl Step {
    pub(crate) fn new(
        handle: &Arc<Handle>,
        open: &Open,
        step: ClientStep,
        planned: Option<BTreeSet<String>>,
        log: Option<Py<PyAny>>,
    ) -> Result<Self> {
        let number = step.number();
        let tally = Arc::new(Tally::begin(open, planned.as_ref())?);
        let (handle, step, log) = (handle.clone(), open.hold(step), Mutex::new(log));
        Ok(Step { handle, step, number, planned, tally, log })
    }

    fn record<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let (record, shown) = (self.handle.run(py, |open| self.tally.record(open))?, PyDict::new(py));
        for (name, value) in record {
            match value {
                Value::Count(count) => shown.set_item(format!("forebay/{name}"), count)?,
                Value::Number(number) => shown.set_item(format!("forebay/{name}"), number)?,
            }
        }
        Ok(shown)
    }

    /// Tells whoever logs what the step was like. It is committed: what goes wrong here must not look as if it were not.
    fn tell(&self, py: Python<'_>) {
        let Some(log) = self.log.lock().as_ref().map(|log| log.clone_ref(py)) else { return };
        let told = self.record(py).and_then(|record| Ok(log.call1(py, (record, self.number))?));
        if let Err(failure) = told {
            PyErr::from(failure).write_unraisable(py, Some(log.bind(py)));
        }
    }

    fn ended(&self) -> Failure {
        state(format!("step {} was committed or given up before; begin another", self.number))
    }

    /// Runs a call on the open step.
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&Open, &mut ClientStep) -> Result<T> + Send,
    ) -> Result<T> {
        self.handle.run(py, |open| call(open, self.step.lock().as_mut().ok_or_else(|| self.ended())?))
    }

    fn check_planned(&self, consumer: &str) -> Result<()> {
        let Some(planned) = self.planned.as_ref().filter(|planned| !planned.contains(consumer)) else {
            return Ok(());
        };
        let planned: Vec<&str> = planned.iter().map(String::as_str).collect();
        Err(state(format!(
            "step {} takes nothing for {consumer:?}; it is planned for {}: say groups= or rows= when it begins",
            self.number,
            planned.join(", ")
        )))
    }
}

#[pymethods]
impl Step {
    /// The step's number: how many were committed before it, plus one.
    #[getter]
    fn number(&self) -> u64 {
        self.number
    }

    /// The micro-batches of a trainer, each as soon as enough is ready. The iteration ends when all that was planned has been
    /// handed out; a wait that is longer than `timeout` raises `WaitTimeout`.
    #[pyo3(signature = (consumer, size=None, *, tokens=None, exact=None, early=None, timeout=None, rank=None, world=None,
        gang="ranks".to_owned(), split="same".to_owned()))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of one Python call")]
    fn micro_batches(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::consumer)] consumer: ConsumerName<'_>,
        #[pyo3(from_py_with = arguments::size)] size: Option<usize>,
        #[pyo3(from_py_with = arguments::tokens)] tokens: Option<(String, u64)>,
        #[pyo3(from_py_with = arguments::exact_or_none)] exact: Option<bool>,
        #[pyo3(from_py_with = arguments::early)] early: Option<usize>,
        timeout: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = arguments::rank)] rank: Option<u32>,
        #[pyo3(from_py_with = arguments::world)] world: Option<u32>,
        #[pyo3(from_py_with = arguments::gang)] gang: String,
        #[pyo3(from_py_with = arguments::split)] split: String,
    ) -> Result<MicroBatches> {
        let rule = match early {
            None => micro_batch(size, tokens.clone(), exact.unwrap_or(true))?,
            Some(_) if exact == Some(true) || rank.or(world).is_some() => {
                return Err(input(EARLY_ALONE));
            }
            Some(groups) => early_micro_batch(size, tokens.clone(), groups)?,
        };
        let timeout = options::timeout(timeout)?;
        let split = split_named(&split)?;
        self.check_planned(consumer.name())?;
        let counted = tokens.map(|(column, _)| column);
        let gang = match (rank, world) {
            (None, None) => None,
            (Some(rank), Some(world)) => Some(Gang::new(&gang, rank, world).split(split)),
            _ => return Err(input("rank= and world= go together: which rank this is, of how many")),
        };
        let name: Arc<str> = consumer.name().into();
        self.run(py, |open, step| {
            let is_copy = gang.is_some() && matches!(split, Split::Same);
            let counted = Counted { tally: self.tally.clone(), tokens: counted, is_copy };
            let role = match gang {
                None => Role::Step(self.number),
                Some(gang) => step.join(&open.client.consumer(&name)?, &gang)?.role(),
            };
            Ok(MicroBatches::new(&self.handle, &self.step, self.number, name, rule, timeout, role, counted))
        })
    }

    /// Whether everything that was planned for a trainer has been handed out or left out.
    fn is_complete(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::consumer)] consumer: ConsumerName<'_>,
    ) -> Result<bool> {
        let name = consumer.name().to_owned();
        self.run(py, |open, step| Ok(step.is_complete(&open.client.consumer(&name)?)?))
    }

    /// What the step was like so far: numbers by name.
    fn metrics<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        self.record(py)
    }

    /// Gives back what has been accumulated for one table: its gradients were lost or dropped.
    fn drop_cache(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::table)] table: String,
    ) -> Result<()> {
        self.run(py, |_, step| Ok(step.drop_cache(&table)?))?;
        self.tally.drop_cache(&table);
        Ok(())
    }

    /// Gives back the rows of micro-batches whose gradients were lost, and of no others. Gives how many come again.
    fn return_lost(&self, py: Python<'_>, claims: &Bound<'_, PyAny>) -> Result<u64> {
        let lost = epochs(claims)?;
        let named: Vec<_> = lost.iter().map(|(incarnation, number)| (*incarnation, *number, 0)).collect();
        let rows = self.run(py, |_, step| Ok(step.return_lost(&named)?))?;
        self.tally.return_lost(&lost);
        Ok(rows)
    }

    /// Commits: rows consumed, the named policies one version on, their objects recorded, all at once. Gives the number of
    /// rows. Nothing has changed when it raises; the step is open as before.
    fn commit(&self, py: Python<'_>, updates: &Bound<'_, PyAny>) -> Result<u64> {
        let expected = "a dict of new versions, of dicts of objects, of both, or of None, by policy";
        let updates = arguments::dict("updates", expected, updates)?;
        let updates: Vec<Update> =
            updates.iter().map(|(policy, value)| Update::of(&policy, &value)).collect::<Result<_>>()?;
        if self.planned.is_none() {
            let number = self.number;
            return Err(state(format!("step {number} was begun by another process, and is committed there")));
        }
        let rows = self.run(py, |open, step| {
            let named = updates.iter().map(|update| Ok((update.policy.as_str(), update.named(open)?)));
            let named: Vec<(&str, Vec<ObjectRef>)> = named.collect::<Result<_>>()?;
            if named.iter().any(|(_, objects)| !objects.is_empty()) {
                step.check_commit(named.iter().cloned())?; // else they would be brought in vain
            }
            updates.iter().zip(&named).try_for_each(|(update, (_, named))| update.bring(open, named))?;
            Ok(step.commit(named)?.rows)
        })?;
        py.detach(|| self.step.lock().take());
        self.tell(py);
        Ok(rows)
    }

    /// The same for an event loop.
    fn commit_async<'py>(slf: &Bound<'py, Self>, updates: Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        in_thread(slf, "commit", &PyTuple::new(slf.py(), [updates])?, None)
    }

    /// Gives the step up: its claims go back, and the same number can be begun again.
    fn abandon(&self, py: Python<'_>) {
        py.detach(|| {
            let step = self.step.lock().take();
            drop(step);
        });
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// Gives the step up, if it was not committed.
    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> bool {
        self.abandon(py);
        false
    }

    fn __aenter__<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>> {
        entered(slf)
    }

    /// The same for an event loop, behind a commit whose task was cancelled.
    #[pyo3(signature = (*_exception))]
    fn __aexit__<'py>(slf: &Bound<'py, Self>, _exception: &Bound<'py, PyTuple>) -> Result<Bound<'py, PyAny>> {
        Ok(slf.py().import("forebay._async")?.getattr("left")?.call1((slf,))?)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Whoever has it holds the interpreter's lock, as the collector does, so nobody else has it now.
        self.log.try_lock().map_or(Ok(()), |log| visit.call(&*log))
    }

    fn __clear__(&self) {
        let log = self.log.lock().take();
        drop(log); // with the place free again: what it refers to may be the step
    }

    fn __repr__(&self) -> String {
        format!("<step {} of {}>", self.number, self.handle.place())
    }
}

fn split_named(word: &str) -> Result<Split> {
    match word {
        "same" => Ok(Split::Same),
        "balanced" => Ok(Split::Balanced),
        other => Err(input(format!(
            "split={other:?} is no way to split a micro-batch; it is \"same\" or \"balanced\""
        ))),
    }
}
