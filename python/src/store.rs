//! The store: the list of what one can ask of it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use forebay::store::{Policy, Rewind};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::admin::Admin;
use crate::answer::Answer;
use crate::arguments;
use crate::asking;
use crate::changes::{Changes, Terms};
use crate::connection;
use crate::consumer::Consumer;
use crate::declaration::declaration;
use crate::failure::{Result, input};
use crate::handle::Handle;
use crate::history::trained;
use crate::objects::ObjectCalls;
use crate::options::{durability, options, seconds as in_seconds, wrong};
use crate::pending::{Outcome, Pending, Waiter, in_thread};
use crate::plan::Membership;
use crate::schema::{Remarks, schema};
use crate::snapshot::{Snapshot, taking};
use crate::step::Step;
use crate::table::Table;
use crate::wait::block_on;

/// A store, open in this process or behind a server.
#[pyclass(frozen, module = "forebay", weakref)]
#[derive(Debug)]
pub(crate) struct Store(Arc<Handle>);

/// Opens the store in a directory, and creates it where there is none.
#[pyfunction]
#[pyo3(signature = (path, **options))]
pub(crate) fn open(
    py: Python<'_>,
    #[pyo3(from_py_with = arguments::path)] path: PathBuf,
    options: Option<&Bound<'_, PyDict>>,
) -> Result<Store> {
    let (options, asking) = (self::options(options)?, asking::asking(options)?);
    let handle = py.detach(|| Handle::open(path, options, asking))?;
    Ok(Store(Arc::new(handle)))
}

/// Connects to the store of a server.
#[pyfunction]
#[pyo3(signature = (address, **options))]
pub(crate) fn connect(
    py: Python<'_>,
    #[pyo3(from_py_with = arguments::address)] address: String,
    options: Option<&Bound<'_, PyDict>>,
) -> Result<Store> {
    let options = connection::options(options)?;
    let handle = py.detach(|| Handle::connect(address, &options))?;
    Ok(Store(Arc::new(handle)))
}

#[pymethods]
impl Store {
    /// The directory, of a store that is open in this process.
    #[getter]
    fn path(&self) -> Option<PathBuf> {
        self.0.place().directory().map(PathBuf::from)
    }

    /// Where the server is, of a store that is behind one.
    #[getter]
    fn address(&self) -> Option<&str> {
        self.0.place().address()
    }

    /// Whether it was closed here.
    #[getter]
    fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Creates a table, and its policy where there is none of that name yet.
    #[pyo3(signature = (name, columns, *, roles=None, shared=None, lazy=None, policy=None))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of one Python call")]
    fn create_table(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::name)] name: String,
        columns: &Bound<'_, PyAny>,
        roles: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = arguments::shared)] shared: Option<Vec<String>>,
        #[pyo3(from_py_with = arguments::lazy)] lazy: Option<Vec<String>>,
        #[pyo3(from_py_with = arguments::policy)] policy: Option<String>,
    ) -> Result<Table> {
        let columns = arguments::dict("columns", "a dict of types by the names of columns", columns)?;
        let roles_of = |given: &Bound<'_, PyAny>| -> Result<BTreeMap<String, String>> {
            let expected = "a dict of roles by the names of columns, or None";
            arguments::dict("roles", expected, given)?.extract().map_err(|_| wrong("roles", expected, given))
        };
        let remarks = Remarks {
            roles: roles.map(roles_of).transpose()?.unwrap_or_default().into_iter().collect(),
            shared: shared.unwrap_or_default(),
            lazy: lazy.unwrap_or_default(),
            policy,
        };
        let schema = schema(&columns, remarks)?;
        self.0.run(py, |open| Ok(open.client.create_table(&name, schema).map(drop)?))?;
        Ok(Table::new(&self.0, &name))
    }

    /// The table of that name.
    fn table(&self, py: Python<'_>, #[pyo3(from_py_with = arguments::name)] name: String) -> Result<Table> {
        self.0.run(py, |open| Ok(open.client.table(&name).map(drop)?))?;
        Ok(Table::new(&self.0, &name))
    }

    /// The names of all tables, in the order of their creation.
    fn tables(&self, py: Python<'_>) -> Result<Vec<String>> {
        self.0.run(py, |open| Ok(open.client.tables()?))
    }

    /// Declares a consumer.
    #[pyo3(signature = (name, *, tables, kind, **options))]
    fn create_consumer(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::name)] name: String,
        #[pyo3(from_py_with = arguments::tables)] tables: Vec<String>,
        #[pyo3(from_py_with = arguments::kind)] kind: String,
        options: Option<&Bound<'_, PyDict>>,
    ) -> Result<Consumer> {
        let declared = declaration(&tables, &kind, options)?;
        self.0.run(py, |open| Ok(open.client.create_consumer(&name, declared).map(drop)?))?;
        Ok(Consumer::new(&self.0, &name))
    }

    /// The consumer of that name.
    fn consumer(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::name)] name: String,
    ) -> Result<Consumer> {
        self.0.run(py, |open| Ok(open.client.consumer(&name).map(drop)?))?;
        Ok(Consumer::new(&self.0, &name))
    }

    /// The names of all consumers.
    fn consumers(&self, py: Python<'_>) -> Result<Vec<String>> {
        let declared = self.0.run(py, |open| Ok(open.client.consumers()?))?;
        Ok(declared.into_iter().map(|consumer| consumer.name).collect())
    }

    /// Creates a policy that stands at a version. With keys of its state, every commit that moves it stores one object of
    /// each.
    #[pyo3(signature = (name, *, version=0, state_keys=None))]
    fn create_policy(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::name)] name: String,
        #[pyo3(from_py_with = arguments::version)] version: u64,
        #[pyo3(from_py_with = arguments::state_keys)] state_keys: Option<Vec<String>>,
    ) -> Result<()> {
        let keys = state_keys.unwrap_or_default();
        let policy = Policy::durable(keys.iter().map(String::as_str)).version(version);
        self.0.run(py, |open| Ok(open.client.declare_policy(&name, policy)?))
    }

    /// The version that a policy stands at.
    fn policy_version(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::name)] name: String,
    ) -> Result<u64> {
        self.0.run(py, |open| Ok(open.client.policy(&name)?.version))
    }

    /// What the last commit stored of a policy's state, by key.
    fn policy_state<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = arguments::name)] name: String,
    ) -> Result<Bound<'py, PyDict>> {
        let objects = self.0.run(py, |open| {
            let objects = open.client.policy(&name)?.objects;
            let read = |object| Ok(open.client.object(object)?);
            let payloads: Vec<Vec<u8>> = objects.iter().map(read).collect::<Result<_>>()?;
            Ok(objects.into_iter().map(|object| object.key).zip(payloads).collect::<Vec<_>>())
        })?;
        let state = PyDict::new(py);
        for (key, payload) in objects {
            state.set_item(key, PyBytes::new(py, &payload))?;
        }
        Ok(state)
    }

    /// Which objects hold a policy's state, as the last commit named them: versions by key.
    fn policy_objects(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::name)] name: String,
    ) -> Result<BTreeMap<String, u64>> {
        let objects = self.0.run(py, |open| Ok(open.client.policy(&name)?.objects))?;
        Ok(objects.into_iter().map(|object| (object.key.to_string(), object.version)).collect())
    }

    /// Changes over any tables, to be made together: all or none.
    #[pyo3(signature = (*, durability=None, timeout=None))]
    fn changes(
        &self,
        durability: Option<&Bound<'_, PyAny>>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> Result<Changes> {
        Ok(Changes::new(&self.0, Terms::of(durability, timeout)?))
    }

    /// Takes a snapshot: one instant of all tables, or of some.
    #[pyo3(signature = (tables=None, *, seconds=None, owner=None))]
    fn snapshot(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::tables_or_none)] tables: Option<Vec<String>>,
        seconds: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = arguments::owner)] owner: Option<String>,
    ) -> Result<Snapshot> {
        let time = seconds.map(|seconds| in_seconds("seconds", seconds)).transpose()?;
        let take = taking(tables, time, owner.as_deref());
        self.0.run(py, |open| Snapshot::take(&self.0, open, &take))
    }

    /// [`snapshot`](Self::snapshot) for an event loop.
    #[pyo3(signature = (tables=None, **keywords))]
    fn snapshot_async<'py>(
        slf: &Bound<'py, Self>,
        tables: Option<Bound<'py, PyAny>>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> Result<Bound<'py, PyAny>> {
        in_thread(slf, "snapshot", &PyTuple::new(slf.py(), [tables])?, keywords)
    }

    /// Begins a step: of whole groups, of numbers of rows, or, where nothing is said, of every group that was begun.
    #[pyo3(signature = (*, groups=None, rows=None, durability=None, log=None))]
    fn step(
        &self,
        py: Python<'_>,
        groups: Option<&Bound<'_, PyAny>>,
        rows: Option<&Bound<'_, PyAny>>,
        durability: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = arguments::log)] log: Option<Py<PyAny>>,
    ) -> Result<Step> {
        let membership = Membership::of(groups, rows)?;
        let level = durability.map(self::durability).transpose()?;
        self.0.run(py, |open| {
            let (plan, planned) = membership.plan(open)?;
            let step = open.client.begin_step(&plan)?;
            let step = match level {
                Some(level) => step.durability(level),
                None => step,
            };
            Step::new(&self.0, open, step, Some(planned), log)
        })
    }

    /// [`step`](Self::step) for an event loop.
    #[pyo3(signature = (**keywords))]
    fn step_async<'py>(
        slf: &Bound<'py, Self>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> Result<Bound<'py, PyAny>> {
        in_thread(slf, "step", &PyTuple::empty(slf.py()), keywords)
    }

    /// A step that another process has begun, to take part in it as a rank. It is committed or given up there.
    fn open_step(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::number)] number: u64,
    ) -> Result<Step> {
        self.0.run(py, |open| Step::new(&self.0, open, open.client.open_step(number), None, None))
    }

    /// Undoes every step after one: policies stand where they stood then.
    #[pyo3(signature = (step, *, exclude=false))]
    fn rewind<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = arguments::to_step)] step: u64,
        #[pyo3(from_py_with = arguments::exclude)] exclude: bool,
    ) -> Result<Bound<'py, PyDict>> {
        let rows = if exclude { Rewind::Exclude } else { Rewind::TrainAgain };
        let rewound = self.0.run(py, |open| Ok(open.client.rewind(step, rows)?))?;
        let shown = PyDict::new(py);
        shown.set_item("step", rewound.step)?;
        shown.set_item("steps_undone", rewound.steps_undone)?;
        shown.set_item("rows", rewound.rows)?;
        Ok(shown)
    }

    /// The micro-batches that a committed step was made of, in the order in which they were handed out.
    fn replay<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = arguments::replayed)] step: u64,
    ) -> Result<Vec<Bound<'py, PyDict>>> {
        let batches = self.0.run(py, |open| Ok(open.client.replay(step)?))?;
        batches.into_iter().map(|batch| trained(py, batch)).collect()
    }

    /// [`replay`](Self::replay) for an event loop.
    fn replay_async<'py>(slf: &Bound<'py, Self>, step: Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        in_thread(slf, "replay", &PyTuple::new(slf.py(), [step])?, None)
    }

    /// Answers a question in SQL, as of the moment of the call.
    fn sql(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::statement)] statement: String,
    ) -> Result<Answer> {
        self.0.run(py, |open| {
            let answer = block_on(open.client.query_async(&statement)?, None)?;
            Ok(Answer::new(answer.ok_or_else(|| self.0.closed())??)) // there is no time-out that could end it
        })
    }

    /// The same for an event loop.
    fn sql_async<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = arguments::statement)] statement: String,
    ) -> Result<Bound<'py, PyAny>> {
        let pending = self.0.run(py, |open| {
            let answer = open.client.query_async(&statement)?;
            let coming = Box::pin(async { Ok(Outcome::Answered(answer.await?)) });
            Ok(Pending::new(&self.0, open, coming, Waiter::Reader, None))
        })?;
        pending.awaited(py, "wait")
    }

    /// Its objects: large state under keys, in versions.
    #[getter]
    fn objects<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        Ok(py.import("forebay.objects")?.getattr("Objects")?.call1((ObjectCalls::new(&self.0),))?)
    }

    /// What an operator does with it.
    #[getter]
    fn admin(&self) -> Admin {
        Admin::new(&self.0)
    }

    /// Brings everything that was acknowledged so far to stable storage, for an event loop.
    fn sync_async<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>> {
        in_thread(slf, "sync", &PyTuple::empty(slf.py()), None)
    }

    /// Brings everything that was acknowledged so far to stable storage.
    fn sync(&self, py: Python<'_>) -> Result<()> {
        self.0.run(py, |open| Ok(open.client.sync()?))
    }

    /// Takes a checkpoint: opening the store then replays what comes after it.
    fn checkpoint(&self, py: Python<'_>) -> Result<()> {
        self.0.run(py, |open| Ok(open.client.checkpoint()?))
    }

    /// Takes in what the writer of a store that was opened read-only has written since. Gives the number of records.
    fn refresh(&self, py: Python<'_>) -> Result<u64> {
        let instead = "what one reads there is always what was written last";
        self.0.run(py, |open| Ok(open.local("refresh()", instead)?.refresh()?))
    }

    /// Copies the store, as it is at one instant, to a directory that is empty or does not exist.
    fn backup(&self, py: Python<'_>, #[pyo3(from_py_with = arguments::to)] to: PathBuf) -> Result<()> {
        if to.as_os_str().is_empty() {
            return Err(input("the directory to copy to has no name"));
        }
        let instead =
            "`store.admin.backup()` copies it on the server's machine, and so does `forebay backup` there";
        self.0.run(py, |open| Ok(open.local("backup()", instead)?.backup(to).map(drop)?))
    }

    /// Ends everything that came of the store, and lets go of its directory. Arrays and record batches stay as they are; as
    /// long as there are any of them the directory stays locked. A second call does nothing.
    fn close(&self, py: Python<'_>) -> Result<()> {
        py.detach(|| self.0.close())
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> Result<bool> {
        self.close(py)?;
        Ok(false)
    }

    fn __repr__(&self) -> String {
        format!("<store at {}>", self.0.place())
    }
}
