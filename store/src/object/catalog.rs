//! Which versions there are, who holds them, and where their bytes are. What is here is decided under one lock, by plain calls;
//! no byte of an object moves here.
//!
//! Invariants
//! - The versions of a key only rise; a number is never used twice while the store knows the key.
//! - A version is seen whole or not at all: it comes with its manifest and a copy of all its bytes.
//! - A version with a lease stays, with its copies, until the last lease ends.
//! - The journal names no version that has no host copy in segments; and all members of a commit or none.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::filling::{Expected, conflict};
use super::host::{Entry, HostExtent, Journal};
use super::manifest::{Manifest, ManifestRecord};
use super::owner::Owner;
use super::version::{Copies, HostCopy, Tier};
use crate::clock::Timestamp;
use crate::error::{Cause, Result};
use crate::schema::nearest;
use crate::sync::Event;

/// A version that is about to be committed.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(super) manifest: Manifest,
    /// Whether the manifest's number was chosen; otherwise it gets the next.
    pub(super) numbered: bool,
    pub(super) expected: Expected,
    pub(super) once: bool,
    pub(super) copies: Copies,
}

/// Which version is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    Latest,
    Exact(u64),
    AtLeast(u64),
    /// The oldest that goes with the first who receives it, and that nobody is receiving.
    Once,
    /// This one, whichever way it goes.
    Any(u64),
}

/// One version.
#[derive(Debug)]
pub(super) struct Version {
    pub(super) manifest: Arc<Manifest>,
    pub(super) copies: Copies,
    pub(super) once: bool,
    /// When it was last asked for, counted in gets.
    used: u64,
    leases: usize,
    /// Somebody receives it, and nobody else may.
    received: bool,
    /// Somebody copies it from one tier to another.
    pub(super) moving: bool,
    /// It was deleted, and goes with its last lease.
    deleted: bool,
}

/// The versions of a key.
#[derive(Debug, Default)]
pub(super) struct KeyState {
    pub(super) versions: BTreeMap<u64, Version>,
    /// The greatest number that was ever used.
    last: u64,
    /// How many fillings were given up with a reason, and the reason of the last.
    pub(super) failures: u64,
    pub(super) failure: String,
    /// Versions whose files cannot be had, and why.
    strange: BTreeMap<u64, Strange>,
    pub(super) changed: Arc<Event>,
}

/// A file that stands where a version would, and is none that can be had.
#[derive(Clone, Debug)]
pub(super) enum Strange {
    /// It is not of the object layer.
    Foreign(PathBuf),
    /// It is, and is damaged at an offset.
    Damaged(PathBuf, u64, String),
}

impl Strange {
    fn cause(&self, key: &str, version: u64) -> Cause {
        match self.clone() {
            Strange::Foreign(path) => Cause::ObjectForeign { key: key.to_owned(), version, path },
            Strange::Damaged(path, offset, reason) => Cause::Corrupt { path, offset, reason },
        }
    }
}

/// Somebody who holds a version.
#[derive(Debug)]
struct Lease {
    key: String,
    version: u64,
    since: Timestamp,
    /// It is for the one who receives a version that goes with him.
    receives: bool,
}

/// A version that is gone, with what is to be done outside of the lock.
#[derive(Debug)]
pub(super) struct Gone {
    pub(super) key: String,
    pub(super) version: u64,
    pub(super) copies: Copies,
}

/// Memory of a process that has not said that it let go.
#[derive(Debug)]
struct Quarantined {
    owner: Owner,
    extents: Arc<Vec<HostExtent>>,
}

#[derive(Debug, Default)]
pub(crate) struct Catalog {
    pub(super) keys: BTreeMap<String, KeyState>,
    leases: BTreeMap<u64, Lease>,
    leases_given: u64,
    gets: u64,
    pub(super) journal: Option<Journal>,
    quarantined: Vec<Quarantined>,
}

impl KeyState {
    fn visible(&self) -> impl DoubleEndedIterator<Item = (&u64, &Version)> {
        self.versions.iter().filter(|(_, version)| !version.deleted && !version.once)
    }

    /// The newest version that can be had.
    pub(super) fn newest(&self) -> Option<u64> {
        self.visible().next_back().map(|(number, _)| *number)
    }

    fn find(&self, ask: Ask) -> Option<u64> {
        let newest = self.newest();
        match ask {
            Ask::Latest => newest,
            Ask::AtLeast(least) => newest.filter(|newest| *newest >= least),
            Ask::Exact(number) => self.visible().map(|(found, _)| *found).find(|found| *found == number),
            Ask::Once => {
                let waiting = |v: &Version| v.once && !v.received && !v.deleted;
                self.versions.iter().find(|(_, version)| waiting(version)).map(|(number, _)| *number)
            }
            Ask::Any(number) => self.versions.get(&number).filter(|v| !v.deleted).map(|_| number),
        }
    }
}

/// A version as text, for messages.
pub(super) fn newest_as_text(newest: Option<u64>) -> String {
    newest.map_or_else(|| "no version".to_owned(), |version| format!("version {version}"))
}

impl Catalog {
    /// The state of a key, made where there is none.
    pub(super) fn key(&mut self, key: &str) -> &mut KeyState {
        if !self.keys.contains_key(key) {
            self.keys.insert(key.to_owned(), KeyState::default());
        }
        self.keys.entry(key.to_owned()).or_default()
    }

    /// Takes a version in that was there before this process, or a number that was used.
    pub(super) fn recover(&mut self, manifest: Manifest, copies: Copies, once: bool) {
        let state = self.key(&manifest.key.clone());
        state.last = state.last.max(manifest.version);
        if let Some(there) = state.versions.get_mut(&manifest.version) {
            if *there.manifest != manifest {
                tracing::warn!(
                    key = manifest.key,
                    version = manifest.version,
                    "two copies of a version differ"
                );
                return;
            }
            there.copies.host = there.copies.host.take().or(copies.host);
            there.copies.disk = there.copies.disk.take().or(copies.disk);
            return;
        }
        state.versions.insert(manifest.version, Version::new(manifest, copies, once, 0));
    }

    /// Notes a file that stands where a version would.
    pub(super) fn note_strange(&mut self, key: &str, version: u64, strange: Strange) {
        self.number_was_used(key, version);
        self.key(key).strange.insert(version, strange);
    }

    pub(super) fn number_was_used(&mut self, key: &str, version: u64) {
        let state = self.key(key);
        state.last = state.last.max(version);
    }

    /// Goes on with a journal of what was taken in.
    pub(super) fn begin_journal(&mut self, journal: Journal) {
        self.journal = Some(journal);
        if let Err(error) = self.compact_journal() {
            tracing::error!(%error, "the journal of the host tier is given up: its objects end with this process");
            self.journal.take().into_iter().for_each(Journal::remove);
        }
    }

    /// Whether a version is there, to be had or still held.
    pub(super) fn has(&self, key: &str, version: u64) -> bool {
        self.keys.get(key).is_some_and(|state| state.versions.contains_key(&version))
    }

    pub(super) fn find(&self, key: &str, ask: Ask) -> Option<u64> {
        self.keys.get(key)?.find(ask)
    }

    /// Why a version cannot be had.
    pub(super) fn missing(&self, key: &str, ask: Ask) -> Cause {
        let Some(state) = self.keys.get(key).filter(|state| state.last > 0) else {
            let known = self.keys.iter().filter(|(_, state)| state.last > 0).map(|(key, _)| &**key);
            return Cause::Unknown { what: "object", name: key.to_owned(), close: nearest(key, known) };
        };
        let asked = |(version, _): &(&u64, &Strange)| match ask {
            Ask::Exact(wanted) | Ask::Any(wanted) => **version == wanted,
            _ => state.versions.is_empty(), // all that there is
        };
        if let Some((version, strange)) = state.strange.iter().rev().find(asked) {
            return strange.cause(key, *version);
        }
        let (key, newest) = (key.to_owned(), newest_as_text(state.newest()));
        match ask {
            Ask::Exact(wanted) | Ask::Any(wanted) if wanted <= state.last => {
                Cause::ObjectGone { key, wanted, newest }
            }
            Ask::Exact(wanted) | Ask::AtLeast(wanted) | Ask::Any(wanted) => {
                Cause::ObjectNotYet { key, wanted, newest }
            }
            Ask::Once => Cause::ObjectNotYet { key, wanted: state.last + 1, newest },
            Ask::Latest => Cause::ObjectGone { key, wanted: state.last, newest },
        }
    }

    pub(super) fn version(&mut self, key: &str, version: u64) -> Option<&mut Version> {
        self.keys.get_mut(key)?.versions.get_mut(&version)
    }

    /// Gives every version its number, or says why one cannot be had. Nothing is changed.
    fn number(&self, incoming: &[Incoming]) -> Result<Vec<u64>> {
        let mut numbers: Vec<u64> = Vec::with_capacity(incoming.len());
        for (at, member) in incoming.iter().enumerate() {
            let key = &member.manifest.key;
            let state = self.keys.get(key);
            if incoming[..at].iter().any(|other| other.manifest.key == *key) {
                return Err(
                    Cause::Argument { what: "commit", reason: format!("{key:?} is named twice") }.into()
                );
            }
            let newest = state.and_then(KeyState::newest);
            let meant = match member.expected {
                Expected::Any => true,
                Expected::Absent => newest.is_none(),
                Expected::Version(version) => newest == Some(version),
            };
            if !meant {
                return Err(conflict(key, member.expected, newest).into());
            }
            let last = state.map_or(0, |state| state.last);
            numbers.push(if member.numbered {
                chosen(key, member.manifest.version, last, self)?
            } else {
                last + 1
            });
        }
        Ok(numbers)
    }

    /// Makes versions the newest of their keys, all or none.
    pub(super) fn commit(&mut self, incoming: Vec<Incoming>) -> Result<Vec<u64>> {
        let numbers = self.number(&incoming)?;
        self.insert(incoming, &numbers)?;
        Ok(numbers)
    }

    /// As [`commit`](Self::commit), all under one number: the least that is greater than any of theirs.
    pub(super) fn commit_as_one(&mut self, incoming: Vec<Incoming>) -> Result<u64> {
        let numbers = self.number(&incoming)?;
        let number = numbers.iter().copied().max().unwrap_or(1);
        self.insert(incoming, &vec![number; numbers.len()])?;
        Ok(number)
    }

    fn insert(&mut self, incoming: Vec<Incoming>, numbers: &[u64]) -> Result<()> {
        let mut incoming = incoming;
        incoming.iter_mut().zip(numbers).for_each(|(member, number)| member.manifest.version = *number);
        if let Some(journal) = &mut self.journal {
            let entries: Vec<_> = incoming
                .iter()
                .filter_map(|member| {
                    let entry = entry(&member.manifest, member.copies.host.as_deref()?, member.once)?;
                    Some((&member.manifest.layout, entry))
                })
                .collect();
            // All or none: after a crash nobody sees a part of them.
            if entries.len() == incoming.len() {
                journal
                    .commit(&entries)
                    .map_err(|e| Cause::io("write", "the journal of the host tier", e))?;
            }
        }
        for Incoming { manifest, copies, once, .. } in incoming {
            self.gets += 1;
            let used = self.gets;
            let state = self.key(&manifest.key.clone());
            state.last = state.last.max(manifest.version);
            state.versions.insert(manifest.version, Version::new(manifest, copies, once, used));
        }
        Ok(())
    }

    /// Gives a lease on a version.
    pub(super) fn lease(&mut self, key: &str, version: u64, now: Timestamp, receives: bool) -> Option<u64> {
        self.gets += 1;
        let used = self.gets;
        let found = self.version(key, version)?;
        found.leases += 1;
        found.used = used;
        found.received |= receives;
        self.leases_given += 1;
        self.leases.insert(self.leases_given, Lease { key: key.to_owned(), version, since: now, receives });
        Some(self.leases_given)
    }

    /// Ends a lease, and gives what goes with it.
    pub(super) fn release(&mut self, lease: u64, kept: usize) -> Vec<Gone> {
        let Some(Lease { key, version, receives, .. }) = self.leases.remove(&lease) else {
            return Vec::new();
        };
        if let Some(found) = self.version(&key, version) {
            found.leases -= 1;
            found.received &= !receives;
        }
        if receives {
            self.key(&key).changed.notify(usize::MAX); // it may be the next one's
        }
        self.retain(&key, kept)
    }

    /// Lets the versions of a key go that nobody holds and that are deleted, or older than the newest `kept`.
    pub(super) fn retain(&mut self, key: &str, kept: usize) -> Vec<Gone> {
        let Some(state) = self.keys.get_mut(key) else { return Vec::new() };
        let oldest_kept = state.visible().rev().take(kept).last().map_or(0, |(number, _)| *number);
        let over = |number: &u64, version: &mut Version| {
            let old = *number < oldest_kept && !version.once;
            version.leases == 0 && !version.moving && (version.deleted || old)
        };
        let gone: Vec<(u64, Version)> = state.versions.extract_if(.., over).collect();
        let gone = gone.into_iter().map(|(version, held)| Gone {
            key: key.to_owned(),
            version,
            copies: held.copies,
        });
        let gone: Vec<Gone> = gone.collect();
        for Gone { key, version, copies } in &gone {
            if copies.host.is_some() {
                self.note_dropped(key, *version);
            }
        }
        gone
    }

    /// Marks a version as deleted: nobody finds it any more. False when there is none.
    pub(super) fn mark_deleted(&mut self, key: &str, version: u64) -> bool {
        let Some(found) = self.version(key, version).filter(|found| !found.deleted) else { return false };
        found.deleted = true;
        true
    }

    /// A version has another copy now.
    pub(super) fn add_host(&mut self, key: &str, version: u64, copy: Arc<HostCopy>) -> Result<()> {
        let Catalog { keys, journal, .. } = self;
        let Some(found) = keys.get_mut(key).and_then(|state| state.versions.get_mut(&version)) else {
            return Ok(());
        };
        if let (Some(journal), Some(entry)) = (journal, entry(&found.manifest, &copy, found.once)) {
            let noted = journal.commit(&[(&found.manifest.layout, entry)]);
            noted.map_err(|e| Cause::io("write", "the journal of the host tier", e))?;
        }
        found.copies.host = Some(copy);
        Ok(())
    }

    /// A version has no host copy any more.
    pub(super) fn take_host(&mut self, key: &str, version: u64) -> Option<Arc<HostCopy>> {
        let copy = self.version(key, version)?.copies.host.take();
        if copy.is_some() {
            self.note_dropped(key, version);
        }
        copy
    }

    /// No version has a host copy any more, and the journal ends. Versions that are nowhere else go.
    pub(super) fn take_all_host(&mut self) -> Vec<Copies> {
        self.journal.take().into_iter().for_each(Journal::remove);
        let mut taken = Vec::new();
        for state in self.keys.values_mut() {
            let versions = state.versions.values_mut();
            taken.extend(versions.map(|version| Copies { host: version.copies.host.take(), disk: None }));
            state.versions.retain(|_, version| version.copies.disk.is_some());
        }
        taken
    }

    /// What the journal says and is not true any more would give memory away twice: where it cannot be told, there is no
    /// journal.
    fn note_dropped(&mut self, key: &str, version: u64) {
        let Some(journal) = &mut self.journal else { return };
        if let Err(error) = journal.drop_version(key, version)
            && let Err(again) = self.compact_journal()
        {
            tracing::error!(%error, %again, "the journal of the host tier is given up: its objects end with this process");
            self.journal.take().into_iter().for_each(Journal::remove);
        }
    }

    /// Writes the journal anew when most of it is over.
    pub(super) fn tend_journal(&mut self) {
        if self.journal.as_ref().is_some_and(Journal::is_mostly_over)
            && let Err(error) = self.compact_journal()
        {
            tracing::warn!(%error, "the journal of the host tier could not be written anew");
        }
    }

    fn compact_journal(&mut self) -> std::io::Result<()> {
        let versions = self.keys.values().flat_map(|state| state.versions.values());
        let entries: Vec<(&Arc<Manifest>, Entry)> = versions
            .filter_map(|v| Some((&v.manifest, entry(&v.manifest, v.copies.host.as_deref()?, v.once)?)))
            .collect();
        let last = self.keys.iter().map(|(key, state)| (key.clone(), state.last)).collect();
        let objects = entries.iter().map(|(manifest, entry)| (&manifest.layout, entry));
        self.journal.as_mut().map_or(Ok(()), |journal| journal.compact(objects, &last))
    }

    /// Keeps memory out of use until its owner has ended.
    pub(super) fn quarantine(&mut self, owner: Owner, extents: Arc<Vec<HostExtent>>) {
        self.quarantined.push(Quarantined { owner, extents });
    }

    /// Lets go of the memory of owners that have ended.
    pub(super) fn end_quarantines(&mut self) -> Vec<Arc<Vec<HostExtent>>> {
        let over = self.quarantined.extract_if(.., |held| held.owner.may_be_trusted_gone());
        over.map(|held| held.extents).collect()
    }

    pub(super) fn quarantine_bytes(&self) -> u64 {
        self.quarantined.iter().flat_map(|held| held.extents.iter()).map(HostExtent::bytes).sum()
    }

    /// How many leases there are, and when the oldest was given.
    pub(super) fn leases(&self) -> (u64, Option<Timestamp>) {
        (self.leases.len() as u64, self.leases.values().map(|lease| lease.since).min())
    }

    /// The version whose host copy is to go to the disk next: of those that nobody holds the one whose bytes are least likely
    /// to be wanted, state of the optimizer before weights, and among equals the one that was not asked for the longest.
    pub(super) fn victim(&self) -> Option<(String, u64)> {
        let held =
            self.keys.iter().flat_map(|(key, state)| state.versions.iter().map(move |(n, v)| (key, n, v)));
        let idle = held.filter(|(.., v)| v.leases == 0 && !v.moving && !v.deleted && v.copies.host.is_some());
        let victim = idle.min_by_key(|(.., v)| (v.holds_weights(), v.used));
        victim.map(|(key, number, _)| (key.clone(), *number))
    }

    /// Forgets keys that were only ever waited for.
    pub(super) fn forget_idle_keys(&mut self) {
        self.keys
            .retain(|_, state| state.last > 0 || state.failures > 0 || Arc::strong_count(&state.changed) > 1);
    }
}

impl Version {
    fn new(manifest: Manifest, copies: Copies, once: bool, used: u64) -> Self {
        Version {
            manifest: Arc::new(manifest),
            copies,
            once,
            used,
            leases: 0,
            received: false,
            moving: false,
            deleted: false,
        }
    }

    pub(super) fn is_deleted(&self) -> bool {
        self.deleted
    }

    pub(super) fn leases(&self) -> usize {
        self.leases
    }

    pub(super) fn tiers(&self) -> Vec<Tier> {
        self.copies.tiers()
    }

    fn holds_weights(&self) -> bool {
        self.manifest.layout.payloads().iter().any(|payload| payload.class == "weights")
    }
}

/// What the journal says of a host copy; nothing of one that lies in heap memory.
fn entry(manifest: &Manifest, host: &HostCopy, once: bool) -> Option<Entry> {
    Some(Entry { manifest: ManifestRecord::of(manifest), places: host.places()?, once })
}

/// A number that a caller chose, if it can be used.
fn chosen(key: &str, version: u64, last: u64, catalog: &Catalog) -> Result<u64> {
    if version > last {
        return Ok(version);
    }
    if catalog.has(key, version) {
        return Err(Cause::Exists { what: "object", name: format!("{key} version {version}") }.into());
    }
    let (expected, found) = (format!("a version above {last}"), format!("version {last}"));
    Err(Cause::ObjectConflict { key: key.to_owned(), expected, found }.into())
}
