//! What an operator asks of a store, here or behind a server.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use forebay::client::wire::{read_stream, write_stream};
use forebay::client::{self, Depth};
use forebay::store::{
    BackupOptions, BudgetChange, Budgets, Peek, Retention, VerifyFault, VerifyProgress, VerifyReport, compact,
};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::answer::Answer;
use crate::arguments;
use crate::failure::{Result, input};
use crate::handle::Handle;
use crate::options::{seconds, wrong};
use crate::rows::Rows;
use crate::watching::Watching;

/// Calls for an operator of a store.
#[pyclass(frozen, module = "forebay")]
#[derive(Debug)]
pub(crate) struct Admin(Arc<Handle>);

impl Admin {
    pub(crate) fn new(handle: &Arc<Handle>) -> Self {
        Admin(handle.clone())
    }

    fn run<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(client::Admin) -> client::Result<T> + Send,
    ) -> Result<T> {
        self.0.run(py, |open| Ok(call(open.client.admin())?))
    }
}

#[pymethods]
impl Admin {
    /// How the store was opened, what it has done and holds, and how much is ready for each consumer.
    fn overview<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let overview = self.run(py, |admin| admin.overview())?;
        let shown = PyDict::new(py);
        shown.set_item("settings", overview.settings)?;
        shown.set_item("stats", overview.stats)?;
        shown.set_item("depths", depths(py, &overview.depths)?)?;
        Ok(shown)
    }

    /// How much there is for each consumer, once for each of its tables.
    fn depths<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyList>> {
        depths(py, &self.run(py, |admin| admin.overview())?.depths)
    }

    /// A few rows of a table, whoever holds them; none is claimed.
    #[pyo3(signature = (table, *, columns=None, rows=10, newest=false, ready_for=None))]
    fn peek(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::table)] table: String,
        #[pyo3(from_py_with = arguments::columns)] columns: Option<Vec<String>>,
        #[pyo3(from_py_with = arguments::peeked)] rows: usize,
        #[pyo3(from_py_with = arguments::newest)] newest: bool,
        #[pyo3(from_py_with = arguments::ready_for)] ready_for: Option<String>,
    ) -> Result<Answer> {
        let peek = Peek { columns, rows_max: rows, newest, ready_for };
        let answer = self.run(py, |admin| {
            let rows = admin.peek(&table, &peek)?;
            let unwritable = |error: arrow_schema::ArrowError| {
                client::Error::new(forebay::store::Kind::State, "Bug", error.to_string())
            };
            // In memory of its own, so that an answer that is kept keeps nothing of the store.
            let rows = compact(&rows).map_err(unwritable)?;
            read_stream(write_stream(&rows.schema(), &[rows])?)
        })?;
        Ok(Answer::new(answer))
    }

    /// Leaves rows out for good, all or none, with the reason that people will see.
    fn evict(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::rows)] rows: Py<Rows>,
        #[pyo3(from_py_with = arguments::reason)] reason: String,
    ) -> Result<()> {
        let table = rows.get().table_name();
        let rows = rows.get().of(&table)?;
        self.run(py, |admin| admin.evict(&table, &rows, &reason))
    }

    /// How much the store may take.
    fn budgets<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        shown_budgets(py, self.run(py, |admin| admin.budgets())?)
    }

    /// Changes how much it may take: what is named, to so many bytes or to no limit. Gives what holds then.
    #[pyo3(signature = (**changes))]
    fn set_budgets<'py>(
        &self,
        py: Python<'py>,
        changes: Option<&Bound<'py, PyDict>>,
    ) -> Result<Bound<'py, PyDict>> {
        let mut change = BudgetChange::new();
        for (name, value) in changes.into_iter().flatten() {
            let name: String = name.extract()?;
            let bytes: Option<u64> =
                value.extract().map_err(|_| wrong(&name, "a number of bytes, or None", &value))?;
            change = match &*name {
                "memory_bytes_max" => change.memory_bytes_max(bytes),
                "disk_bytes_max" => change.disk_bytes_max(bytes),
                _ => {
                    return Err(input(format!(
                        "there is no budget {name:?}; they are memory_bytes_max and disk_bytes_max"
                    )));
                }
            };
        }
        shown_budgets(py, self.run(py, |admin| admin.change_budgets(&change))?)
    }

    /// Which rows go by themselves.
    fn retention<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let rule = self.run(py, |admin| admin.retention())?;
        let shown = PyDict::new(py);
        shown.set_item("versions_kept", rule.versions_kept())?;
        shown.set_item("consumed_kept", rule.consumed_kept_for().map(|time| time.as_secs_f64()))?;
        Ok(shown)
    }

    /// Puts another rule in place of the one that holds.
    #[pyo3(signature = (*, versions_kept=None, consumed_kept=None))]
    fn set_retention(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::versions_kept)] versions_kept: Option<u64>,
        consumed_kept: Option<&Bound<'_, PyAny>>,
    ) -> Result<()> {
        if versions_kept == Some(0) {
            return Err(input("versions_kept is 1 or more: the current version is one of them"));
        }
        let time = consumed_kept.map(|time| seconds("consumed_kept", time)).transpose()?;
        let rule = versions_kept.into_iter().fold(Retention::default(), Retention::versions);
        let rule = time.into_iter().fold(rule, Retention::consumed_for);
        self.run(py, |admin| admin.change_retention(rule))
    }

    /// Makes the store as small as it can be now, while others go on with it.
    fn compact(&self, py: Python<'_>) -> Result<BTreeMap<&'static str, u64>> {
        let report = self.run(py, |admin| admin.compact())?;
        Ok(BTreeMap::from([
            ("bytes_before", report.bytes_before),
            ("bytes_after", report.bytes_after),
            ("values_moved", report.values_moved),
            ("held_back_bytes", report.held_back_bytes),
        ]))
    }

    /// Copies the store to a directory of the machine that has it, which is empty or not there.
    #[pyo3(signature = (to, *, set_objects=false, progress=None))]
    fn backup<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = arguments::to)] to: PathBuf,
        #[pyo3(from_py_with = arguments::set_objects)] set_objects: bool,
        #[pyo3(from_py_with = arguments::progress)] progress: Option<Py<PyAny>>,
    ) -> Result<Bound<'py, PyDict>> {
        if to.as_os_str().is_empty() {
            return Err(input("the directory to copy to has no name"));
        }
        let mut watching = Watching::by(progress);
        let options = BackupOptions::default().set_objects(set_objects);
        let outcome = self.run(py, |admin| {
            admin.backup(&to, options, &mut |far| watching.tell("copy", far.done_bytes, far.total_bytes))
        });
        let report = watching.outcome(outcome)?;
        let shown = PyDict::new(py);
        shown.set_item("to", report.to)?;
        for (name, count) in [
            ("records", report.records),
            ("segments", report.segments),
            ("extents", report.extents),
            ("objects", report.objects),
            ("bytes", report.bytes),
        ] {
            shown.set_item(name, count)?;
        }
        Ok(shown)
    }

    /// Reads every byte that the store stands on, and says what is wrong.
    #[pyo3(signature = (*, progress=None))]
    fn verify<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = arguments::progress)] progress: Option<Py<PyAny>>,
    ) -> Result<Bound<'py, PyDict>> {
        let mut watching = Watching::by(progress);
        let mut tell =
            |far: VerifyProgress| watching.tell(far.stage.as_str(), far.done_bytes, far.total_bytes);
        let outcome = self.run(py, |admin| admin.verify(&mut tell));
        verified(py, &watching.outcome(outcome)?)
    }

    fn __repr__(&self) -> String {
        format!("<admin of the store at {}>", self.0.place())
    }
}

fn depths<'py>(py: Python<'py>, depths: &[Depth]) -> Result<Bound<'py, PyList>> {
    let shown = PyList::empty(py);
    for depth in depths {
        let of = PyDict::new(py);
        of.set_item("consumer", &depth.consumer)?;
        of.set_item("kind", depth.kind.as_str())?;
        of.set_item("table", &depth.table)?;
        of.set_item("ready_rows", depth.ready_rows)?;
        of.set_item("future_rows", depth.future_rows)?;
        of.set_item("processing_rows", depth.processing_rows)?;
        of.set_item("current_version", depth.current_version)?;
        of.set_item("group_members", depth.group_members)?;
        shown.append(of)?;
    }
    Ok(shown)
}

fn shown_budgets(py: Python<'_>, budgets: Budgets) -> Result<Bound<'_, PyDict>> {
    let shown = PyDict::new(py);
    shown.set_item("memory_bytes_max", budgets.memory_bytes_max)?;
    shown.set_item("disk_bytes_max", budgets.disk_bytes_max)?;
    Ok(shown)
}

/// What a check found.
fn verified<'py>(py: Python<'py>, report: &VerifyReport) -> Result<Bound<'py, PyDict>> {
    let faults = PyList::empty(py);
    for VerifyFault { kind, path, offset, reason } in &report.faults {
        let fault = PyDict::new(py);
        fault.set_item("kind", kind.as_str())?;
        fault.set_item("path", path)?;
        fault.set_item("offset", offset)?;
        fault.set_item("reason", reason)?;
        faults.append(fault)?;
    }
    let checked = &report.checked;
    let counts = BTreeMap::from([
        ("records", checked.records),
        ("log_bytes", checked.log_bytes),
        ("page_bytes", checked.page_bytes),
        ("tables", checked.tables),
        ("rows", checked.rows),
        ("cells", checked.cells),
        ("values", checked.values),
        ("value_bytes", checked.value_bytes),
        ("values_carried", checked.values_carried),
        ("extents", checked.extents),
        ("objects", checked.objects),
        ("object_bytes", checked.object_bytes),
        ("claims", checked.claims),
        ("steps", checked.steps),
    ]);
    let shown = PyDict::new(py);
    shown.set_item("sound", report.is_sound())?;
    shown.set_item("fault_count", report.fault_count())?;
    shown.set_item("faults", faults)?;
    shown.set_item("checked", counts)?;
    shown.set_item("orphans", &report.orphans)?;
    Ok(shown)
}
