//! A consumer: what tasks call, and what steps are given.

use std::sync::Arc;
use std::time::Duration;

use forebay::store::ConsumerHandle;
use pyo3::prelude::*;

use crate::batch::{Batch, micro_batch};
use crate::failure::{Failure, Result, closed, timeout as timeout_error};
use crate::handle::{Handle, Open};
use crate::options;
use crate::pending::{Pending, Waiter, claiming};
use crate::wait::{Waited, wait_for};

/// A declared class of readers.
#[pyclass(frozen, module = "forebay")]
#[derive(Debug)]
pub(crate) struct Consumer {
    handle: Arc<Handle>,
    name: Arc<str>,
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
pub(crate) fn timed_out(consumer: &str, timeout: Duration) -> Failure {
    timeout_error(format!("nothing became ready for {consumer:?} in {} s", timeout.as_secs_f64()))
}

/// Who holds a claim of a caller who does not say.
fn this_process() -> String {
    format!("process {}", std::process::id())
}

impl Consumer {
    pub(crate) fn new(handle: &Arc<Handle>, name: &str) -> Self {
        Consumer { handle: handle.clone(), name: name.into() }
    }

    fn run<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&Open, &ConsumerHandle) -> Result<T> + Send,
    ) -> Result<T> {
        self.handle.run(py, |open| call(open, &open.consumer(&self.name)?))
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
        size: Option<usize>,
        tokens: Option<(String, u64)>,
        exact: bool,
        timeout: Option<&Bound<'_, PyAny>>,
        owner: Option<&str>,
    ) -> Result<Batch> {
        let (rule, timeout) = (micro_batch(size, tokens, exact)?, options::timeout(timeout)?);
        let owner = owner.map_or_else(this_process, str::to_owned);
        self.run(py, |open, consumer| match wait_for(consumer.claim_async(rule, &owner)?, timeout)? {
            Waited::Claimed(claim) => Ok(Batch::new(&self.handle, open, &self.name, claim)),
            Waited::Complete => Err(closed(self.handle.path())),
            Waited::TimedOut => Err(timed_out(&self.name, timeout.unwrap_or_default())),
        })
    }

    /// The same for an event loop.
    #[pyo3(signature = (size=None, *, tokens=None, exact=false, timeout=None, owner=None))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of one Python call")]
    fn claim_async<'py>(
        &self,
        py: Python<'py>,
        size: Option<usize>,
        tokens: Option<(String, u64)>,
        exact: bool,
        timeout: Option<&Bound<'py, PyAny>>,
        owner: Option<&str>,
    ) -> Result<Bound<'py, PyAny>> {
        let (rule, timeout) = (micro_batch(size, tokens, exact)?, options::timeout(timeout)?);
        let owner = owner.map_or_else(this_process, str::to_owned);
        let pending = self.run(py, |open, consumer| {
            let claim = consumer.claim_async(rule, &owner)?;
            Ok(Pending::new(&self.handle, open, claiming(claim), Waiter::Task(self.name.clone()), timeout))
        })?;
        pending.awaited(py, "wait")
    }

    /// The keys of the groups that there are and that have not been handed out.
    fn open_groups(&self, py: Python<'_>) -> Result<Vec<String>> {
        self.run(py, |_, consumer| Ok(consumer.open_groups()))
    }

    /// Says that a group has exactly so many members.
    #[pyo3(signature = (table, key, *, policy_version, members))]
    fn expect_group(
        &self,
        py: Python<'_>,
        table: &str,
        key: &str,
        policy_version: u64,
        members: u32,
    ) -> Result<()> {
        self.run(py, |open, consumer| {
            Ok(consumer.expect_group(&open.table(table)?, policy_version, key, members)?)
        })
    }

    /// Says that nobody more will come to a group.
    #[pyo3(signature = (table, key, *, policy_version))]
    fn close_group(&self, py: Python<'_>, table: &str, key: &str, policy_version: u64) -> Result<()> {
        self.run(py, |open, consumer| Ok(consumer.close_group(&open.table(table)?, policy_version, key)?))
    }

    /// Says that a trajectory of a group has all its rows.
    #[pyo3(signature = (table, key, trajectory, *, policy_version))]
    fn close_trajectory(
        &self,
        py: Python<'_>,
        table: &str,
        key: &str,
        trajectory: u32,
        policy_version: u64,
    ) -> Result<()> {
        self.run(py, |open, consumer| {
            Ok(consumer.close_trajectory(&open.table(table)?, policy_version, key, trajectory)?)
        })
    }

    fn __repr__(&self) -> String {
        format!("<consumer {:?} of {}>", self.name, self.handle.path().display())
    }
}
