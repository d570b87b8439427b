//! What a commit does around the catalog: who is woken, what goes, what is counted.

use std::sync::Arc;

use super::catalog::{Catalog, Gone, Incoming};
use super::host::HostExtent;
use super::objects::Objects;
use super::owner::Owner;
use crate::error::{Cause, Result};

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
        sizes.iter().for_each(|(key, _)| _ = catalog.key(key).changed.notify(usize::MAX));
        drop(catalog);
        self.bury(gone);
        counters.sets.add(sizes.len() as u64);
        counters.set_bytes.add(sizes.iter().map(|(_, bytes)| bytes).sum());
        counters.commit_microseconds.add(self.now().since(begun).as_micros() as u64);
        Ok(committed)
    }

    /// Tells everybody who waits for a key that a filling of it was given up.
    pub(super) fn filling_failed(&self, key: &str, reason: &str) {
        let mut catalog = self.core.catalog.lock();
        let state = catalog.key(key);
        state.failures += 1;
        reason.clone_into(&mut state.failure);
        state.changed.notify(usize::MAX);
    }

    pub(super) fn quarantine(&self, owner: Owner, extents: Arc<Vec<HostExtent>>) {
        self.core.catalog.lock().quarantine(owner, extents);
    }

    pub(super) fn bury(&self, gone: Vec<Gone>) {
        if gone.iter().all(|gone| gone.copies.disk.is_none()) {
            return;
        }
        let state = self.store.0.state.lock();
        let named: Vec<bool> =
            gone.iter().map(|gone| state.committed_object(&gone.key, gone.version).is_some()).collect();
        drop(state);
        let unnamed = gone.into_iter().zip(named).filter(|(_, named)| !named).map(|(gone, _)| gone);
        self.core.remove_files(unnamed);
    }
}
