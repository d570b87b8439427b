//! A store, here or behind a server, as all Python objects that came of it share it.
//!
//! Everything is asked of a [`Client`], which is the same over an opened directory and over a connection. [`Local`] is what only
//! a store in this process has.
//!
//! # Closing
//! Calls hold `open` for reading for as long as they are under way; closing first makes the client end their waits and then
//! takes `open` for writing, so when it returns nobody is in the store any more. Claims and steps lie in slots that are
//! emptied. Who closes from within a call of the same thread (from what is told how far it is, from a signal's handler) is refused,
//! for both would wait for each other. What is left are arrays and record batches; they keep the bytes that they show, and an opened store's lock.
//!
//! # Locks
//! `open` before `held` before a slot before the client's own. None is waited for while the interpreter's lock is held.
//!
//! # Forks
//! A forked child has the handles but not the threads. It is refused before any lock is touched, since another thread of the
//! parent may have held it; what is dropped there is leaked, for the parent's thread cannot be joined.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use forebay::client::{Changes, Client, ConnectOptions, Embedded, Table};
use forebay::query::{Archive, ArchiveRule, Archiver};
use forebay::server::Asked;
use forebay::store::{Options, Row, Schema, Store, Wait};
use forebay::{Archiving, Duties};
use parking_lot::{Mutex, RwLock};
use pyo3::prelude::*;

use crate::asking::Asking;
use crate::failure::{Failure, Result, closed, input, state};
use crate::questions::Questions;
use crate::slot::{EndsWithStore, Slot};
use crate::within::{Within, is_within};

/// One opening of a store, or one connection to one.
#[derive(Debug)]
pub(crate) struct Handle {
    place: Place,
    process: u32,
    open: RwLock<Option<Open>>,
}

/// Where the store is.
#[derive(Debug)]
pub(crate) enum Place {
    Directory(PathBuf),
    Address(String),
}

/// What there is of a store while it is open.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) client: Client,
    local: Option<Local>,
    /// Schemas of tables that were written to, to make values of: see [`Open::schema`].
    schemas: Mutex<HashMap<String, Arc<Schema>>>,
    held: Mutex<Held>,
}

/// What there is of a store in this process beside its client.
#[derive(Debug)]
struct Local {
    store: Store,
    threads: Mutex<Option<Threads>>,
}

/// What works for a store that is open for writing, and ends with it, in this order.
#[derive(Debug)]
struct Threads {
    _archiving: Option<Archiving>,
    _duties: Duties,
}

impl Threads {
    /// Those of a store; `moved` says where versions go that leave it.
    fn of(store: &Store, moved: Option<(Archive, ArchiveRule)>) -> Result<Self> {
        let none =
            |error| Failure::Here("CapacityError", format!("no thread for the store's duties: {error}"));
        let duties = Duties::of(store).map_err(none)?;
        let archiver = moved.map(|(archive, rule)| Archiver::new(store, &archive, rule));
        let archiver = archiver.transpose().map_err(|error| Asked::failure(&error))?;
        Ok(Threads { _archiving: archiver.map(Archiving::of).transpose().map_err(none)?, _duties: duties })
    }
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

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Directory(path) => path.display().fmt(f),
            Place::Address(address) => f.write_str(address),
        }
    }
}

impl Handle {
    /// Opens a store, and starts the threads of its duties and of its archive where it can be written.
    pub(crate) fn open(path: PathBuf, options: Options, asking: Asking) -> Result<Self> {
        let store = Store::open(&path, options)?;
        let threads = match (store.is_read_only(), asking.moved) {
            (false, moved) => Some(Threads::of(&store, moved)?),
            (true, None) => None,
            (true, Some(_)) => {
                return Err(input(
                    "archive_keep_versions moves versions out of the store, and read_only opens it for reading",
                ));
            }
        };
        let questions = Arc::new(Questions::of(&store, asking.options));
        let client = Client::over(Arc::new(Embedded::new(store.clone()).with_queries(questions)));
        let local = Local { store, threads: Mutex::new(threads) };
        Ok(Handle::new(Place::Directory(path), client, Some(local)))
    }

    /// Connects to a server.
    pub(crate) fn connect(address: String, options: &ConnectOptions) -> Result<Self> {
        let client = Client::connect(&address, options)?;
        Ok(Handle::new(Place::Address(address), client, None))
    }

    fn new(place: Place, client: Client, local: Option<Local>) -> Self {
        let open = Open { client, local, schemas: Mutex::default(), held: Mutex::default() };
        Handle { place, process: std::process::id(), open: RwLock::new(Some(open)) }
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// That the store was closed by its owner.
    pub(crate) fn closed(&self) -> Failure {
        closed(&self.place.to_string())
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
                 of them only, or connect to a server in each",
                self.place,
                self.process,
                std::process::id()
            )));
        }
        let _within = Within::enter(self);
        // Whoever watches a call may ask the store something while another thread waits to close it.
        match &*self.open.read_recursive() {
            Some(open) => call(open),
            None => Err(self.closed()),
        }
    }

    /// Whether the store was closed here, or is about to be. Waits for nobody.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_forked() || self.open.try_read().is_none_or(|open| open.is_none())
    }

    /// Ends everything that came of the store, brings what was acknowledged to stable storage, and lets go of the directory
    /// or the server. To be called without the interpreter's lock. A second call does nothing.
    ///
    /// # Errors
    /// `state` from within a call of this thread.
    pub(crate) fn close(&self) -> Result<()> {
        if self.is_forked() {
            return Ok(());
        }
        if is_within(self) {
            return Err(state(format!(
                "the store at {} cannot be closed from within a call on it (by what is told of its progress, or by a signal's \
                 handler): raise an exception there, which ends the call, and close the store when that has returned",
                self.place
            )));
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
    /// A table by its name, which is not looked up.
    pub(crate) fn table(&self, name: &str) -> Table {
        self.client.table_named(name)
    }

    /// Whether the store is open in this process.
    pub(crate) fn is_here(&self) -> bool {
        self.local.is_some()
    }

    /// The store in this process, for a call that makes no sense over a connection. `instead` says what does.
    pub(crate) fn local(&self, call: &str, instead: &str) -> Result<&Store> {
        let local = self.local.as_ref();
        local.map(|local| &local.store).ok_or_else(|| {
            state(format!(
                "{call} is for a store that is open in this process, not for a server's; {instead}"
            ))
        })
    }

    /// How long the client waits, and how long its caller does. A server times a wait by its own clock; a store in this
    /// process leaves that to its caller.
    pub(crate) fn clocks(&self, timeout: Option<Duration>) -> (Wait, Option<Duration>) {
        match (&self.local, timeout) {
            (None, Some(timeout)) => (Wait::For(timeout), None),
            (_, timeout) => (Wait::Forever, timeout),
        }
    }

    /// The schema of a table, to make values of. That of a server's is the one that was last looked at, and another may have
    /// changed it since. The store checks every value against what it is now, so all that an old schema can do is to refuse a
    /// call; then it is looked at again ([`Open::forget_schema`]).
    pub(crate) fn schema(&self, table: &str, columns: &[String]) -> Result<Arc<Schema>> {
        if self.local.is_some() {
            return self.schema_now(table);
        }
        let known = self.schemas.lock().get(table).cloned();
        match known.filter(|schema| columns.iter().all(|column| schema.index_of(column).is_ok())) {
            Some(schema) => Ok(schema),
            None => self.schema_now(table),
        }
    }

    /// The schema of a table as it is.
    pub(crate) fn schema_now(&self, table: &str) -> Result<Arc<Schema>> {
        let schema = Arc::new(self.table(table).schema()?);
        if self.local.is_none() {
            self.schemas.lock().insert(table.to_owned(), schema.clone());
        }
        Ok(schema)
    }

    /// A call was refused that was made of the schema that is known.
    pub(crate) fn forget_schema(&self, table: &str) {
        self.schemas.lock().remove(table);
    }

    /// Makes changes that were made of the schemas of these tables, which are looked at again after they were refused.
    pub(crate) fn write(&self, tables: &BTreeSet<Arc<str>>, changes: &Changes<'_>) -> Result<Vec<Row>> {
        let written = self.client.write(changes);
        if written.is_err() {
            tables.iter().for_each(|table| self.forget_schema(table));
        }
        Ok(written?)
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

    /// The client first: it gives everything back and ends all waits, so that no slot is in use for long.
    fn close(&self) -> Result<()> {
        drop(self.local.as_ref().and_then(|local| local.threads.lock().take()));
        let closed = self.client.close();
        self.end_held();
        Ok(closed?)
    }
}

/// The directory of a place, and its address: one of the two.
impl Place {
    pub(crate) fn directory(&self) -> Option<&Path> {
        match self {
            Place::Directory(path) => Some(path),
            Place::Address(_) => None,
        }
    }

    pub(crate) fn address(&self) -> Option<&str> {
        match self {
            Place::Directory(_) => None,
            Place::Address(address) => Some(address),
        }
    }
}
