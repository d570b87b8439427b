//! A consumer: what tasks call, and what steps are given.

use std::sync::Arc;
use std::time::Duration;

use forebay::client::{Ask, Role, SubscribeOptions, Waited};
use forebay::store::MicroBatch;
use pyo3::prelude::*;

use crate::arguments;
use crate::batch::{Batch, micro_batch};
use crate::changes::{About, List, Said, Terms, What, say};
use crate::failure::{Failure, Result, timeout as timeout_error};
use crate::handle::Handle;
use crate::lacking;
use crate::options;
use crate::pending::{Pending, Waiter, claiming};
use crate::subscription::Subscription;
use crate::wait::wait_for;

/// A declared class of readers.
#[pyclass(frozen, module = "forebay")]
#[derive(Debug)]
pub(crate) struct Consumer {
    handle: Arc<Handle>,
    name: Arc<str>,
    /// Where changes are put that it is told to make; nowhere for one that makes them.
    list: Option<Arc<List>>,
}

/// A consumer as an argument: the object, or its name.
#[derive(FromPyObject)]
pub(crate) enum ConsumerName<'py> {
    Object(Bound<'py, Consumer>),
    Name(String),
}

impl ConsumerName<'_> {
    pub(crate) fn name(&self) -> &str {
        match self {
            ConsumerName::Object(consumer) => &consumer.get().name,
            ConsumerName::Name(name) => name,
        }
    }
}

/// The error of a task that waited for nothing.
pub(crate) fn timed_out(consumer: &str, timeout: Duration, reason: &str) -> Failure {
    let seconds = timeout.as_secs_f64();
    timeout_error(format!("nothing became ready for {consumer:?} in {seconds} s{reason}"))
}

impl Consumer {
    pub(crate) fn new(handle: &Arc<Handle>, name: &str) -> Self {
        Consumer { handle: handle.clone(), name: name.into(), list: None }
    }

    /// The same, of which changes go on a list.
    pub(crate) fn saying_to(self, list: &Arc<List>) -> Self {
        Consumer { list: Some(list.clone()), ..self }
    }

    /// What a task asks for. Who does not say whose the claim is leaves it to this process.
    fn asking<'a>(&'a self, rule: MicroBatch, owner: Option<&'a str>) -> Ask<'a> {
        Ask { consumer: &self.name, rule, role: Role::Task, owner, columns: &[] }
    }

    /// Says something of a group.
    fn say(&self, py: Python<'_>, table: &str, policy_version: u64, key: String, about: About) -> Result<()> {
        let what = What::Group { consumer: self.name.clone(), policy_version, key, about };
        say(py, &self.handle, self.list.as_deref(), Said { table: table.into(), what }, Terms::default())
            .map(drop)
    }
}

#[pymethods]
impl Consumer {
    /// The consumer's name.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// Claims rows for a task, as soon as there are any. Raises `WaitTimeout` when there were none in time.
    #[pyo3(signature = (size=None, *, tokens=None, exact=false, timeout=None, owner=None))]
    fn claim(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::size)] size: Option<usize>,
        #[pyo3(from_py_with = arguments::tokens)] tokens: Option<(String, u64)>,
        #[pyo3(from_py_with = arguments::exact)] exact: bool,
        timeout: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = arguments::owner)] owner: Option<String>,
    ) -> Result<Batch> {
        let (rule, timeout) = (micro_batch(size, tokens, exact)?, options::timeout(timeout)?);
        self.handle.run(py, |open| match wait_for(open, &self.asking(rule, owner.as_deref()), timeout)? {
            Waited::Claimed(claim) => Ok(Batch::new(&self.handle, open, &self.name, claim)),
            Waited::Complete => Err(self.handle.closed()),
            Waited::TimedOut => {
                Err(timed_out(&self.name, timeout.unwrap_or_default(), &lacking::reason(open, &self.name)))
            }
        })
    }

    /// The same for an event loop.
    #[pyo3(signature = (size=None, *, tokens=None, exact=false, timeout=None, owner=None))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of one Python call")]
    fn claim_async<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = arguments::size)] size: Option<usize>,
        #[pyo3(from_py_with = arguments::tokens)] tokens: Option<(String, u64)>,
        #[pyo3(from_py_with = arguments::exact)] exact: bool,
        timeout: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = arguments::owner)] owner: Option<String>,
    ) -> Result<Bound<'py, PyAny>> {
        let (rule, timeout) = (micro_batch(size, tokens, exact)?, options::timeout(timeout)?);
        let pending = self.handle.run(py, |open| {
            let (coming, alarm) = claiming(open, &self.asking(rule, owner.as_deref()), timeout)?;
            Ok(Pending::new(&self.handle, open, coming, Waiter::Task(self.name.clone(), timeout), alarm))
        })?;
        pending.awaited(py, "wait")
    }

    /// Subscribes to the micro-batches of a task: an iterator over claims as they become ready.
    #[pyo3(signature = (size=None, *, tokens=None, exact=false, outstanding=2, columns=None, timeout=None, owner=None))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of one Python call")]
    fn subscribe(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::size)] size: Option<usize>,
        #[pyo3(from_py_with = arguments::tokens)] tokens: Option<(String, u64)>,
        #[pyo3(from_py_with = arguments::exact)] exact: bool,
        #[pyo3(from_py_with = arguments::outstanding)] outstanding: usize,
        #[pyo3(from_py_with = arguments::columns)] columns: Option<Vec<String>>,
        timeout: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = arguments::owner)] owner: Option<String>,
    ) -> Result<Subscription> {
        let (rule, timeout) = (micro_batch(size, tokens, exact)?, options::timeout(timeout)?);
        let asked = SubscribeOptions::default().outstanding(outstanding).columns(columns.unwrap_or_default());
        let asked = owner.iter().fold(asked, |asked, owner| asked.owner(owner));
        self.handle.run(py, |open| Subscription::begin(&self.handle, open, &self.name, rule, &asked, timeout))
    }

    /// The keys of the groups that there are and that have not been handed out.
    fn open_groups(&self, py: Python<'_>) -> Result<Vec<String>> {
        self.handle.run(py, |open| Ok(open.client.connection().open_groups(&self.name)?))
    }

    /// Says that a group has exactly so many members.
    #[pyo3(signature = (table, key, *, policy_version, members))]
    fn expect_group(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::table)] table: String,
        #[pyo3(from_py_with = arguments::key)] key: String,
        #[pyo3(from_py_with = arguments::policy_version)] policy_version: u64,
        #[pyo3(from_py_with = arguments::members)] members: u32,
    ) -> Result<()> {
        self.say(py, &table, policy_version, key, About::Expected(members))
    }

    /// Says that nobody more will come to a group.
    #[pyo3(signature = (table, key, *, policy_version))]
    fn close_group(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::table)] table: String,
        #[pyo3(from_py_with = arguments::key)] key: String,
        #[pyo3(from_py_with = arguments::policy_version)] policy_version: u64,
    ) -> Result<()> {
        self.say(py, &table, policy_version, key, About::Closed)
    }

    /// Says that a trajectory of a group has all its rows.
    #[pyo3(signature = (table, key, trajectory, *, policy_version))]
    fn close_trajectory(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::table)] table: String,
        #[pyo3(from_py_with = arguments::key)] key: String,
        #[pyo3(from_py_with = arguments::trajectory)] trajectory: u32,
        #[pyo3(from_py_with = arguments::policy_version)] policy_version: u64,
    ) -> Result<()> {
        self.say(py, &table, policy_version, key, About::TrajectoryClosed(trajectory))
    }

    fn __repr__(&self) -> String {
        format!("<consumer {:?} of {}>", self.name, self.handle.place())
    }
}
