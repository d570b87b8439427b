//! Group commit: many callers share one sync.
//!
//! Whoever finds nobody at work leads: it syncs for everyone whose record is in the log by then. The others wait, and
//! are woken together. A record that comes while a sync is under way waits for the next one, which its caller or any
//! other that waits then leads.
//!
//! The lock here guards who leads and nothing else; it is never held while the disk is asked for anything.

use super::Proof;
use crate::error::{Cause, Result};
use crate::sync::Rank;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::standard::{Condvar, Mutex, MutexGuard};

/// Who syncs, and how far the log is on stable storage.
#[derive(Debug)]
pub(super) struct GroupCommit {
    // Of the standard library, whose broadcast wakes every waiting thread with one call of the kernel.
    turn: Mutex<Turn>,
    changed: Condvar,
    /// Every record below this one is on stable storage, with every byte that it names and that is not over by them.
    durable: AtomicU64,
    syncs: AtomicU64,
}

#[derive(Debug, Default)]
struct Turn {
    leading: bool,
    /// Why a sync failed. What the kernel then holds may not be what the disk holds, so no later sync proves anything.
    failed: Option<String>,
}

impl GroupCommit {
    pub(super) fn new(durable: u64) -> Self {
        let turn = Mutex::ranked(Rank::LogTurn, Turn::default());
        let (changed, syncs) = (Condvar::new(), AtomicU64::new(0));
        GroupCommit { turn, changed, durable: AtomicU64::new(durable), syncs }
    }

    pub(super) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// How many syncs were led.
    pub(super) fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// Returns once every record up to `sequence` is on stable storage. `lead` brings all there are so far there, and
    /// gives how far that is.
    pub(super) fn reach(&self, sequence: u64, lead: impl Fn() -> Result<u64>) -> Result<()> {
        if self.durable() > sequence {
            return Ok(());
        }
        let mut turn = self.turn();
        loop {
            if self.durable() > sequence {
                return Ok(());
            }
            if let Some(reason) = turn.failed.clone() {
                return Err(Cause::Closed { reason }.into());
            }
            if turn.leading {
                turn = self.changed.wait(turn);
                continue;
            }
            turn.leading = true;
            drop(turn);
            let lead_ends = LeadEnds(self);
            let led = lead();
            turn = self.turn();
            match led {
                Ok(durable) => {
                    self.durable.fetch_max(durable, Ordering::AcqRel);
                    self.syncs.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => turn.failed = Some(error.closing_reason()),
            }
            drop(turn);
            drop(lead_ends);
            turn = self.turn();
        }
    }

    /// Runs `sync` as nobody leads, for one that is not made for a record: what follows a failed sync proves nothing,
    /// whoever made it.
    pub(super) fn alone(&self, sync: impl FnOnce() -> Result<Proof>) -> Result<Proof> {
        let mut turn = self.turn();
        while turn.leading {
            turn = self.changed.wait(turn);
        }
        self.lead_alone(turn, sync)
    }

    /// The same, unless somebody leads.
    pub(super) fn alone_if_idle(&self, sync: impl FnOnce() -> Result<Proof>) -> Result<Proof> {
        let turn = self.turn();
        if turn.leading { Ok(Proof::Left) } else { self.lead_alone(turn, sync) }
    }

    fn lead_alone(
        &self,
        mut turn: MutexGuard<'_, Turn>,
        sync: impl FnOnce() -> Result<Proof>,
    ) -> Result<Proof> {
        if let Some(reason) = turn.failed.clone() {
            return Err(Cause::Closed { reason }.into());
        }
        turn.leading = true;
        drop(turn);
        let _lead_ends = LeadEnds(self);
        sync().inspect_err(|error| self.turn().failed = Some(error.closing_reason()))
    }

    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock()
    }
}

/// Lets the next one lead, however the lead ended.
struct LeadEnds<'a>(&'a GroupCommit);

impl Drop for LeadEnds<'_> {
    fn drop(&mut self) {
        self.0.turn().leading = false;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use crate::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn a_record_that_is_durable_needs_nobody_to_lead() {
        let commit = GroupCommit::new(5);
        commit.reach(4, || panic!("nothing to do")).unwrap();
        commit.reach(5, || Ok(9)).unwrap();
        commit.reach(8, || panic!("the sync took it along")).unwrap();
        assert_eq!((commit.durable(), commit.syncs()), (9, 1));
    }

    #[test]
    fn after_a_failed_sync_everyone_is_refused_with_its_reason() {
        let commit = GroupCommit::new(0);
        let reason = || Cause::Closed { reason: "the disk is gone".into() }.into();
        for _ in 0..2 {
            let error = commit.reach(3, || Err(reason())).unwrap_err();
            assert!(error.to_string().contains("the disk is gone"), "{error}");
        }
        assert_eq!(commit.syncs(), 0);
    }

    #[test]
    fn a_sync_for_no_record_that_fails_refuses_everyone_too() {
        let commit = GroupCommit::new(0);
        assert!(matches!(commit.alone(|| Ok(Proof::Brought)), Ok(Proof::Brought)));
        let full = || Cause::Closed { reason: "there is no room".into() }.into();
        assert!(matches!(commit.alone(|| Ok(Proof::NoRoom(full()))), Ok(Proof::NoRoom(_))));
        assert!(
            matches!(commit.alone_if_idle(|| Ok(Proof::Brought)), Ok(Proof::Brought)),
            "that changed nothing"
        );
        commit.alone(|| Err(Cause::Closed { reason: "the disk is gone".into() }.into())).unwrap_err();
        let error = commit.reach(0, || panic!("it proves nothing")).unwrap_err();
        assert!(error.to_string().contains("the disk is gone"), "{error}");
        assert!(commit.alone(|| panic!("nor does this")).is_err());
    }

    #[test]
    fn one_leads_and_the_others_share_its_sync() {
        let commit = GroupCommit::new(0);
        let alone = AtomicBool::new(false);
        let appended = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let sequence = appended.fetch_add(1, Ordering::SeqCst);
                        let lead = || {
                            assert!(!alone.swap(true, Ordering::SeqCst), "two lead at once");
                            let through = appended.load(Ordering::SeqCst);
                            std::thread::yield_now();
                            alone.store(false, Ordering::SeqCst);
                            Ok(through)
                        };
                        commit.reach(sequence, lead).unwrap();
                        assert!(commit.durable() > sequence);
                    }
                });
            }
        });
        assert_eq!(commit.durable(), 1600);
        assert!(commit.syncs() <= 1600);
    }
}
