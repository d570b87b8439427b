//! What a commit does around the catalog: who is woken, what goes, what is counted.

use super::catalog::{Catalog, Gone, Incoming};
use super::disk::set_aside;
use super::named::path_in;
use super::objects::Objects;
use crate::error::{Cause, Result};
use crate::step::{Over, Retirement};

impl Objects {
    /// Commits what was prepared, all or nothing, and wakes who waits for it.
    pub(super) fn commit_all(&self, incoming: Vec<Incoming>) -> Result<Vec<u64>> {
        self.commit_by(incoming, Catalog::commit)
    }

    pub(super) fn commit_by<T>(
        &self,
        incoming: Vec<Incoming>,
        commit: impl FnOnce(&mut Catalog, Vec<Incoming>) -> Result<T>,
    ) -> Result<T> {
        self.check_open()?;
        let begun = self.now();
        let counters = &self.core.counters;
        let sizes: Vec<(String, u64)> =
            incoming.iter().map(|member| (member.manifest.key.clone(), member.manifest.bytes())).collect();
        let mut catalog = self.core.catalog.lock();
        let committed = commit(&mut catalog, incoming);
        let committed = committed.inspect_err(|error| {
            if matches!(error.cause(), Cause::ObjectConflict { .. }) {
                counters.conflicts.add(1);
            }
        })?;
        let kept = self.core.options.versions_kept;
        let gone: Vec<_> = sizes.iter().flat_map(|(key, _)| catalog.retain(key, kept)).collect();
        let changed: Vec<_> = sizes.iter().map(|(key, _)| catalog.key(key).changed.clone()).collect();
        drop(catalog);
        changed.iter().for_each(|changed| _ = changed.notify(usize::MAX));
        self.bury(gone);
        counters.sets.add(sizes.len() as u64);
        counters.set_bytes.add(sizes.iter().map(|(_, bytes)| bytes).sum());
        counters.commit_microseconds.add(self.now().since(begun).as_micros() as u64);
        Ok(committed)
    }

    /// Tells everybody who waits for a key that a filling of it was given up.
    pub(super) fn filling_failed(&self, key: &str, reason: &str) {
        if self.store.check_process().is_err() {
            return; // a forked child: it is its parent's
        }
        let mut catalog = self.core.catalog.lock();
        let state = catalog.key(key);
        state.failures += 1;
        reason.clone_into(&mut state.failure);
        let changed = state.changed.clone();
        drop(catalog);
        changed.notify(usize::MAX);
    }

    /// Removes the files of versions that are gone, but for those that a step stands on. Decided under the state's lock, under
    /// which a step that names a version looks for its file. A file that an undone step named waits until that is on stable
    /// storage: a power failure before would bring the step back.
    pub(super) fn bury(&self, gone: Vec<Gone>) {
        if gone.iter().all(|gone| gone.copies.disk.is_none() && !gone.marked) {
            return;
        }
        let shared = &self.store.0;
        let (mut free, mut waiting, mut fileless) = (Vec::new(), Vec::new(), Vec::new());
        let state = shared.state.lock();
        for Gone { key, version, copies, marked } in gone {
            let Some(path) = copies.file() else {
                let path = path_in(&self.core.directory.objects(), &key, version);
                fileless.extend(marked.then_some((key, version, path)));
                continue;
            };
            if state.committed_object(&key, version).is_some() {
                continue;
            }
            if state.was_named(&key, version) {
                waiting.push(Retirement { commits: state.commits, key, over: Over::Version(version) });
            } else {
                let aside = set_aside(&*self.core.directory.disk, &path);
                free.extend(aside.map(|aside| (key, version, aside)));
            }
        }
        drop(state);
        self.core.remove_files(free);
        self.core.remove_marks_of_none(fileless);
        shared.retiring.add(waiting);
        shared.retire_due();
    }

    /// Ends what an earlier process began to delete.
    pub(crate) fn bury_deleted(&self) {
        let gone = self.core.catalog.lock().retain_undeleted();
        self.bury(gone);
    }
}
