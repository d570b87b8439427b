//! Publish and receive: versions that go with the first who has them, beside those that stay.

use std::ops::Deref;
use std::time::Duration;

use super::catalog::Ask;
use super::filling::Filling;
use super::held::Held;
use super::layout::Layout;
use super::moves::check_count;
use super::objects::{Get, Objects};
use super::owner::Owner;
use super::set::{Expected, TensorBytes};
use crate::consumer::Wait;
use crate::error::Result;
use crate::schema::check_name;

/// How long [`Objects::receive`] is commonly made to wait for one key, as Yuanrong does.
pub const RECEIVE_WAIT: Wait = Wait::For(Duration::from_secs(20));
/// How long [`Objects::receive_many`] is commonly made to wait, as Yuanrong does.
pub const RECEIVE_MANY_WAIT: Wait = Wait::For(Duration::from_secs(60));

/// What was published and is being received. Nobody else receives it meanwhile; dropping it without
/// [`done`](Self::done) gives it back, for the next.
#[derive(Debug)]
pub struct Received {
    held: Held,
    objects: Objects,
}

impl Received {
    /// It has been taken over: it is removed.
    ///
    /// # Errors
    /// `closed` when the store is.
    pub fn done(self) -> Result<()> {
        self.objects.delete(&self.held.manifest().key, self.held.version()).map(drop)
    }
}

impl Deref for Received {
    type Target = Held;

    fn deref(&self) -> &Held {
        &self.held
    }
}

impl Objects {
    /// Sets the next version of a key for the first who [receives](Self::receive) it. Gets do not find it, and it does not
    /// count among the versions that are kept.
    ///
    /// # Errors
    /// As for [`set`](Self::set).
    pub fn publish(&self, key: &str, tensors: &[TensorBytes<'_>]) -> Result<u64> {
        self.filled(key, tensors, true)?.commit()
    }

    /// Takes the oldest published version of a key that nobody is receiving, in the host tier.
    ///
    /// # Errors
    /// As for [`get`](Self::get): `retry` or `state` when there is none in time.
    pub fn receive(&self, key: &str, wait: Wait) -> Result<Received> {
        let held = self.receive_with(key, wait, &Get::default())?;
        Ok(Received { held, objects: self.clone() })
    }

    /// Begins a version for the first who [receives](Self::receive) it, to be filled by whoever has its memory mapped.
    ///
    /// # Errors
    /// As for [`begin`](Self::begin).
    pub fn begin_published(&self, key: &str, layout: &Layout, owner: Owner) -> Result<Filling> {
        self.check_open()?;
        check_name("object", key)?;
        Filling::new(self.clone(), key, layout, (Expected::Any, owner, true))
    }

    /// What [`receive`](Self::receive) gives, under the conditions of `get`, for whoever ends it by himself: a
    /// [`delete`](Self::delete) stands for [`Received::done`].
    ///
    /// # Errors
    /// As for [`receive`](Self::receive).
    pub fn receive_with(&self, key: &str, wait: Wait, get: &Get) -> Result<Held> {
        self.lease_when_there(key, Ask::Once, wait)?.hold(get)
    }

    /// Takes one of each key; which of them failed stands where they do. All share one wait.
    ///
    /// # Errors
    /// `input` for more than [`OBJECT_KEYS_MAX`](super::OBJECT_KEYS_MAX) keys; the first error when every key failed.
    pub fn receive_many(&self, keys: &[&str], wait: Wait) -> Result<Vec<Result<Received>>> {
        check_count(keys.len())?;
        let until = match wait {
            Wait::For(time) => Some(self.now().after(time)),
            Wait::No | Wait::Forever => None,
        };
        let left = || until.map_or(wait, |until| Wait::For(until.since(self.now())));
        super::many::unless_all_failed(keys.iter().map(|key| self.receive(key, left())).collect())
    }
}
