//! Which versions there are, who holds them, and where their bytes are. What is here is decided under one lock, by plain calls;
//! no byte of an object moves here.
//!
//! Invariants
//! - The versions of a key only rise; a number is never used twice while the store knows the key.
//! - A version is seen whole or not at all: it comes with its manifest and a copy of all its bytes.
//! - A version with a lease stays, with its copies, until the last lease ends.
//! - The journal names no version that has no host copy in segments; and all members of a commit or none.
//! - Memory that another process was given is given to nobody else before the journal says that it has let go.

mod commit;
mod copies;
mod key;
mod loans;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::host::Journal;
use super::manifest::Manifest;
use super::version::Copies;
use crate::clock::Timestamp;
use crate::error::{Cause, Result};
use crate::schema::nearest;
use crate::sync::Event;

pub(super) use commit::Incoming;
use copies::{Parked, unnoted};
pub(super) use key::KeyState;
use key::Version;
pub(super) use key::{Ask, Strange, newest_as_text};
use loans::Loan;

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
    /// A mark on disk says that it was deleted.
    pub(super) marked: bool,
}

/// What came of a deletion.
#[derive(Debug)]
pub(super) enum Deleted {
    NotThere,
    /// Its file has to be marked first.
    NotMarked,
    Done,
}

#[derive(Debug, Default)]
pub(crate) struct Catalog {
    pub(super) keys: BTreeMap<String, KeyState>,
    leases: BTreeMap<u64, Lease>,
    leases_given: u64,
    gets: u64,
    pub(super) journal: Option<Journal>,
    /// What other processes were given.
    loans: BTreeMap<u64, Loan>,
    loans_given: u64,
    /// Memory that the journal does not yet say to be free.
    parked: Vec<Parked>,
    /// Versions that were deleted, and whose files may still be there.
    pub(super) deleted_files: BTreeSet<(String, u64)>,
}

impl Catalog {
    /// The state of a key, made where there is none.
    pub(super) fn key(&mut self, key: &str) -> &mut KeyState {
        if !self.keys.contains_key(key) {
            self.keys.insert(key.to_owned(), KeyState::default());
        }
        self.keys.entry(key.to_owned()).or_default()
    }

    /// Takes a version in that was there before this process. False when another of the same number is there, which stays.
    pub(super) fn recover(&mut self, manifest: Manifest, copies: Copies, once: bool) -> bool {
        let state = self.key(&manifest.key.clone());
        state.last = state.last.max(manifest.version);
        if let Some(there) = state.versions.get_mut(&manifest.version) {
            if *there.manifest != manifest {
                tracing::warn!(
                    key = manifest.key,
                    version = manifest.version,
                    "two copies of a version differ"
                );
                return false;
            }
            there.copies.host = there.copies.host.take().or(copies.host);
            there.copies.disk = there.copies.disk.take().or(copies.disk);
            return true;
        }
        state.versions.insert(manifest.version, Version::new(manifest, copies, once, 0));
        true
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

    /// Whether a version is there, to be had or still held.
    pub(super) fn has(&self, key: &str, version: u64) -> bool {
        self.keys.get(key).is_some_and(|state| state.versions.contains_key(&version))
    }

    pub(super) fn find(&self, key: &str, ask: Ask) -> Option<u64> {
        self.keys.get(key)?.find(ask)
    }

    /// The newest number under which these keys were committed together, all of which are there. Of one key its newest.
    pub(super) fn find_together(&self, keys: &[&str]) -> Option<u64> {
        let (first, others) = keys.split_first()?;
        let comes_with = |key: &str, number: u64, group: u64| {
            let found = self.keys.get(key).and_then(|state| state.visible_version(number));
            found.is_some_and(|version| version.manifest.group == Some(group))
        };
        let mut newest_first = self.keys.get(*first)?.visible().rev();
        let found = newest_first.find(|(number, version)| match (others, version.manifest.group) {
            ([], _) => true,
            (_, None) => false,
            (others, Some(group)) => others.iter().all(|key| comes_with(key, **number, group)),
        });
        found.map(|(number, _)| *number)
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
            Ask::Once => Cause::ObjectNotYet { key, wanted: state.last.saturating_add(1), newest },
            Ask::Latest => Cause::ObjectGone { key, wanted: state.last, newest },
        }
    }

    pub(super) fn version(&mut self, key: &str, version: u64) -> Option<&mut Version> {
        self.keys.get_mut(key)?.versions.get_mut(&version)
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

    /// Ends a lease, and gives what goes with it, and whom to tell once the catalog is let go: what was to be received may be
    /// the next one's.
    pub(super) fn release(&mut self, lease: u64, kept: usize) -> (Vec<Gone>, Option<Arc<Event>>) {
        let Some(Lease { key, version, receives, .. }) = self.leases.remove(&lease) else {
            return (Vec::new(), None);
        };
        if let Some(found) = self.version(&key, version) {
            found.leases -= 1;
            found.received &= !receives;
        }
        let changed = receives.then(|| self.key(&key).changed.clone());
        (self.retain(&key, kept), changed)
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
        let marked = gone
            .iter()
            .filter(|(_, version)| version.deleted && (version.marked || version.copies.disk.is_some()));
        self.deleted_files.extend(marked.map(|(number, _)| (key.to_owned(), *number)));
        let gone = gone.into_iter().map(|(version, held)| Gone {
            key: key.to_owned(),
            version,
            copies: held.copies,
            marked: held.marked,
        });
        let gone: Vec<Gone> = gone.collect();
        for Gone { key, version, copies, .. } in &gone {
            copies.host.iter().for_each(|copy| self.note_dropped(key, *version, copy));
        }
        gone
    }

    /// Deletes a version: nobody finds it any more, in the next process either. One that has a file, or may come to have one,
    /// has to be marked there before.
    pub(super) fn delete(&mut self, key: &str, version: u64, is_marked: bool) -> Result<Deleted> {
        let Catalog { keys, journal, .. } = self;
        let found = keys.get_mut(key).and_then(|state| state.versions.get_mut(&version));
        let Some(found) = found.filter(|found| !found.deleted) else { return Ok(Deleted::NotThere) };
        let has_file = found.moving || found.may_come || found.copies.disk.is_some();
        if has_file && !is_marked {
            return Ok(Deleted::NotMarked);
        }
        let stays = found.leases > 0 || has_file;
        if let Some(journal) = journal.as_mut().filter(|_| stays) {
            journal.delete_version(key, version).map_err(unnoted)?;
        }
        found.deleted = true;
        found.marked = is_marked;
        Ok(Deleted::Done)
    }

    /// Whether a mark beside the file of a version says something: it is deleted, and the file is there or may come.
    pub(super) fn needs_mark(&self, key: &str, version: u64) -> bool {
        let found = self.keys.get(key).and_then(|state| state.versions.get(&version));
        let has_file = |found: &Version| found.marked || found.moving || found.copies.disk.is_some();
        found.is_some_and(|found| found.deleted && has_file(found))
            || self.deleted_files.contains(&(key.to_owned(), version))
    }

    /// Takes in that a version was deleted before this process. False when it is not there.
    pub(in crate::object) fn was_deleted(&mut self, key: &str, version: u64) -> bool {
        self.number_was_used(key, version);
        self.version(key, version).map(|found| found.deleted = true).is_some()
    }

    /// Lets the versions go that were deleted, and that nobody holds.
    pub(super) fn retain_undeleted(&mut self) -> Vec<Gone> {
        let keys: Vec<String> = self.keys.keys().cloned().collect();
        keys.iter().flat_map(|key| self.retain(key, usize::MAX)).collect()
    }

    /// How many leases there are, and when the oldest was given.
    pub(super) fn leases(&self) -> (u64, Option<Timestamp>) {
        (self.leases.len() as u64, self.leases.values().map(|lease| lease.since).min())
    }

    /// The version whose host copy is to go to the disk next: of those that nobody holds the one whose bytes are least likely
    /// to be wanted, state of the optimizer before weights, and among equals the one that was not asked for the longest.
    pub(super) fn victim(&self, except: &BTreeSet<(String, u64)>) -> Option<(String, u64)> {
        let held =
            self.keys.iter().flat_map(|(key, state)| state.versions.iter().map(move |(n, v)| (key, n, v)));
        let idle = held.filter(|(.., v)| v.leases == 0 && !v.moving && !v.deleted && v.copies.host.is_some());
        let idle = idle.filter(|(key, number, _)| !except.contains(&((*key).clone(), **number)));
        let victim = idle.min_by_key(|(.., v)| (v.holds_weights(), v.used));
        victim.map(|(key, number, _)| (key.clone(), *number))
    }

    /// Forgets keys that were only ever waited for.
    pub(super) fn forget_idle_keys(&mut self) {
        self.keys
            .retain(|_, state| state.last > 0 || state.failures > 0 || Arc::strong_count(&state.changed) > 1);
    }
}
