//! One sync at a time, and none that counts after one that failed.
//!
//! A sync that failed may leave the kernel taking for written what it could not write; the next one then succeeds and
//! proves nothing. Closing the store comes too late for that: another thread may be waiting to sync the same bytes at that
//! very moment, and would acknowledge what rests on them. So the failure is kept where the sync is made, under the same lock.

use std::io;

use crate::sync::{Mutex, MutexGuard};

/// Guards the syncs of one thing: a file, or the names in a directory.
#[derive(Debug, Default)]
pub(crate) struct SyncGate {
    /// One was not done to its end.
    failed: Mutex<bool>,
}

/// A sync under way. Dropped before it is [done](Passing::done), it has failed.
pub(crate) struct Passing<'a>(MutexGuard<'a, bool>);

impl SyncGate {
    /// Begins a sync when nobody else's is under way, so that whoever then finds nothing left to sync knows that it is done.
    /// Refuses after one that failed.
    pub(crate) fn enter(&self) -> io::Result<Passing<'_>> {
        let mut failed = self.failed.lock();
        if *failed {
            return Err(io::Error::other("an earlier sync of it failed, and a later one proves nothing"));
        }
        *failed = true;
        Ok(Passing(failed))
    }

    /// What a sync would have brought to stable storage has failed on its way there already: none counts from now on.
    pub(crate) fn fail(&self) {
        *self.failed.lock() = true;
    }
}

impl Passing<'_> {
    /// Everything is on stable storage.
    pub(crate) fn done(mut self) {
        *self.0 = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_failure_no_sync_counts() {
        let gate = SyncGate::default();
        gate.enter().unwrap().done();
        drop(gate.enter().unwrap());
        let refused = gate.enter().err().unwrap();
        assert!(refused.to_string().contains("an earlier sync of it failed"), "{refused}");
    }

    #[test]
    fn what_failed_on_its_way_is_not_proven_by_the_sync_that_follows() {
        let gate = SyncGate::default();
        gate.fail();
        assert!(gate.enter().is_err());
    }
}
