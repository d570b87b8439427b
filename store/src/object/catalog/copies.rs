//! Copies of versions in memory, and the journal that says where they lie.

use std::sync::Arc;

use super::super::host::{Entry, Journal};
use super::super::manifest::{Manifest, ManifestRecord};
use super::super::version::{Copies, HostCopy};
use super::Catalog;
use crate::error::{Cause, Result};

impl Catalog {
    /// Goes on with a journal of what was taken in.
    pub(in crate::object) fn begin_journal(&mut self, journal: Journal) {
        self.journal = Some(journal);
        if let Err(error) = self.compact_journal() {
            tracing::error!(%error, "the journal of the host tier is given up: its objects end with this process");
            self.journal.take().into_iter().for_each(Journal::remove);
        }
    }

    /// A version has another copy now.
    pub(in crate::object) fn add_host(&mut self, key: &str, version: u64, copy: Arc<HostCopy>) -> Result<()> {
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
    pub(in crate::object) fn take_host(&mut self, key: &str, version: u64) -> Option<Arc<HostCopy>> {
        let copy = self.version(key, version)?.copies.host.take();
        if copy.is_some() {
            self.note_dropped(key, version);
        }
        copy
    }

    /// No version has a host copy any more, and the journal ends. Versions that are nowhere else go.
    pub(in crate::object) fn take_all_host(&mut self) -> Vec<Copies> {
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
    pub(super) fn note_dropped(&mut self, key: &str, version: u64) {
        let Some(journal) = &mut self.journal else { return };
        if let Err(error) = journal.drop_version(key, version)
            && let Err(again) = self.compact_journal()
        {
            tracing::error!(%error, %again, "the journal of the host tier is given up: its objects end with this process");
            self.journal.take().into_iter().for_each(Journal::remove);
        }
    }

    /// Writes the journal anew when most of it is over.
    pub(in crate::object) fn tend_journal(&mut self) {
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
}

/// What the journal says of a host copy; nothing of one that lies in heap memory.
pub(super) fn entry(manifest: &Manifest, host: &HostCopy, once: bool) -> Option<Entry> {
    Some(Entry { manifest: ManifestRecord::of(manifest), places: host.places()?, once })
}
