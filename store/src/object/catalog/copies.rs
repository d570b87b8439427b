//! Copies of versions in memory, and the journal that says where they lie.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::host::{Entry, Journal, Kept, Recovered};
use super::super::manifest::{Manifest, ManifestRecord};
use super::super::version::{Copies, HostCopy};
use super::{Catalog, KeyState};
use crate::error::{Cause, Result};

impl Catalog {
    /// Goes on with a journal of what was taken in. `lost` is what it names and could not be.
    pub(in crate::object) fn begin_journal(
        &mut self,
        mut journal: Journal,
        recovered: &Recovered,
        lost: &[(String, u64)],
    ) -> Result<()> {
        // Their memory will be somebody else's.
        let noted = lost.iter().try_for_each(|(key, version)| journal.drop_version(key, *version));
        noted.map_err(unnoted)?;
        self.journal = Some(journal);
        self.loans_given = recovered.loans.keys().next_back().copied().unwrap_or(0);
        for (key, version) in &recovered.deleted {
            if !self.was_deleted(key, *version) {
                self.deleted_files.insert((key.clone(), *version));
            }
        }
        Ok(())
    }

    /// A version has another copy now.
    pub(in crate::object) fn add_host(&mut self, key: &str, version: u64, copy: Arc<HostCopy>) -> Result<()> {
        let Catalog { keys, journal, .. } = self;
        let Some(found) = keys.get_mut(key).and_then(|state| state.versions.get_mut(&version)) else {
            return Ok(());
        };
        if let (Some(journal), Some(entry)) = (journal, entry(&found.manifest, &copy, found.once)) {
            let noted = journal.commit(&[(&found.manifest.layout, entry)]);
            noted.map_err(unnoted)?;
        }
        found.copies.host = Some(copy);
        Ok(())
    }

    /// A version has no host copy any more. What is given is to be dropped without the catalog's lock.
    #[must_use = "the memory is given back when this is dropped"]
    pub(in crate::object) fn take_host(&mut self, key: &str, version: u64) -> Option<Arc<HostCopy>> {
        let copy = self.version(key, version)?.copies.host.take()?;
        self.note_dropped(key, version, &copy);
        Some(copy)
    }

    /// No version has a host copy any more, and the journal ends. Versions that are nowhere else go.
    pub(in crate::object) fn take_all_host(&mut self) -> Vec<Copies> {
        self.journal.take().into_iter().for_each(Journal::remove);
        let parked = self.parked.drain(..).map(|parked| Copies::host(parked.copy));
        let mut taken: Vec<Copies> = parked.collect();
        for state in self.keys.values_mut() {
            let versions = state.versions.values_mut();
            taken.extend(versions.map(|version| Copies { host: version.copies.host.take(), disk: None }));
            state.versions.retain(|_, version| version.copies.disk.is_some());
        }
        taken
    }

    /// What the journal says and is not true any more would give memory away twice: where that cannot be written down, the
    /// memory is not given back before it can.
    pub(super) fn note_dropped(&mut self, key: &str, version: u64, copy: &Arc<HostCopy>) {
        let Some(journal) = self.journal.as_mut().filter(|_| copy.places().is_some()) else { return };
        if let Err(error) = journal.drop_version(key, version)
            && let Err(again) = self.compact_journal()
        {
            tracing::warn!(%error, %again, key, version, "the journal of the host tier is full: memory is kept back");
            self.parked.push(Parked { key: key.to_owned(), version, copy: copy.clone() });
        }
    }

    /// Writes the journal anew when most of it is over, and gives memory that was kept back because it could not be written.
    #[must_use = "the memory is given back when this is dropped"]
    pub(in crate::object) fn tend_journal(&mut self) -> Vec<Arc<HostCopy>> {
        if self.journal.as_ref().is_some_and(Journal::is_mostly_over)
            && let Err(error) = self.compact_journal()
        {
            tracing::warn!(%error, "the journal of the host tier could not be written anew");
        }
        let (mut free, mut parked) = (Vec::new(), Vec::new());
        for Parked { key, version, copy } in std::mem::take(&mut self.parked) {
            let noted = is_noted(&self.keys, &key, version);
            let journal = self.journal.as_mut().filter(|_| !noted);
            if journal.is_none_or(|journal| journal.drop_version(&key, version).is_ok()) {
                free.push(copy);
            } else {
                parked.push(Parked { key, version, copy });
            }
        }
        self.parked = parked;
        free
    }

    fn compact_journal(&mut self) -> std::io::Result<()> {
        let versions = self.keys.values().flat_map(|state| state.versions.values());
        let entries: Vec<(&Arc<Manifest>, Entry)> = versions
            .filter_map(|v| Some((&v.manifest, entry(&v.manifest, v.copies.host.as_deref()?, v.once)?)))
            .collect();
        let last = self.keys.iter().map(|(key, state)| (key.clone(), state.last)).collect();
        let marked = self.keys.iter().flat_map(|(key, state)| {
            let deleted = state.versions.iter().filter(|(_, version)| version.deleted);
            deleted.map(|(number, _)| (key.clone(), *number))
        });
        let deleted = marked.chain(self.deleted_files.iter().cloned()).collect();
        let objects = entries.iter().map(|(manifest, entry)| (&manifest.layout, entry));
        let loans = self.loan_records();
        let kept = Kept { objects, last: &last, deleted: &deleted, loans: &loans };
        self.journal.as_mut().map_or(Ok(()), |journal| journal.compact(kept))
    }
}

/// Whether the journal says where a version lies now: that is after whatever it says of an earlier copy.
fn is_noted(keys: &BTreeMap<String, KeyState>, key: &str, version: u64) -> bool {
    let found = keys.get(key).and_then(|state| state.versions.get(&version));
    found.and_then(|found| found.copies.host.as_ref()).is_some_and(|host| host.places().is_some())
}

/// Memory of a version that is gone, of which the journal still says that it is there.
#[derive(Debug)]
pub(super) struct Parked {
    key: String,
    version: u64,
    copy: Arc<HostCopy>,
}

/// The journal could not be written.
pub(super) fn unnoted(error: std::io::Error) -> Cause {
    Cause::io("write", "the journal of the host tier", error)
}

/// What the journal says of a host copy; nothing of one that lies in heap memory.
pub(super) fn entry(manifest: &Manifest, host: &HostCopy, once: bool) -> Option<Entry> {
    let (manifest, places) = (ManifestRecord::of(manifest), host.places()?);
    Some(Entry { manifest, places, once, ours: host.ours })
}

#[cfg(test)]
mod tests {
    use super::super::super::host::Arena;
    use super::super::super::options::ObjectOptions;
    use super::super::super::set::Expected;
    use super::super::super::{Dtype, Layout};
    use super::super::Incoming;
    use super::*;
    use crate::clock::Timestamp;

    fn incoming(arena: &Arc<Arena>) -> Incoming {
        let layout = Layout::builder().tensor("weights", "a", Dtype::U8, &[5]).build().unwrap();
        let extents = layout.payloads().iter().map(|payload| arena.allocate(payload.bytes).unwrap());
        let copy = HostCopy::new(Arc::new(extents.collect()), true, true);
        let manifest = Manifest {
            key: "a".into(),
            version: 0,
            layout,
            checksums: vec![vec![0]],
            metadata: BTreeMap::new(),
            created_at: Timestamp(1),
            group: None,
        };
        let (expected, copies) = (Expected::Any, Copies::host(Arc::new(copy)));
        Incoming { manifest, numbered: false, expected, once: false, copies }
    }

    #[test]
    fn memory_is_kept_back_while_the_journal_is_too_full_to_say_that_it_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let arena = Arena::new(None, &ObjectOptions::default());
        let mut catalog =
            Catalog { journal: Some(Journal::open(folder.path()).unwrap().0), ..Catalog::default() };
        for number in 1..=2 {
            assert_eq!(catalog.commit(vec![incoming(&arena)]).unwrap(), [number]);
        }
        let taken = arena.taken_bytes();
        let file = catalog.journal.as_mut().unwrap().fill();
        drop(catalog.take_host("a", 1));
        drop(catalog.retain("a", 1));
        drop(catalog.tend_journal());
        assert_eq!(arena.taken_bytes(), taken, "the journal says that something lies there");
        assert!(catalog.commit(vec![incoming(&arena)]).is_err());
        catalog.journal.as_mut().unwrap().mend(file);
        drop(catalog.tend_journal());
        assert_eq!(arena.taken_bytes(), taken / 2);
        let (_, again) = Journal::open(folder.path()).unwrap();
        let numbers: Vec<u64> = again.objects.iter().map(|(manifest, _)| manifest.version).collect();
        assert_eq!((numbers, again.last["a"]), (vec![2], 2));
    }

    #[test]
    fn the_number_of_a_version_in_heap_memory_is_written_down() {
        let folder = tempfile::tempdir().unwrap();
        let full = Arena::new(None, &ObjectOptions::default().host_bytes_max(0));
        let mut catalog =
            Catalog { journal: Some(Journal::open(folder.path()).unwrap().0), ..Catalog::default() };
        catalog.commit(vec![incoming(&full)]).unwrap();
        let (_, again) = Journal::open(folder.path()).unwrap();
        assert_eq!((again.objects.len(), again.last["a"]), (0, 1));
    }
}
