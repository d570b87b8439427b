//! The commit of a filling.

use std::sync::Arc;

use super::filled::check_filled;
use super::{Filling, Phase};
use crate::error::Result;
use crate::object::Manifest;
use crate::object::catalog::Incoming;
use crate::object::version::{Copies, HostCopy};

impl Filling {
    /// Makes it the key's newest version, wakes who waits for it, and gives its number: one more than the newest so far.
    ///
    /// # Errors
    /// `state` when the newest version is not the expected one (the filling stays: [`expect`](Self::expect) another and
    /// commit again, or drop it), when something was not filled (the tensor is named), or is being filled now.
    pub fn commit(&self) -> Result<u64> {
        self.commit_numbered(None)
    }

    /// As [`commit`](Self::commit), under a number that was chosen: for versions that are numbered by somebody else, as those of
    /// a policy are.
    ///
    /// # Errors
    /// As for [`commit`](Self::commit), and `input` when the key has that version already, `state` when it had newer ones.
    pub fn commit_as(&self, version: u64) -> Result<u64> {
        self.commit_numbered(Some(version))
    }

    fn commit_numbered(&self, version: Option<u64>) -> Result<u64> {
        let incoming = self.prepare(version)?;
        let committed = self.objects.commit_all(vec![incoming]);
        self.concluded(&committed);
        committed.map(|versions| versions[0])
    }

    /// Gives what a commit needs, and keeps writers out from here on. [`concluded`](Self::concluded) has to follow.
    pub(in crate::object) fn prepare(&self, version: Option<u64>) -> Result<Incoming> {
        let mut state = self.state.lock();
        self.check_phase(state.phase)?;
        check_filled(&self.key, &self.layout, &state.payloads)?;
        state.phase = Phase::Committing;
        let mut payloads = std::mem::take(&mut state.payloads);
        let (expected, metadata) = (state.expected, state.metadata.clone());
        drop(state); // summing up takes its time
        let sums = payloads.iter_mut().zip(self.extents.iter()).map(|(filled, extent)| {
            filled.checksums(|range| extent.sum(range.start, range.end - range.start))
        });
        let checksums = sums.collect();
        self.state.lock().payloads = payloads;
        let manifest = Manifest {
            key: self.key.clone(),
            version: version.unwrap_or(0),
            layout: self.layout.clone(),
            checksums,
            metadata,
            created_at: self.objects.core.clock.now(),
            group: None,
        };
        let copy = Arc::new(HostCopy::new(self.extents.clone(), true, self.is_ours));
        Ok(Incoming {
            manifest,
            numbered: version.is_some(),
            expected,
            once: self.once,
            copies: Copies::host(copy),
        })
    }

    /// A commit that was prepared has gone through, or not.
    pub(in crate::object) fn concluded<T>(&self, outcome: &Result<T>) {
        let phase = if outcome.is_ok() { Phase::Committed } else { Phase::Filling };
        self.state.lock().phase = phase;
    }
}
