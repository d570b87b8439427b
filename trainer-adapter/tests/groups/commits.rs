//! Commits of which the coordinator is not told how they ended.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_trainer_adapter::ErrorKind;
use forebay_trainer_adapter::process_group::{
    ClaimId, Fleet, GroupError, GroupOptions, Life, Next, ProcessGroup,
};
use forebay_trainer_adapter::scheduler::{DeviceId, DeviceSlot, Node, Scheduler, SchedulerOptions};
use forebay_trainer_adapter::states::{FileStates, Fill, Staged, States, StatesError, Version, Which};

use crate::program::{RANK, batches, group, launcher, placement, states};

/// States behind a connection that breaks in a commit, before it or after it, and may stay broken.
struct Broken {
    inner: Arc<FileStates>,
    breaks: AtomicBool,
    /// Whether the commit that is not answered is made.
    is_made: bool,
    /// Whether nothing is answered after that.
    stays: bool,
    /// What the commit fails with, of the version that it expects.
    failure: Failure,
    is_down: AtomicBool,
}

type Failure = Box<dyn Fn(u64) -> StatesError + Send + Sync>;

impl Broken {
    fn lost() -> StatesError {
        StatesError::Other { verb: "asking", source: Box::new(io::Error::from(io::ErrorKind::BrokenPipe)) }
    }
}

impl States for Broken {
    fn stage_from(
        &self,
        key: &str,
        part: &str,
        bytes: u64,
        fill: &mut Fill<'_>,
    ) -> Result<Staged, StatesError> {
        self.inner.stage_from(key, part, bytes, fill)
    }

    fn commit(&self, key: &str, expected: u64, parts: &[Staged]) -> Result<u64, StatesError> {
        if !self.breaks.swap(false, Ordering::Relaxed) {
            return self.inner.commit(key, expected, parts);
        }
        if self.is_made {
            self.inner.commit(key, expected, parts).unwrap();
        }
        self.is_down.store(self.stays, Ordering::Relaxed);
        Err((self.failure)(expected))
    }

    fn find(&self, key: &str, which: Which) -> Result<Option<Version>, StatesError> {
        if self.is_down.load(Ordering::Relaxed) {
            return Err(Self::lost());
        }
        self.inner.find(key, which)
    }

    fn open<'a>(&'a self, key: &str, which: Which, part: &str) -> Result<Box<dyn Read + 'a>, StatesError> {
        self.inner.open(key, which, part)
    }
}

fn broken_group(folder: &Path, is_made: bool, stays: bool) -> (ProcessGroup, Arc<Broken>) {
    group_with(folder, is_made, stays, Box::new(|_| Broken::lost()))
}

fn group_with(folder: &Path, is_made: bool, stays: bool, failure: Failure) -> (ProcessGroup, Arc<Broken>) {
    let [breaks, is_down] = [(); 2].map(|()| AtomicBool::new(false));
    let states = Arc::new(Broken { inner: states(folder), breaks, is_made, stays, failure, is_down });
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

/// A keeper that fails behind the commit looks for what went wrong, and may find the version that it has just made. Where nobody can be
/// asked whose that is, it is not told as lost.
#[test]
fn a_conflict_with_what_may_be_the_own_commit_loses_no_claim() {
    for (found, is_made) in [(2, true), (2, false), (3, true), (0, false)] {
        let name = format!("found {found}, made {is_made}");
        let folder = tempfile::tempdir().unwrap();
        let conflict =
            move |expected: u64| StatesError::Conflict { key: "solver".to_owned(), expected, found };
        let (mut solver, states) = group_with(folder.path(), is_made, true, Box::new(conflict));
        solver.activate(&placement("a", 1)).unwrap();
        let batch = batches("solver", 0).remove(0);
        solver.accumulate(std::slice::from_ref(&batch)).unwrap();
        states.breaks.store(true, Ordering::Relaxed);
        match solver.suspend() {
            Err(GroupError::Unknown { claims, version: 2, .. }) if found > 1 => {
                assert_eq!(claims, [batch.claim], "{name}");
            }
            // Nothing was made: the version that was expected is not even there.
            Err(GroupError::States { lost, .. }) if found == 0 => assert_eq!(lost, [batch.claim], "{name}"),
            other => panic!("{name}: {other:?}"),
        }
    }
}

/// Where it was taken back, the version before it stands, and what came since is to be returned; where it was not, nobody returns what may be
/// in the state.
#[test]
fn a_version_that_is_less_durable_than_promised_is_not_committed() {
    for is_taken_back in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let failure = move |expected: u64| StatesError::NotDurable {
            key: "solver".to_owned(),
            version: expected + 6, // numbers may have gaps
            is_taken_back,
            source: Box::new(io::Error::from(io::ErrorKind::StorageFull)),
        };
        let (mut solver, states) = group_with(folder.path(), !is_taken_back, false, Box::new(failure));
        solver.activate(&placement("a", 1)).unwrap();
        let batch = batches("solver", 0).remove(0);
        solver.accumulate(std::slice::from_ref(&batch)).unwrap();
        states.breaks.store(true, Ordering::Relaxed);
        let refused = solver.suspend().unwrap_err();
        assert_eq!((solver.life(), solver.version()), (Life::Suspended, 1), "{refused}");
        match refused {
            GroupError::States { lost, source: StatesError::NotDurable { .. }, .. } if is_taken_back => {
                assert_eq!(lost, std::slice::from_ref(&batch.claim));
                solver.resume(&placement("a", 1)).unwrap();
                solver.accumulate(std::slice::from_ref(&batch)).unwrap();
                assert_eq!(solver.suspend().unwrap().version, 2);
            }
            GroupError::Unknown { claims, version: 7, .. } if !is_taken_back => {
                assert_eq!(claims, std::slice::from_ref(&batch.claim));
                assert!(group(folder.path(), "solver", 1).ledger().has(&batch.claim));
            }
            other => panic!("taken back {is_taken_back}: {other:?}"),
        }
    }
}

/// The work of an agent fails, and then nobody can say whether what it had done before is kept: that is what its caller has to know.
#[test]
fn a_fleet_tells_of_a_commit_that_may_be_made_also_where_the_work_has_failed_before() {
    for is_made in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let (broken, states) = broken_group(folder.path(), is_made, true);
        let slot = DeviceSlot { id: DeviceId("a-0".into()), ordinal: 0, bytes: 400 };
        let node = Node { name: "a".into(), devices: vec![slot] };
        let fleet = Fleet::new(Scheduler::new(SchedulerOptions::default(), [node]).unwrap());
        let mut member = fleet.join(broken, 400).unwrap();
        let batch = batches("solver", 0).remove(0);
        let told = member.run(|group| {
            group.accumulate(std::slice::from_ref(&batch))?;
            states.breaks.store(true, Ordering::Relaxed);
            group.accumulate(std::slice::from_ref(&batch))?; // in the state already: an error of the work's own
            Ok(Next::More)
        });
        match told {
            Err(GroupError::Unknown { claims, .. }) => assert_eq!(claims, std::slice::from_ref(&batch.claim)),
            other => panic!("made {is_made}: {other:?}"),
        }
        assert_eq!((member.group().life(), member.group().pids().len()), (Life::Suspended, 0));
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
