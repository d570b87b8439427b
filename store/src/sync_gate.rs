//! One sync at a time, and none that counts after one that failed.
//!
//! A sync that failed may leave the kernel taking for written what it could not write; the next one then succeeds and
//! proves nothing. Closing the store comes too late for that: another thread may be waiting to sync the same bytes at that
//! very moment, and would acknowledge what rests on them. So the failure is kept where the sync is made, under the same lock.

use std::io;

use crate::sync::{Mutex, MutexGuard, Rank};

/// Guards the syncs of one thing: a file, or the names in a directory.
#[derive(Debug)]
pub(crate) struct SyncGate {
    /// One was not done to its end.
    failed: Mutex<bool>,
}

impl Default for SyncGate {
    fn default() -> Self {
        SyncGate { failed: Mutex::ranked(Rank::SyncGate, false) }
    }
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

    /// Whether a sync has failed. Waits for one that is under way.
    pub(crate) fn has_failed(&self) -> bool {
        *self.failed.lock()
    }

    /// As [`enter`](Self::enter), for what may as well be left to the next sync: nothing when one is under way or has failed.
    pub(crate) fn try_enter(&self) -> Option<Passing<'_>> {
        let mut failed = self.failed.try_lock().filter(|failed| !**failed)?;
        *failed = true;
        Some(Passing(failed))
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
    fn who_only_tries_waits_for_nobody_and_fails_the_syncs_that_follow_as_they_do() {
        let gate = SyncGate::default();
        let passing = gate.enter().unwrap();
        assert!(gate.try_enter().is_none(), "a sync is under way");
        passing.done();
        gate.try_enter().unwrap().done();
        drop(gate.try_enter().unwrap());
        assert!(
            gate.enter().is_err() && gate.try_enter().is_none(),
            "the one before was not done to its end"
        );
    }
}
