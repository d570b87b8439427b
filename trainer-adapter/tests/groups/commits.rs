//! Commits of which the coordinator is not told how they ended.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_trainer_adapter::ErrorKind;
use forebay_trainer_adapter::process_group::{ClaimId, GroupError, GroupOptions, Life, ProcessGroup};
use forebay_trainer_adapter::states::{FileStates, Staged, States, StatesError, Version, Which};

use crate::program::{RANK, batches, group, launcher, placement, states};

/// States behind a connection that breaks in a commit, before it or after it, and may stay broken.
struct Broken {
    inner: Arc<FileStates>,
    breaks: AtomicBool,
    /// Whether the commit that is not answered is made.
    is_made: bool,
    /// Whether nothing is answered after that.
    stays: bool,
    is_down: AtomicBool,
}

impl Broken {
    fn lost() -> StatesError {
        StatesError::Other { verb: "asking", source: Box::new(io::Error::from(io::ErrorKind::BrokenPipe)) }
    }
}

impl States for Broken {
    fn stage(&self, key: &str, part: &str, bytes: &[u8]) -> Result<Staged, StatesError> {
        self.inner.stage(key, part, bytes)
    }

    fn commit(&self, key: &str, expected: u64, parts: &[Staged]) -> Result<u64, StatesError> {
        if !self.breaks.swap(false, Ordering::Relaxed) {
            return self.inner.commit(key, expected, parts);
        }
        if self.is_made {
            self.inner.commit(key, expected, parts).unwrap();
        }
        self.is_down.store(self.stays, Ordering::Relaxed);
        Err(Self::lost())
    }

    fn find(&self, key: &str, which: Which) -> Result<Option<Version>, StatesError> {
        if self.is_down.load(Ordering::Relaxed) {
            return Err(Self::lost());
        }
        self.inner.find(key, which)
    }

    fn read(&self, key: &str, which: Which, part: &str) -> Result<Vec<u8>, StatesError> {
        self.inner.read(key, which, part)
    }
}

fn broken_group(folder: &Path, is_made: bool, stays: bool) -> (ProcessGroup, Arc<Broken>) {
    let [breaks, is_down] = [(); 2].map(|()| AtomicBool::new(false));
    let states = Arc::new(Broken { inner: states(folder), breaks, is_made, stays, is_down });
    let launcher = Arc::new(launcher(folder, RANK));
    let group = ProcessGroup::create("solver", GroupOptions::default(), launcher, states.clone());
    (group.unwrap(), states)
}

/// A claim is told as lost only where it is known to be in no state; where nobody can know it, the ledger says so later.
#[test]
fn a_commit_that_is_not_answered_is_looked_for_and_told_as_unknown_where_nobody_can_say() {
    for (is_made, stays) in [(true, false), (false, false), (true, true), (false, true)] {
        let name = format!("made {is_made}, stays broken {stays}");
        let folder = tempfile::tempdir().unwrap();
        let (mut broken, states) = broken_group(folder.path(), is_made, stays);
        broken.activate(&placement("a", 1)).unwrap();
        let all = batches("solver", 0);
        broken.accumulate(&all[..2]).unwrap();
        let claims: Vec<ClaimId> = all[..2].iter().map(|batch| batch.claim.clone()).collect();
        states.breaks.store(true, Ordering::Relaxed);
        let outcome = broken.suspend();
        assert_eq!((broken.life(), broken.pids().len()), (Life::Suspended, 0), "{name}");
        match (&outcome, stays) {
            (Ok(_), false) => assert!(is_made, "{name}"),
            (Err(error @ GroupError::States { .. }), false) => {
                assert_eq!((error.lost(), is_made), (&claims[..], false), "{name}");
            }
            (Err(error @ GroupError::Unknown { claims: unknown, version: 2, .. }), true) => {
                assert_eq!((error.lost(), unknown), (&[][..], &claims), "{name}: nothing is returned yet");
                assert_eq!(error.kind(), ErrorKind::State, "{name}");
                let refused = broken.resume(&placement("a", 1)).unwrap_err();
                assert!(matches!(refused, GroupError::States { .. }), "{name}: {refused}");
            }
            other => panic!("{name}: {other:?}"),
        }
        // What to do then: the group anew, once the states answer.
        let again = group(folder.path(), "solver", 1);
        let kept: BTreeSet<ClaimId> =
            if is_made { claims.iter().cloned().collect() } else { BTreeSet::new() };
        assert_eq!(again.ledger().accumulated, kept, "{name}");
        assert_eq!(again.ledger().lost_of(&claims).is_empty(), is_made, "{name}");
    }
}

/// A step is consumed in the order apply, save, write down, settle. Who settles before the save does not lose the claims of the update.
#[test]
fn claims_of_an_update_that_no_version_has_stay_in_the_ledger() {
    let folder = tempfile::tempdir().unwrap();
    let mut solver = group(folder.path(), "solver", 1);
    solver.activate(&placement("a", 1)).unwrap();
    let all = batches("solver", 0);
    let claims: BTreeSet<ClaimId> = all.iter().map(|batch| batch.claim.clone()).collect();
    solver.accumulate(&all).unwrap();
    solver.apply().unwrap();
    solver.settle().unwrap();
    solver.suspend().unwrap();
    assert_eq!(solver.ledger().applied, claims);
    solver.resume(&placement("a", 1)).unwrap();
    solver.settle().unwrap();
    solver.suspend().unwrap();
    assert_eq!(solver.ledger().applied, BTreeSet::new());
}
