//! A claim or a step, in a place that two can reach: the Python object that uses it, and the handle that ends it when the
//! store is closed.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};
use pyo3::Python;

/// Holds something of a store until it is used up, given back, or the store is closed.
#[derive(Debug)]
pub(crate) struct Slot<T: Send> {
    held: Mutex<Option<T>>,
    /// Whether it held something when it was last let go of.
    is_full: AtomicBool,
}

/// What a slot holds, for one call.
pub(crate) struct Held<'a, T: Send> {
    held: MutexGuard<'a, Option<T>>,
    is_full: &'a AtomicBool,
}

impl<T: Send> Deref for Held<'_, T> {
    type Target = Option<T>;

    fn deref(&self) -> &Option<T> {
        &self.held
    }
}

impl<T: Send> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut Option<T> {
        &mut self.held
    }
}

impl<T: Send> Drop for Held<'_, T> {
    fn drop(&mut self) {
        self.is_full.store(self.held.is_some(), Ordering::Release);
    }
}

/// Something that ends with its store.
pub(crate) trait EndsWithStore: Send + Sync + fmt::Debug {
    /// Lets go of what is held. Waits for a call that uses it.
    fn end(&self);
}

impl<T: Send> Slot<T> {
    pub(crate) fn new(held: T) -> Self {
        Slot { held: Mutex::new(Some(held)), is_full: AtomicBool::new(true) }
    }

    /// What is held, for one call. Not to be taken while the interpreter's lock is held: its holder may be copying.
    pub(crate) fn lock(&self) -> Held<'_, T> {
        Held { held: self.held.lock(), is_full: &self.is_full }
    }

    /// Whether something is held. Waits for nobody: what a call uses is held, what it takes away is not.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Acquire)
    }
}

impl<T: Send> Drop for Slot<T> {
    fn drop(&mut self) {
        // Python drops the objects of claims and steps with the interpreter's lock held. Giving back what they still hold takes locks of
        // the store, or asks a server and waits for its answer, for which nobody waits with that lock.
        let held = self.held.get_mut().take();
        if held.is_some() {
            _ = Python::try_attach(|py| py.detach(|| drop(held)));
        }
    }
}

impl<T: Send + fmt::Debug> EndsWithStore for Slot<T> {
    fn end(&self) {
        let held = self.lock().take();
        drop(held); // with the slot free again: giving back takes locks of the store
    }
}
