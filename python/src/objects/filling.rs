//! A version that Python fills.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay::client;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::arguments;
use crate::failure::{Result, state};
use crate::handle::{Handle, Open};
use crate::slot::Slot;

/// A version that is being filled. It lies in a slot of its store, so it ends with that.
#[pyclass(frozen, module = "forebay")]
#[derive(Debug)]
pub(crate) struct ObjectFilling {
    handle: Arc<Handle>,
    filling: Arc<Slot<client::ObjectFilling>>,
}

impl ObjectFilling {
    pub(crate) fn new(handle: &Arc<Handle>, open: &Open, filling: client::ObjectFilling) -> Self {
        ObjectFilling { handle: handle.clone(), filling: open.hold(filling) }
    }

    /// What is filled, for a commit with others.
    pub(crate) fn take(&self) -> Result<client::ObjectFilling> {
        self.filling.lock().take().ok_or_else(over)
    }

    pub(crate) fn put_back(&self, filling: client::ObjectFilling) {
        *self.filling.lock() = Some(filling);
    }

    fn with<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut client::ObjectFilling) -> Result<T> + Send,
    ) -> Result<T> {
        self.handle.run(py, |_| call(self.filling.lock().as_mut().ok_or_else(over)?))
    }
}

fn over() -> crate::failure::Failure {
    state("the version was committed or given up; begin another")
}

#[pymethods]
impl ObjectFilling {
    /// Fills a tensor from a byte of it on.
    fn write(&self, py: Python<'_>, tensor: &str, offset: u64, bytes: PyBackedBytes) -> Result<()> {
        self.with(py, |filling| Ok(filling.write(tensor, offset, &bytes)?))
    }

    /// Says something of the version.
    fn metadata(&self, py: Python<'_>, metadata: BTreeMap<String, String>) -> Result<()> {
        self.with(py, |filling| {
            filling.metadata_of(&metadata);
            Ok(())
        })
    }

    /// Commits it, and gives its number.
    #[pyo3(signature = (version, expected))]
    fn commit(&self, py: Python<'_>, version: Option<u64>, expected: Option<u64>) -> Result<u64> {
        let committed = self.with(py, |filling| {
            if expected.is_some() {
                filling.expect(super::expected_of(expected));
            }
            Ok(match version {
                Some(version) => filling.commit_as(version)?,
                None => filling.commit()?,
            })
        })?;
        self.abandon(py);
        Ok(committed)
    }

    /// Gives it up, and tells those who wait why.
    fn fail(&self, py: Python<'_>, #[pyo3(from_py_with = arguments::reason)] reason: String) -> Result<()> {
        self.handle.run(py, |_| Ok(self.take()?.fail(&reason)?))
    }

    /// Gives its memory back, if it is not committed.
    fn abandon(&self, py: Python<'_>) {
        py.detach(|| {
            let filling = self.filling.lock().take();
            drop(filling);
        });
    }
}
