//! A version that Python holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use pyo3::prelude::*;

use super::view::LeasedView;
use super::{Held, Spec};
use crate::failure::{Result, state};
use crate::handle::{Handle, Open};
use crate::slot::Slot;
use crate::view::View;

/// A version that is held. It lies in a slot of its store, so it ends with that; views of its bytes do not.
#[pyclass(frozen, module = "forebay")]
#[derive(Debug)]
pub(crate) struct HeldObject {
    handle: Arc<Handle>,
    held: Arc<Slot<Held>>,
    #[pyo3(get)]
    key: String,
    #[pyo3(get)]
    version: u64,
    #[pyo3(get)]
    metadata: BTreeMap<String, String>,
}

impl HeldObject {
    pub(crate) fn new(handle: &Arc<Handle>, open: &Open, held: Held) -> Self {
        let manifest = held.version().manifest();
        let (key, version, metadata) = (manifest.key.clone(), manifest.version, manifest.metadata.clone());
        HeldObject { handle: handle.clone(), held: open.hold(held), key, version, metadata }
    }

    fn with<T: Send>(&self, py: Python<'_>, call: impl FnOnce(&Held) -> Result<T> + Send) -> Result<T> {
        self.handle.run(py, |_| call(self.held.lock().as_ref().ok_or_else(released)?))
    }
}

fn released() -> crate::failure::Failure {
    state("the version was let go; get it again")
}

#[pymethods]
impl HeldObject {
    /// Memory class, name, type and dimensions of each tensor.
    fn tensors(&self, py: Python<'_>) -> Result<Vec<Spec>> {
        self.with(py, |held| {
            let layout = &held.version().manifest().layout;
            let spec = |tensor: &forebay::store::Tensor| {
                let class = layout.payloads()[tensor.payload].class.clone();
                (class, tensor.name.clone(), tensor.dtype.name().to_owned(), tensor.shape.clone())
            };
            Ok(layout.tensors().iter().map(spec).collect())
        })
    }

    /// The bytes of some rows of a tensor: where they lie, or, where they have to be read, in memory of their own.
    #[pyo3(signature = (tensor, rows))]
    fn bytes<'py>(
        &self,
        py: Python<'py>,
        tensor: &str,
        rows: Option<(u64, u64)>,
    ) -> Result<Bound<'py, PyAny>> {
        let (leased, read) = self.with(py, |held| {
            let tensor = held.version().tensor(tensor)?;
            let tensor = match rows {
                Some((start, end)) => tensor.rows(start..end)?,
                None => tensor,
            };
            Ok(match tensor.bytes() {
                Some(leased) => (Some(leased), None),
                None => (None, Some(tensor.to_vec()?)),
            })
        })?;
        Ok(match leased {
            Some(leased) => Bound::new(py, LeasedView::new(leased))?.into_any(),
            None => Bound::new(py, View::of_value(Bytes::from(read.unwrap_or_default())))?.into_any(),
        })
    }

    /// Holds every byte against its checksum where it lies.
    fn verify(&self, py: Python<'_>) -> Result<()> {
        self.with(py, |held| Ok(held.version().verify()?))
    }

    /// It was received: it is removed.
    fn done(&self, py: Python<'_>) -> Result<()> {
        self.handle.run(py, |_| {
            let held = self.held.lock().take().ok_or_else(released)?;
            match held {
                Held::Received(received) => Ok(received.done()?),
                Held::Kept(kept) => {
                    let key = kept.key().to_owned();
                    Err(state(format!("{key:?} was got, not received; `delete` removes a version")))
                }
            }
        })
    }

    /// Lets go of it. Views of its bytes keep it for as long as there are any.
    fn release(&self, py: Python<'_>) {
        py.detach(|| {
            let held = self.held.lock().take();
            drop(held);
        });
    }
}
