//! A claim or a step, in a place that two can reach: the Python object that uses it, and the handle that ends it when the
//! store is closed.

use std::fmt;

use parking_lot::{Mutex, MutexGuard};
use pyo3::Python;

/// Holds something of a store until it is used up, given back, or the store is closed.
#[derive(Debug)]
pub(crate) struct Slot<T: Send>(Mutex<Option<T>>);

/// Something that ends with its store.
pub(crate) trait EndsWithStore: Send + Sync + fmt::Debug {
    /// Lets go of what is held. Waits for a call that uses it.
    fn end(&self);
}

impl<T: Send> Slot<T> {
    pub(crate) fn new(held: T) -> Self {
        Slot(Mutex::new(Some(held)))
    }

    /// What is held, for one call. Not to be taken while the interpreter's lock is held: its holder may be copying.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.0.lock()
    }

    /// Whether something is held. Waits for nobody: what a call uses is held.
    pub(crate) fn is_full(&self) -> bool {
        self.0.try_lock().is_none_or(|held| held.is_some())
    }
}

impl<T: Send> Drop for Slot<T> {
    fn drop(&mut self) {
        // Python drops the objects of claims and steps with the interpreter's lock held. Giving back what they still hold takes locks of
        // the store, or asks a server and waits for its answer, for which nobody waits with that lock.
        let held = self.0.get_mut().take();
        if held.is_some() {
            _ = Python::try_attach(|py| py.detach(|| drop(held)));
        }
    }
}

impl<T: Send + fmt::Debug> EndsWithStore for Slot<T> {
    fn end(&self) {
        let held = self.0.lock().take();
        drop(held); // with the slot free again: giving back takes locks of the store
    }
}
