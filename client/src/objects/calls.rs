//! The seam between what callers hold of objects and where those are: plain calls, plain data.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use forebay_store::{
    Expected, FillingRange, Layout, Manifest, ObjectBytes, ObjectRef, Tier, Timestamp, Wait,
};

use crate::error::Result;

/// How a version begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// As one that gets find, when the key's newest is as expected.
    Kept(Expected),
    /// For the first who receives it.
    Published,
}

/// A version that is committed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectCommit {
    /// What it is called while it is filled.
    pub filling: u64,
    /// What is expected now; none for what was expected at the beginning.
    pub expected: Option<Expected>,
    /// What is said of it.
    pub metadata: BTreeMap<String, String>,
}

/// Which version is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhichObject {
    /// The newest.
    Latest,
    /// This one.
    Exact(u64),
    /// The newest, once it is this one or a later one.
    AtLeast(u64),
    /// The oldest that was published and that nobody is receiving.
    Once,
    /// Of several keys, the newest versions that were committed together.
    Together,
}

/// What is to be held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectAsk<'a> {
    /// One key, or several for [`WhichObject::Together`].
    pub keys: &'a [&'a str],
    /// Which version.
    pub which: WhichObject,
    /// How long to wait for it.
    pub wait: Wait,
    /// Where its bytes are to be.
    pub tier: Tier,
    /// The layout that it has to have, by its fingerprint.
    pub fingerprint: Option<u64>,
}

/// A version that is held.
#[derive(Clone, Debug)]
pub struct LeasedObject {
    /// What it is called by who holds it.
    pub lease: u64,
    /// What is known of it.
    pub manifest: Arc<Manifest>,
    /// Each payload where it lies; none for those that have to be [read](ObjectCalls::read).
    pub bytes: Vec<Option<ObjectBytes>>,
}

/// A wait for a version: see [`ObjectCalls::hold_async`].
pub type Holding = Pin<Box<dyn Future<Output = Result<Vec<LeasedObject>>> + Send>>;

/// One version, as a list shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectShown {
    /// Its key.
    pub key: String,
    /// Its number.
    pub version: u64,
    /// The bytes of all its payloads.
    pub bytes: u64,
    /// How many tensors it has.
    pub tensors: u32,
    /// Where its bytes are.
    pub tiers: Vec<Tier>,
    /// How many hold it.
    pub leases: u64,
    /// Whether it goes with the first who receives it.
    pub once: bool,
    /// When it was committed.
    pub created_at: Timestamp,
    /// What its writer said of it.
    pub metadata: BTreeMap<String, String>,
}

/// Where a version is to go. No number stands for the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is named for the call of `Objects` that it is")]
pub enum Relocation<'a> {
    Spill { key: &'a str, version: Option<u64> },
    Demote { key: &'a str, version: Option<u64> },
    Delete { key: &'a str, version: u64 },
    Reference { key: &'a str, version: u64 },
    Exchange { out: (&'a str, Option<u64>), into: (&'a str, Option<u64>) },
}

/// What came of a [`Relocation`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Relocated {
    /// The version that was moved; of an exchange, the one that went out.
    pub version: u64,
    /// Of a delete: whether it was there.
    pub there: bool,
    /// Of a reference.
    pub reference: Option<ObjectRef>,
    /// Of an exchange: the version that came in.
    pub into: u64,
    /// Of an exchange: whether both went on at once.
    pub overlapped: bool,
}

/// What one can ask of objects. Errors are as those of [`forebay_store::Objects`], and `state` for a number that is not (or no
/// longer) this holder's.
pub trait ObjectCalls: fmt::Debug + Send + Sync {
    /// Begins a version, and says what it is called until it is committed or given up.
    ///
    /// # Errors
    /// As for all.
    fn begin(&self, key: &str, layout: &Layout, beginning: Beginning) -> Result<u64>;

    /// Fills a part of a payload.
    ///
    /// # Errors
    /// As for all.
    fn fill(&self, filling: u64, payload: usize, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Lends a part of a payload to a device, which writes it where it lies; nothing where it can only be [filled](Self::fill).
    ///
    /// # Errors
    /// As for all.
    fn lend(&self, filling: u64, payload: usize, offset: u64, bytes: u64) -> Result<Option<FillingRange>>;

    /// Commits one version, under the number `version` if there is one, or several of several keys under one number. What fails
    /// stays.
    ///
    /// # Errors
    /// As for all.
    fn commit(&self, objects: &[ObjectCommit], version: Option<u64>) -> Result<u64>;

    /// Gives a version up, with a reason for those who wait for it or without.
    ///
    /// # Errors
    /// As for all.
    fn abort(&self, filling: u64, reason: Option<&str>) -> Result<()>;

    /// Holds versions, in the order of their keys.
    ///
    /// # Errors
    /// As for all.
    fn hold(&self, ask: &ObjectAsk<'_>) -> Result<Vec<LeasedObject>>;

    /// The same to come, on any async runtime, for one key. There is no time-out in it.
    ///
    /// # Errors
    /// As for all.
    fn hold_async(&self, ask: &ObjectAsk<'_>) -> Result<Holding>;

    /// Fills `buffer` from byte `offset` of a payload on.
    ///
    /// # Errors
    /// As for all.
    fn read(&self, lease: u64, payload: usize, offset: u64, buffer: &mut [u8]) -> Result<()>;

    /// Holds every byte of a version that is held against its checksum, where it lies.
    ///
    /// # Errors
    /// As for all; `corrupt` where they are others than were set.
    fn verify(&self, lease: u64) -> Result<()>;

    /// Removes a version that was received. It is held as before.
    ///
    /// # Errors
    /// As for all.
    fn done(&self, lease: u64) -> Result<()>;

    /// Lets go of a version. Waits for nobody.
    fn release(&self, lease: u64);

    /// Every version that can be had, by key and number.
    ///
    /// # Errors
    /// As for all.
    fn list(&self) -> Result<Vec<ObjectShown>>;

    /// The same of the keys that begin with `prefix`.
    ///
    /// # Errors
    /// As for all.
    fn list_of(&self, prefix: &str) -> Result<Vec<ObjectShown>> {
        let mut all = self.list()?;
        all.retain(|shown| shown.key.starts_with(prefix));
        Ok(all)
    }

    /// Moves a version between memory and disk, or away.
    ///
    /// # Errors
    /// As for all.
    fn relocate(&self, relocation: &Relocation<'_>) -> Result<Relocated>;
}
