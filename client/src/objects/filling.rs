//! A version that is being filled.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use forebay_store::{Cause, Expected, FillingRange, Layout};

use super::calls::ObjectCommit;
use crate::client::Client;
use crate::error::Result;

/// A version of an object that is being filled: nobody sees it before its commit. Any number of threads fill it, each its own
/// ranges. Dropping it gives its memory back.
#[derive(Debug)]
pub struct ObjectFilling {
    client: Client,
    number: u64,
    key: String,
    layout: Layout,
    said: Mutex<ObjectCommit>,
    over: bool,
}

impl ObjectFilling {
    pub(super) fn new(client: Client, number: u64, key: &str, layout: &Layout) -> Self {
        let (key, layout) = (key.to_owned(), layout.clone());
        let said = Mutex::new(ObjectCommit { filling: number, ..ObjectCommit::default() });
        ObjectFilling { client, number, key, layout, said, over: false }
    }

    /// The key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What is filled.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(super) fn committed(mut self) {
        self.over = true;
    }

    pub(super) fn said(&self) -> ObjectCommit {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn say(&self, say: impl FnOnce(&mut ObjectCommit)) {
        say(&mut self.said.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Fills a part of a tensor: `bytes` from byte `offset` of it on.
    ///
    /// # Errors
    /// As [`forebay_store::Filling::write`].
    pub fn write(&self, tensor: &str, offset: u64, bytes: &[u8]) -> Result<()> {
        let found = self.layout.tensor(tensor)?;
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > found.bytes) {
            let written = format!("{} bytes at {offset}", bytes.len());
            let (tensor, limit) = (tensor.to_owned(), found.bytes);
            return Err(
                forebay_store::Error::from(Cause::TensorLength { tensor, found: written, limit }).into()
            );
        }
        self.client.connection.objects().fill(self.number, found.payload, found.offset + offset, bytes)
    }

    /// Fills a part of a memory class, whatever tensors lie there: `bytes` from byte `offset` of its payload on.
    ///
    /// # Errors
    /// As [`forebay_store::Filling::write_class`].
    pub fn write_class(&self, class: &str, offset: u64, bytes: &[u8]) -> Result<()> {
        let payload = self.layout.payload(class)?;
        self.client.connection.objects().fill(self.number, payload, offset, bytes)
    }

    /// Lends a part of a memory class to a device, which writes it where it lies: `bytes` from byte `offset` of its payload on. Nothing
    /// where the class lies in no memory that this process has mapped: [`write_class`](Self::write_class) is the way then.
    ///
    /// # Errors
    /// As [`forebay_store::Filling::write_class`].
    pub fn lend_class(&self, class: &str, offset: u64, bytes: u64) -> Result<Option<FillingRange>> {
        let payload = self.layout.payload(class)?;
        self.client.connection.objects().lend(self.number, payload, offset, bytes)
    }

    /// Says something of the version, for those who read it.
    pub fn metadata(&self, name: &str, value: &str) {
        self.say(|said| _ = said.metadata.insert(name.to_owned(), value.to_owned()));
    }

    /// The same for several.
    pub fn metadata_of(&self, metadata: &BTreeMap<String, String>) {
        metadata.iter().for_each(|(name, value)| self.metadata(name, value));
    }

    /// Expects something else of the newest version from now on: for a commit that was refused and shall be tried again.
    pub fn expect(&self, expected: Expected) {
        self.say(|said| said.expected = Some(expected));
    }

    /// Makes it the key's newest version, and gives its number.
    ///
    /// # Errors
    /// As [`forebay_store::Filling::commit`]; the filling stays then.
    pub fn commit(&mut self) -> Result<u64> {
        self.commit_numbered(None)
    }

    /// As [`commit`](Self::commit), under a number that was chosen.
    ///
    /// # Errors
    /// As [`forebay_store::Filling::commit_as`]; the filling stays then.
    pub fn commit_as(&mut self, version: u64) -> Result<u64> {
        self.commit_numbered(Some(version))
    }

    fn commit_numbered(&mut self, version: Option<u64>) -> Result<u64> {
        let version = self.client.connection.objects().commit(&[self.said()], version)?;
        self.over = true;
        Ok(version)
    }

    /// Gives it up because what it was to hold cannot be had, and tells everybody who waits for a version of the key why.
    ///
    /// # Errors
    /// `state` when the session that it was begun in is over: it was given up then.
    pub fn fail(mut self, reason: &str) -> Result<()> {
        self.over = true;
        self.client.connection.objects().abort(self.number, Some(reason))
    }
}

impl Drop for ObjectFilling {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        if let Err(error) = self.client.connection.objects().abort(self.number, None) {
            tracing::debug!(%error, key = self.key, "a version was not given up; it ends with this client");
        }
    }
}
