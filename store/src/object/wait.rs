//! Waiting for versions: by threads, with or without a time-out, and as futures.
//!
//! Who waits begins to listen under the catalog's lock, right after he looked and found nothing; who commits notifies after he
//! has changed the catalog. So no wake-up is lost. Nor is that of a store that closes: it is looked at under the same lock,
//! which the close takes before it notifies. A key that is waited for is known to the catalog as long as somebody waits.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::Manifest;
use super::catalog::{Ask, Catalog, KeyState};
use super::held::{Held, Leased};
use super::objects::{Get, Objects};
use crate::consumer::Wait;
use crate::error::{Cause, Result};
use crate::sync::{Event, EventListener};

/// What one look at the catalog led to.
enum Look {
    Found(Leased),
    /// The event is kept beside its listener: as long as somebody has it, its key is not forgotten.
    NotThere(EventListener, Arc<Event>),
}

/// Keys as text, for messages.
fn named(keys: &[&str]) -> String {
    let others = if keys.len() > 3 { format!(" and {} more", keys.len() - 3) } else { String::new() };
    let shown: Vec<String> = keys.iter().take(3).map(|key| format!("{key:?}")).collect();
    shown.join(", ") + &others
}

/// Refuses to wait for a key of which a filling was given up since there were so many.
fn check_failures(key: &str, state: &KeyState, failures: &mut Option<u64>) -> Result<()> {
    if *failures.get_or_insert(state.failures) < state.failures {
        let (key, reason) = (key.to_owned(), state.failure.clone());
        return Err(Cause::FillingFailed { key, reason }.into());
    }
    Ok(())
}

impl Objects {
    /// One look. `failures` is how many fillings of the key had been given up when the wait began.
    fn look(&self, key: &str, ask: Ask, failures: &mut Option<u64>) -> Result<Look> {
        self.store.check_process()?;
        let mut catalog = self.core.catalog.lock();
        self.check_open()?; // under the lock: who closes the store takes it to wake those who listen by then
        if let Some(leased) = self.lease(&mut catalog, key, ask) {
            return Ok(Look::Found(leased));
        }
        let state = catalog.key(key);
        check_failures(key, state, failures)?;
        Ok(Look::NotThere(state.changed.listen(), state.changed.clone()))
    }

    fn lease(&self, catalog: &mut Catalog, key: &str, ask: Ask) -> Option<Leased> {
        let number = catalog.find(key, ask)?;
        let lease = catalog.lease(key, number, self.now(), ask == Ask::Once)?;
        let manifest = catalog.version(key, number)?.manifest.clone();
        Some(Leased::new(self.clone(), lease, manifest))
    }

    /// Leases on the versions of several keys that were committed together, the newest of which all are there, as one instant has
    /// it.
    pub(super) fn lease_together(&self, keys: &[&str]) -> Result<Vec<Leased>> {
        self.check_open()?;
        let mut catalog = self.core.catalog.lock();
        if keys.is_empty() {
            return Err(Cause::Argument { what: "keys", reason: "none is named".into() }.into());
        }
        let Some(number) = catalog.find_together(keys) else {
            let missing = keys.iter().find(|key| catalog.find(key, Ask::Latest).is_none());
            let apart = || Cause::ObjectsApart { keys: named(keys) };
            return Err(missing.map_or_else(apart, |key| catalog.missing(key, Ask::AtLeast(1))).into());
        };
        let leases = keys.iter().map(|key| self.lease(&mut catalog, key, Ask::Exact(number)));
        Ok(leases.collect::<Option<Vec<_>>>().unwrap_or_default())
    }

    pub(super) fn lease_when_there(&self, key: &str, ask: Ask, wait: Wait) -> Result<Leased> {
        let clock = &self.core.clock;
        let until = match wait {
            Wait::For(time) => Some(clock.now().after(time)),
            Wait::No | Wait::Forever => None,
        };
        let mut failures = None;
        loop {
            let (listener, _event) = match self.look(key, ask, &mut failures)? {
                Look::Found(leased) => return Ok(leased),
                Look::NotThere(listener, event) => (listener, event),
            };
            if wait == Wait::No || until.is_some_and(|until| clock.now() >= until) {
                return Err(self.core.catalog.lock().missing(key, ask).into());
            }
            clock.wait(listener, until);
        }
    }

    /// A version to come, on any async runtime: the newest, once it is `least` or a later one. There is no time-out in it; race it
    /// against a timer of the runtime.
    pub fn get_async(&self, key: &str, least: u64, get: Get) -> HeldFuture {
        let (objects, key) = (self.clone(), key.to_owned());
        HeldFuture { objects, key, ask: Ask::AtLeast(least), get, failures: None, listener: None }
    }

    /// What [`receive_with`](Self::receive_with) gives, to come.
    pub fn receive_async(&self, key: &str, get: Get) -> HeldFuture {
        let (objects, key) = (self.clone(), key.to_owned());
        HeldFuture { objects, key, ask: Ask::Once, get, failures: None, listener: None }
    }

    /// Hears of what may be a version that is waited for: the newest, once it is `least` or a later one, or, where `least` is none,
    /// one that was published and that nobody is receiving. It holds nothing and copies nothing; look again when it is
    /// [`heard`](ObjectNews::heard).
    pub fn news(&self, key: &str, least: Option<u64>) -> ObjectNews {
        let failures = self.core.catalog.lock().keys.get(key).map_or(0, |state| state.failures);
        let ask = least.map_or(Ask::Once, Ask::AtLeast);
        ObjectNews { objects: self.clone(), key: key.to_owned(), ask, failures: Some(failures) }
    }

    /// Tells of new versions of a key, from now on.
    pub fn watch(&self, key: &str) -> Watch {
        let seen = self.core.catalog.lock().find(key, Ask::Latest).unwrap_or(0);
        Watch { objects: self.clone(), key: key.to_owned(), seen }
    }
}

/// An object to come; see [`Objects::get_async`]. A version that has to be copied from another tier is copied by whoever polls.
#[derive(Debug)]
#[must_use = "a future does nothing until it is awaited"]
pub struct HeldFuture {
    objects: Objects,
    key: String,
    ask: Ask,
    get: Get,
    failures: Option<u64>,
    listener: Option<(Pin<Box<EventListener>>, Arc<Event>)>,
}

impl Future for HeldFuture {
    type Output = Result<Held>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            if let Some((listener, _)) = &mut this.listener {
                if listener.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                this.listener = None;
            }
            match this.objects.look(&this.key, this.ask, &mut this.failures) {
                Ok(Look::Found(leased)) => return Poll::Ready(leased.hold(&this.get)),
                Ok(Look::NotThere(listener, event)) => this.listener = Some((Box::pin(listener), event)),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

/// News of a key; see [`Objects::news`].
#[derive(Debug)]
pub struct ObjectNews {
    objects: Objects,
    key: String,
    ask: Ask,
    failures: Option<u64>,
}

impl ObjectNews {
    /// Until a look is worth it, at once where it is now. Fillings that are given up are told of since this was begun.
    ///
    /// # Errors
    /// `retry` when whoever was to fill it gave up; `closed` when the store is.
    pub async fn heard(&mut self) -> Result<()> {
        loop {
            let (listener, _event) = {
                let mut catalog = self.objects.core.catalog.lock();
                self.objects.check_open()?; // under the lock, as in `look`
                if catalog.find(&self.key, self.ask).is_some() {
                    return Ok(());
                }
                let state = catalog.key(&self.key);
                check_failures(&self.key, state, &mut self.failures)?;
                (state.changed.listen(), state.changed.clone())
            };
            listener.await;
        }
    }
}

/// New versions of a key, the newest each time; see [`Objects::watch`]. Versions that came and were followed by others before
/// somebody looked are passed over.
#[derive(Debug)]
pub struct Watch {
    objects: Objects,
    key: String,
    seen: u64,
}

impl Watch {
    /// The manifest of the newest version, once it is newer than the last that was told; `None` when the wait is over.
    ///
    /// # Errors
    /// `retry` when whoever was to fill it gave up; `closed` when the store is.
    pub fn next(&mut self, wait: Wait) -> Result<Option<Arc<Manifest>>> {
        let ask = Ask::AtLeast(self.seen.saturating_add(1));
        match self.objects.lease_when_there(&self.key, ask, wait) {
            Ok(leased) => {
                self.seen = leased.manifest.version;
                Ok(Some(leased.manifest.clone()))
            }
            Err(error) if matches!(error.cause(), Cause::ObjectNotYet { .. } | Cause::Unknown { .. }) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}
