//! What one holder has of the objects of a store of this process: versions that it fills and versions that it holds, by number.
//!
//! An embedded client is one holder; a server has one for each session, so that nobody can touch what is another's. Dropping it
//! gives everything back. Its lock is held for a look-up, never while bytes move.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_store::{
    Filling, FillingRange, Get, Held, Kind, Layout, OBJECT_KEYS_MAX, ObjectInfo, Objects, Owner,
    ProcessHandle, Randomness, Store, SystemRandomness, Wait, Which,
};

use super::calls::{
    Beginning, Holding, LeasedObject, ObjectAsk, ObjectCalls, ObjectCommit, ObjectShown, Relocated,
    Relocation, WhichObject,
};
use crate::error::{Error, Result};

/// How many versions one holder fills at a time.
const FILLINGS_MAX: usize = 1024;

/// What one holder has of a store's objects.
#[derive(Debug)]
pub struct KeptObjects {
    store: Store,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    fillings: HashMap<u64, Arc<Filling>>,
    leases: HashMap<u64, Arc<Held>>,
}

fn lock(inner: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    inner.lock().unwrap_or_else(PoisonError::into_inner) // whoever panicked left whole entries
}

impl Inner {
    fn number(&mut self) -> u64 {
        self.next = self.next.wrapping_add(1);
        self.next
    }
}

fn keep_all(inner: &mut Inner, held: Vec<Held>) -> Result<Vec<u64>> {
    if inner.leases.len() + held.len() > OBJECT_KEYS_MAX {
        return Err(too_many("versions are held", OBJECT_KEYS_MAX));
    }
    let keep = |held| {
        let number = inner.number();
        inner.leases.insert(number, Arc::new(held));
        number
    };
    Ok(held.into_iter().map(keep).collect())
}

fn too_many(what: &str, most: usize) -> Error {
    Error::new(Kind::Capacity, "Objects", format!("{most} {what} already by this client; let go of some"))
}

fn unknown(what: &str, number: u64) -> Error {
    let message = format!("{what} {number} is over, or another client's; begin anew");
    Error::new(Kind::State, "ObjectOver", message)
}

fn are_different(keys: &[&str]) -> bool {
    let mut seen = HashSet::with_capacity(keys.len());
    keys.iter().all(|key| seen.insert(*key))
}

/// Takes over what another process has filled.
fn take_over(filling: &Filling, sums: &[Vec<u32>]) -> Result<()> {
    let payloads = filling.layout().payloads();
    if sums.len() != payloads.len() {
        let message = format!("checksums of {} payloads for {} of a version", sums.len(), payloads.len());
        return Err(Error::input("Argument", message));
    }
    let mut each = payloads.iter().zip(sums);
    Ok(each.try_for_each(|(payload, sums)| filling.filled_elsewhere_as(&payload.class, sums))?)
}

/// What is asked of the store itself.
fn get_of(ask: &ObjectAsk<'_>, owner: Owner) -> Get {
    Get::default().tier(ask.tier).owner(owner)
}

fn which_of(version: Option<u64>) -> Which {
    version.map_or(Which::Latest, Which::Exact)
}

impl KeptObjects {
    /// A holder of nothing yet. Its numbers begin anywhere, so that one of an earlier holder is nobody's here.
    pub fn new(store: Store) -> Self {
        let inner = Inner { next: SystemRandomness.next_u64(), ..Inner::default() };
        KeptObjects { store, inner: Arc::new(Mutex::new(inner)) }
    }

    /// The objects of the store.
    ///
    /// # Errors
    /// As [`Store::objects`].
    pub fn objects(&self) -> Result<Objects> {
        Ok(self.store.objects()?)
    }

    /// A forked child is refused before the lock is touched: nobody may be there to let it go.
    fn inner(&self) -> Result<MutexGuard<'_, Inner>> {
        self.store.check_process()?;
        Ok(lock(&self.inner))
    }

    /// Gives everything back. What comes later is kept as before.
    pub fn give_back(&self) {
        let Ok(mut inner) = self.inner() else { return }; // a child holds nothing
        let all = (std::mem::take(&mut inner.fillings), std::mem::take(&mut inner.leases));
        drop(inner);
        drop(all); // with nothing locked: it takes the locks of the store
    }

    /// A version that it fills.
    ///
    /// # Errors
    /// `state` when it is not this holder's.
    pub fn filling(&self, number: u64) -> Result<Arc<Filling>> {
        self.inner()?.fillings.get(&number).cloned().ok_or_else(|| unknown("filling", number))
    }

    /// A version that it holds.
    ///
    /// # Errors
    /// `state` when it is not this holder's.
    pub fn held(&self, number: u64) -> Result<Arc<Held>> {
        self.inner()?.leases.get(&number).cloned().ok_or_else(|| unknown("lease", number))
    }

    /// Begins a version that `owner` fills.
    ///
    /// # Errors
    /// As [`Objects::begin`]; `capacity` when it fills too many.
    pub fn begin_for(&self, key: &str, layout: &Layout, beginning: Beginning, owner: Owner) -> Result<u64> {
        if self.inner()?.fillings.len() >= FILLINGS_MAX {
            return Err(too_many("versions are being filled", FILLINGS_MAX));
        }
        let objects = self.objects()?;
        let filling = match beginning {
            Beginning::Kept(expected) => objects.begin_for(key, expected, layout, owner)?,
            Beginning::Published => objects.begin_published(key, layout, owner)?,
        };
        let mut inner = self.inner()?;
        if inner.fillings.len() >= FILLINGS_MAX {
            drop(inner); // others were quicker
            return Err(too_many("versions are being filled", FILLINGS_MAX));
        }
        let number = inner.number();
        inner.fillings.insert(number, Arc::new(filling));
        Ok(number)
    }

    /// Commits versions, each with the checksums of its payloads where another process has filled it through mappings of its own.
    ///
    /// # Errors
    /// As [`Filling::commit`]; `input` for a number that is meant for several, and for checksums of something else.
    pub fn commit_filled(
        &self,
        objects: &[(ObjectCommit, Option<Vec<Vec<u32>>>)],
        version: Option<u64>,
    ) -> Result<u64> {
        let filling = |(commit, _): &(ObjectCommit, _)| self.filling(commit.filling);
        let fillings: Vec<Arc<Filling>> = objects.iter().map(filling).collect::<Result<_>>()?;
        for (filling, (commit, filled)) in fillings.iter().zip(objects) {
            commit.expected.into_iter().for_each(|expected| filling.expect(expected));
            commit.metadata.iter().try_for_each(|(name, value)| filling.metadata(name, value))?;
            filled.iter().try_for_each(|sums| take_over(filling, sums))?;
        }
        let version = match (&*fillings, version) {
            ([one], None) => one.commit()?,
            ([one], Some(version)) => one.commit_as(version)?,
            (several, None) => {
                let several: Vec<&Filling> = several.iter().map(|filling| &**filling).collect();
                self.objects()?.commit_together(&several)?
            }
            (_, Some(_)) => {
                let message = "versions that are committed together have a number of their own; name none";
                return Err(Error::input("Argument", message));
            }
        };
        let mut inner = self.inner()?;
        objects.iter().for_each(|(commit, _)| _ = inner.fillings.remove(&commit.filling));
        Ok(version)
    }

    /// Holds what was got, all or none.
    ///
    /// # Errors
    /// `capacity` when it holds too many.
    pub fn keep_all(&self, held: Vec<Held>) -> Result<Vec<u64>> {
        keep_all(&mut *self.inner()?, held)
    }

    /// Gets one of the versions that are asked for, where it is there.
    ///
    /// # Errors
    /// As [`Objects::get_with`].
    pub fn get(&self, ask: &ObjectAsk<'_>, owner: Owner) -> Result<Vec<Held>> {
        let (objects, get) = (self.objects()?, get_of(ask, owner));
        let one = |key: &str| match ask.which {
            WhichObject::Latest | WhichObject::Together => objects.get_with(key, Which::Latest, &get),
            WhichObject::Exact(version) => objects.get_with(key, Which::Exact(version), &get),
            WhichObject::AtLeast(least) => objects.get_with(key, Which::AtLeast(least, ask.wait), &get),
            WhichObject::Once => objects.receive_with(key, ask.wait, &get),
        };
        let held = match (ask.which, ask.keys) {
            (WhichObject::Together, keys) if !are_different(keys) => {
                return Err(Error::input("Argument", "a key is named twice; name each once"));
            }
            (WhichObject::Together, keys) => objects.get_together(keys, &get)?,
            (_, [key]) => vec![one(key)?],
            (_, keys) => {
                let message =
                    format!("{} keys in a call for one; ask for them together or each by itself", keys.len());
                return Err(Error::input("Argument", message));
            }
        };
        held.iter().try_for_each(|held| check_layout(held, ask.fingerprint))?;
        Ok(held)
    }

    /// Lets go of a version. Of one that it does not hold, `process` lets go of what it was given of it by an earlier holder, in the
    /// segments of that folder.
    pub fn release_mapped(&self, lease: u64, process: &ProcessHandle, folder: &Path, places: &[(u32, u64)]) {
        if self.held(lease).is_ok() {
            return self.release(lease);
        }
        if let Ok(objects) = self.objects()
            && objects.segment_folder() == Some(folder)
            && !objects.let_go_of(process, places)
        {
            tracing::debug!(?process, ?places, "a process let go of what it was not given");
        }
    }

    /// What one is, as its holder sees it.
    fn leased(lease: u64, held: &Arc<Held>) -> LeasedObject {
        let payloads = 0..held.manifest().layout.payloads().len();
        let bytes = payloads.map(|payload| held.payload_bytes(payload)).collect();
        LeasedObject { lease, manifest: held.manifest_shared(), bytes }
    }
}

/// Refuses a version of another layout than was meant.
///
/// # Errors
/// `input` with both fingerprints.
pub(crate) fn check_layout(held: &Held, fingerprint: Option<u64>) -> Result<()> {
    let found = held.manifest().layout.fingerprint();
    match fingerprint.filter(|meant| *meant != found) {
        None => Ok(()),
        Some(meant) => {
            let (key, version) = (&held.manifest().key, held.version());
            let message = format!(
                "object {key:?} version {version} has a layout with the fingerprint {found:016x}, and {meant:016x} is meant"
            );
            Err(Error::input("LayoutMismatch", message))
        }
    }
}

/// How a list shows a version.
pub(crate) fn shown(info: ObjectInfo) -> ObjectShown {
    let manifest = &info.manifest;
    ObjectShown {
        key: manifest.key.clone(),
        version: manifest.version,
        bytes: manifest.bytes(),
        tensors: u32::try_from(manifest.layout.tensors().len()).unwrap_or(u32::MAX),
        tiers: info.tiers,
        leases: info.leases as u64,
        once: info.once,
        created_at: manifest.created_at,
        metadata: manifest.metadata.clone(),
    }
}

impl ObjectCalls for KeptObjects {
    fn begin(&self, key: &str, layout: &Layout, beginning: Beginning) -> Result<u64> {
        self.begin_for(key, layout, beginning, Owner::Here)
    }

    fn fill(&self, filling: u64, payload: usize, offset: u64, bytes: &[u8]) -> Result<()> {
        let filling = self.filling(filling)?;
        let class = filling.layout().payloads().get(payload).map(|payload| payload.class.clone());
        let class = class.ok_or_else(|| unknown("payload", payload as u64))?;
        Ok(filling.write_class(&class, offset, bytes)?)
    }

    fn lend(&self, filling: u64, payload: usize, offset: u64, bytes: u64) -> Result<Option<FillingRange>> {
        let filling = self.filling(filling)?;
        let class = filling.layout().payloads().get(payload).map(|payload| payload.class.clone());
        let class = class.ok_or_else(|| unknown("payload", payload as u64))?;
        Ok(filling.lend_class(&class, offset, bytes)?)
    }

    fn commit(&self, objects: &[ObjectCommit], version: Option<u64>) -> Result<u64> {
        let objects: Vec<_> = objects.iter().map(|commit| (commit.clone(), None)).collect();
        self.commit_filled(&objects, version)
    }

    fn abort(&self, filling: u64, reason: Option<&str>) -> Result<()> {
        let given_up = self.inner()?.fillings.remove(&filling).ok_or_else(|| unknown("filling", filling))?;
        given_up.give_up(reason); // its memory goes with whoever is filling a part of it now
        Ok(())
    }

    fn hold(&self, ask: &ObjectAsk<'_>) -> Result<Vec<LeasedObject>> {
        let leases = self.keep_all(self.get(ask, Owner::Here)?)?;
        leases.into_iter().map(|lease| Ok(Self::leased(lease, &self.held(lease)?))).collect()
    }

    fn hold_async(&self, ask: &ObjectAsk<'_>) -> Result<Holding> {
        let (objects, get) = (self.objects()?, get_of(ask, Owner::Here));
        let (inner, fingerprint) = (self.inner.clone(), ask.fingerprint);
        let coming = match (ask.which, ask.keys) {
            (WhichObject::AtLeast(least), [key]) => objects.get_async(key, least, get),
            (WhichObject::Once, [key]) => objects.receive_async(key, get),
            _ => {
                let now = self.hold(&ObjectAsk { wait: Wait::No, ..ask.clone() });
                return Ok(Box::pin(std::future::ready(now)));
            }
        };
        Ok(Box::pin(async move {
            let held = coming.await?;
            check_layout(&held, fingerprint)?;
            let leases = keep_all(&mut lock(&inner), vec![held])?;
            let held =
                |lease: u64| lock(&inner).leases.get(&lease).cloned().ok_or_else(|| unknown("lease", lease));
            leases.into_iter().map(|lease| Ok(Self::leased(lease, &held(lease)?))).collect()
        }))
    }

    fn read(&self, lease: u64, payload: usize, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let held = self.held(lease)?;
        let class = held.manifest().layout.payloads().get(payload).map(|payload| payload.class.clone());
        let class = class.ok_or_else(|| unknown("payload", payload as u64))?;
        Ok(held.read_class(&class, offset, buffer)?)
    }

    fn verify(&self, lease: u64) -> Result<()> {
        Ok(self.held(lease)?.verify()?)
    }

    fn done(&self, lease: u64) -> Result<()> {
        let held = self.held(lease)?;
        self.objects()?.delete(&held.manifest().key, held.version())?;
        Ok(())
    }

    fn release(&self, lease: u64) {
        let Ok(mut inner) = self.inner() else { return };
        let released = inner.leases.remove(&lease);
        drop(inner);
        released.iter().for_each(|held| held.let_go()); // the version goes with whoever reads it now
    }

    fn list(&self) -> Result<Vec<ObjectShown>> {
        Ok(self.objects()?.list().into_iter().map(shown).collect())
    }

    fn relocate(&self, relocation: &Relocation<'_>) -> Result<Relocated> {
        let (objects, none) = (self.objects()?, Relocated::default());
        Ok(match *relocation {
            Relocation::Spill { key, version } => {
                Relocated { version: objects.spill(key, which_of(version))?, ..none }
            }
            Relocation::Demote { key, version } => {
                Relocated { version: objects.demote(key, which_of(version))?, ..none }
            }
            Relocation::Delete { key, version } => {
                Relocated { version, there: objects.delete(key, version)?, ..none }
            }
            Relocation::Reference { key, version } => {
                Relocated { version, reference: Some(objects.reference(key, version)?), ..none }
            }
            Relocation::Exchange { out, into } => {
                let done = objects.exchange((out.0, which_of(out.1)), (into.0, which_of(into.1)))?;
                Relocated { version: done.out, into: done.into, overlapped: done.overlapped, ..none }
            }
        })
    }
}
