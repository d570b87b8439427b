//! Commits: which number a version gets, and whether it may have it.

use xxhash_rust::xxh3::Xxh3Default;

use super::super::manifest::Manifest;
use super::super::set::{Expected, conflict};
use super::super::version::Copies;
use super::copies::{entry, unnoted};
use super::{Catalog, KeyState, Version};
use crate::error::{Cause, Result};

/// A version that is about to be committed.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(in crate::object) manifest: Manifest,
    /// Whether the manifest's number was chosen; otherwise it gets the next.
    pub(in crate::object) numbered: bool,
    pub(in crate::object) expected: Expected,
    pub(in crate::object) once: bool,
    pub(in crate::object) copies: Copies,
}

impl Catalog {
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
                last.checked_add(1).filter(|next| *next < u64::MAX).ok_or_else(|| no_number(key, last))?
            });
        }
        Ok(numbers)
    }

    /// Makes versions the newest of their keys, all or none.
    pub(in crate::object) fn commit(&mut self, incoming: Vec<Incoming>) -> Result<Vec<u64>> {
        let numbers = self.number(&incoming)?;
        self.insert(incoming, &numbers)?;
        Ok(numbers)
    }

    /// As [`commit`](Self::commit), all under one number: the least that is greater than any of theirs. Each is told which others
    /// it came with, for a key that goes its own way may come to have versions of the same numbers.
    pub(in crate::object) fn commit_as_one(&mut self, incoming: Vec<Incoming>) -> Result<u64> {
        let numbers = self.number(&incoming)?;
        let number = numbers.iter().copied().max().unwrap_or(1);
        let mut incoming = incoming;
        if incoming.len() > 1 {
            let group = Some(group_of(&incoming, number));
            incoming.iter_mut().for_each(|member| member.manifest.group = group);
        }
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
            let noted = if entries.len() == incoming.len() {
                journal.commit(&entries)
            } else {
                let mut members = incoming.iter().map(|member| &member.manifest);
                members.try_for_each(|manifest| journal.use_number(&manifest.key, manifest.version))
            };
            noted.map_err(unnoted)?;
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
}

/// What names a commit of several: its members, their number, and when it was. No key has a number twice.
fn group_of(members: &[Incoming], number: u64) -> u64 {
    let mut hash = Xxh3Default::new();
    for Incoming { manifest, .. } in members {
        hash.update(&(manifest.key.len() as u64).to_le_bytes());
        hash.update(manifest.key.as_bytes());
        hash.update(&manifest.created_at.0.to_le_bytes());
    }
    hash.update(&number.to_le_bytes());
    hash.digest()
}

/// There is no number that could come next.
fn no_number(key: &str, version: u64) -> Cause {
    let reason = format!("no version can follow {version} of {key:?}; choose a lower number, or another key");
    Cause::Argument { what: "version", reason }
}

/// A number that a caller chose, if it can be used.
fn chosen(key: &str, version: u64, last: u64, catalog: &Catalog) -> Result<u64> {
    if version == u64::MAX {
        return Err(no_number(key, version).into());
    }
    if version > last {
        return Ok(version);
    }
    if catalog.has(key, version) {
        return Err(Cause::Exists { what: "object", name: format!("{key} version {version}") }.into());
    }
    let (expected, found) = (format!("a version above {last}"), format!("version {last}"));
    Err(Cause::ObjectConflict { key: key.to_owned(), expected, found }.into())
}
