//! Locks on the files of a simulated disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use crate::disk::{HeldLock, LockKind};

/// A lock, held as long as it lives.
#[derive(Debug)]
pub(super) struct SimulatedLock {
    _token: Arc<LockKind>,
}

impl HeldLock for SimulatedLock {}

/// Who holds which lock.
#[derive(Debug, Default)]
pub(super) struct Locks(BTreeMap<PathBuf, Vec<Weak<LockKind>>>);

impl Locks {
    /// A lock, unless somebody holds one that does not go with it.
    pub(super) fn take(&mut self, path: &Path, kind: LockKind) -> Option<SimulatedLock> {
        let holders = self.0.entry(path.to_owned()).or_default();
        holders.retain(|holder| holder.strong_count() > 0);
        let shared = |holder: &Weak<LockKind>| {
            kind == LockKind::Shared && holder.upgrade().is_none_or(|held| *held == LockKind::Shared)
        };
        if !holders.iter().all(shared) {
            return None;
        }
        let token = Arc::new(kind);
        holders.push(Arc::downgrade(&token));
        Some(SimulatedLock { _token: token })
    }

    /// Every holder's process has ended.
    pub(super) fn release_all(&mut self) {
        self.0.clear();
    }
}
