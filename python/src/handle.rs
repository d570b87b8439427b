//! An opened store, as all Python objects that came of it share it.
//!
//! # Closing
//! Calls hold `open` for reading for as long as they are under way; closing first makes the store end their waits and then
//! takes `open` for writing, so when it returns nobody is in the store any more. Claims and steps lie in slots that are
//! emptied. What is left are arrays and record batches; they keep the bytes that they show, and the store's lock.
//!
//! # Locks
//! `open` before `held` before a slot before the store's own. None is waited for while the interpreter's lock is held, with
//! one exception: to see whether a slot is empty.
//!
//! # Forks
//! A forked child has the handles but not the threads. It is refused before any lock is touched, since another thread of the
//! parent may have held it; what is dropped there is leaked, for the parent's thread cannot be joined.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};

use forebay::Duties;
use forebay::query::{self, Session};
use forebay::store::{ConsumerHandle, Options, Store, Table};
use parking_lot::{Mutex, RwLock};
use pyo3::prelude::*;

use crate::failure::{Failure, Result, closed, state};
use crate::slot::{EndsWithStore, Slot};

/// One opening of a store.
#[derive(Debug)]
pub(crate) struct Handle {
    path: PathBuf,
    process: u32,
    open: RwLock<Option<Open>>,
}

/// What there is of a store while it is open.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) store: Store,
    read_only: bool,
    session: OnceLock<Session>,
    held: Mutex<Held>,
    duties: Mutex<Option<Duties>>,
}

/// Claims and steps that Python holds.
#[derive(Debug, Default)]
struct Held {
    slots: Vec<Weak<dyn EndsWithStore>>,
    /// At how many the ones that are gone are swept out.
    sweep_at: usize,
}

/// Fewer than this many are not worth sweeping.
const SWEEP_SLOTS_MIN: usize = 64;

impl Handle {
    /// Opens a store, and starts the thread of its duties where it can be written.
    pub(crate) fn open(path: PathBuf, options: Options, read_only: bool) -> Result<Self> {
        let store = Store::open(&path, options)?;
        let duties = match read_only {
            true => None,
            false => Some(Duties::of(&store).map_err(|error| {
                Failure::Here("CapacityError", format!("no thread for the store's duties: {error}"))
            })?),
        };
        let (session, held, duties) = (OnceLock::new(), Mutex::default(), Mutex::new(duties));
        let open = RwLock::new(Some(Open { store, read_only, session, held, duties }));
        Ok(Handle { path, process: std::process::id(), open })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn is_forked(&self) -> bool {
        std::process::id() != self.process
    }

    /// Runs something in the open store, without the interpreter's lock.
    pub(crate) fn run<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&Open) -> Result<T> + Send,
    ) -> Result<T> {
        py.detach(|| self.within(call))
    }

    /// As [`run`](Self::run), for a caller who has let go of the interpreter's lock.
    pub(crate) fn within<T>(&self, call: impl FnOnce(&Open) -> Result<T>) -> Result<T> {
        if self.is_forked() {
            return Err(state(format!(
                "the store at {} was opened by process {} and this is process {}, its child; open the store in one \
                 of them only",
                self.path.display(),
                self.process,
                std::process::id()
            )));
        }
        match &*self.open.read() {
            Some(open) => call(open),
            None => Err(closed(&self.path)),
        }
    }

    /// Whether the store was closed here, or is about to be. Waits for nobody.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_forked() || self.open.try_read().is_none_or(|open| open.is_none())
    }

    /// Ends everything that came of the store, brings what was acknowledged to stable storage, and lets go of the
    /// directory. To be called without the interpreter's lock. A second call does nothing.
    pub(crate) fn close(&self) -> Result<()> {
        if self.is_forked() {
            return Ok(());
        }
        let closing = match &*self.open.read() {
            Some(open) => open.close(),
            None => return Ok(()),
        };
        let open = self.open.write().take();
        if let Some(open) = open {
            open.end_held(); // what a call that was under way has added
        }
        closing
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.is_forked() {
            std::mem::forget(self.open.get_mut().take());
            return;
        }
        let close = || self.close();
        // Whoever drops the last object of a store may hold the interpreter's lock, or may be at its end.
        let closing = Python::try_attach(|py| py.detach(close)).unwrap_or_else(close);
        if let Err(failure) = closing {
            tracing::warn!(?failure, "a store was not closed in good order; opening it again recovers it");
        }
    }
}

impl Open {
    /// A table by its name.
    pub(crate) fn table(&self, name: &str) -> Result<Table> {
        Ok(self.store.table(name)?)
    }

    /// A consumer by its name.
    pub(crate) fn consumer(&self, name: &str) -> Result<ConsumerHandle> {
        Ok(self.store.consumer(name)?)
    }

    /// What answers SQL; set up by the first question.
    pub(crate) fn session(&self) -> Result<&Session> {
        if let Some(session) = self.session.get() {
            return Ok(session);
        }
        let options = query::Options::default().refresh(self.read_only);
        let session = Session::with_options(&self.store, &options)?;
        Ok(self.session.get_or_init(|| session))
    }

    /// Puts something into a slot that is emptied when the store is closed.
    pub(crate) fn hold<T: Send + std::fmt::Debug + 'static>(&self, what: T) -> Arc<Slot<T>> {
        let slot = Arc::new(Slot::new(what));
        let mut held = self.held.lock();
        if held.slots.len() >= held.sweep_at {
            held.slots.retain(|slot| slot.strong_count() > 0);
            held.sweep_at = SWEEP_SLOTS_MIN.max(2 * held.slots.len());
        }
        let weak: Weak<Slot<T>> = Arc::downgrade(&slot);
        held.slots.push(weak);
        slot
    }

    /// Ends what was begun last first: the wait for a micro-batch, then its step.
    fn end_held(&self) {
        let slots = std::mem::take(&mut self.held.lock().slots);
        slots.iter().rev().filter_map(Weak::upgrade).for_each(|slot| slot.end());
    }

    fn close(&self) -> Result<()> {
        self.end_held();
        drop(self.duties.lock().take());
        let synced = if self.read_only || self.store.closed().is_some() { Ok(()) } else { self.store.sync() };
        self.store.close("it was closed by its owner");
        Ok(synced?)
    }
}
