//! One group: its life, its processes, and what is left of them.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_trainer_adapter::ErrorKind;
use forebay_trainer_adapter::process_group::{
    BatchOutcome, Boundary, GroupError, GroupOptions, Launched, Launcher, Life, LocalLauncher, ProcessGroup,
    RankPlace,
};

use crate::budget;
use crate::program::{
    BATCHES, RANK, RANK_BYTES, VISIBLE, batches, expected_sha256, group, kept_sha256, launcher, order_kill,
    placement, states,
};
use crate::training::Training;

fn is_there(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// A group whose ranks take these bytes of the devices of node `a`.
fn counted(folder: &Path, world: usize, rank_bytes: u64, device_bytes: u64) -> ProcessGroup {
    for rank in 0..world {
        budget::make(&folder.join("devices"), &format!("a-{rank}"), device_bytes);
    }
    let launcher = launcher(folder, RANK).variable(RANK_BYTES, rank_bytes.to_string());
    let options = GroupOptions { world, ..GroupOptions::default() };
    ProcessGroup::create("solver", options, Arc::new(launcher), states(folder)).unwrap()
}

// FX-53, FX-56
#[test]
fn a_suspended_group_has_no_process_and_no_byte_of_a_device() {
    let folder = tempfile::tempdir().unwrap();
    let devices = folder.path().join("devices");
    let mut group = counted(folder.path(), 2, 700, 1_000);
    assert_eq!((group.life(), group.pids().len()), (Life::Absent, 0));
    let used = || [0, 1].map(|rank| budget::used_bytes(&devices, &format!("a-{rank}")));
    assert_eq!(used(), [0, 0]);
    let started = group.activate(&placement("a", 2)).unwrap();
    assert_eq!((group.life(), used(), started.version), (Life::Active, [700, 700], 1));
    assert!(started.pids.iter().all(|&pid| is_there(pid)));
    let suspended = group.suspend().unwrap();
    assert_eq!((group.life(), used()), (Life::Suspended, [0, 0]));
    for (rank, exit) in suspended.exits.iter().enumerate() {
        let expected = (rank, started.pids[rank], Some(0), None);
        assert_eq!((exit.rank, exit.pid, exit.code, exit.signal), expected);
        assert!(!is_there(exit.pid));
    }
    // Another agent has the whole device meanwhile.
    drop(budget::take(&devices, "a-0", 1_000).unwrap());
    let resumed = group.resume(&placement("a", 2)).unwrap();
    let before: BTreeSet<u32> = started.pids.into_iter().collect();
    assert!(resumed.pids.iter().all(|pid| !before.contains(pid)), "processes are new");
    let (exits, lost) = group.destroy();
    assert_eq!((exits.len(), lost.len(), used()), (2, 0, [0, 0]));
    assert_eq!(fs::read_dir(folder.path().join("sockets")).unwrap().count(), 0);
}

// FX-54
#[test]
fn a_group_of_which_one_rank_cannot_start_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let devices = folder.path().join("devices");
    let mut group = counted(folder.path(), 3, 700, 1_000);
    let other = budget::take(&devices, "a-2", 400).unwrap();
    for _ in 0..2 {
        let error = group.activate(&placement("a", 3)).unwrap_err();
        assert!(matches!(&error, GroupError::NotStarted { rank: 2, .. }), "{error}");
        assert!(error.to_string().contains("device a-2 has 6 of 7 slots"), "{error}");
        assert_eq!((group.life(), group.pids().len(), group.version()), (Life::Absent, 0, 0));
        assert_eq!([0, 1].map(|rank| budget::used_bytes(&devices, &format!("a-{rank}"))), [0, 0]);
    }
    drop(other);
    group.activate(&placement("a", 3)).unwrap();
    assert_eq!(group.pids().len(), 3);
}

// FX-57, FX-58
#[test]
fn a_step_that_is_suspended_after_every_micro_batch_ends_with_the_same_bits() {
    let expected = expected_sha256("solver");
    let folder = tempfile::tempdir().unwrap();
    let mut group = group(folder.path(), "solver", 1);
    for (turn, step) in [0, 1].into_iter().flat_map(|step| [step; BATCHES]).enumerate() {
        let at = placement(["a", "b"][turn % 2], 1);
        if turn == 0 {
            group.activate(&at).unwrap()
        } else {
            group.resume(&at).unwrap()
        };
        let batch = &batches("solver", step)[turn % BATCHES];
        group.accumulate(std::slice::from_ref(batch)).unwrap();
        if turn % BATCHES == BATCHES - 1 {
            let update = group.apply().unwrap();
            assert_eq!(update.step.version, step + 1);
        }
        group.suspend().unwrap();
    }
    assert_eq!(kept_sha256(folder.path(), "solver"), Some(expected));
}

#[test]
fn a_state_is_resumed_by_any_number_of_ranks() {
    let expected = expected_sha256("solver");
    let folder = tempfile::tempdir().unwrap();
    for (turn, world) in [3, 1, 2, 4, 1].into_iter().enumerate() {
        let mut group = group(folder.path(), "solver", world);
        let at = placement("a", world);
        if turn == 0 {
            group.activate(&at).unwrap()
        } else {
            group.resume(&at).unwrap()
        };
        // The group takes over what the ones before it have, and adds one to it.
        assert_eq!(group.ledger().accumulated.len(), turn);
        group.accumulate(&batches("solver", 0)[turn..=turn]).unwrap();
        group.suspend().unwrap();
    }
    let mut group = group(folder.path(), "solver", 3);
    group.resume(&placement("a", 3)).unwrap();
    group.apply().unwrap();
    group.save().unwrap();
    Training::new(group, folder.path(), "solver").run_step(1);
    assert_eq!(kept_sha256(folder.path(), "solver"), Some(expected));
}

#[test]
fn what_has_not_changed_is_not_set_again() {
    let folder = tempfile::tempdir().unwrap();
    let parts = || fs::read_dir(folder.path().join("states/solver/parts")).unwrap().count();
    let mut group = group(folder.path(), "solver", 2);
    group.activate(&placement("a", 2)).unwrap();
    assert_eq!((group.suspend().unwrap().version, parts()), (1, 2), "trainer and ledger");
    group.resume(&placement("a", 2)).unwrap();
    group.accumulate(&batches("solver", 0)[..1]).unwrap();
    // One rank's cache and a ledger more; the trainer is the same file.
    assert_eq!((group.suspend().unwrap().version, parts()), (2, 4));
    group.resume(&placement("a", 2)).unwrap();
    assert_eq!((group.suspend().unwrap().version, parts()), (2, 4), "nothing is new");
}

#[test]
fn calls_out_of_order_and_wrong_values_are_refused_and_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut group = group(folder.path(), "solver", 1);
    let at = placement("a", 1);
    let all = batches("solver", 0);
    let life = |error: GroupError| matches!(error, GroupError::Life { .. });
    assert!(life(group.resume(&at).unwrap_err()));
    assert!(life(group.suspend().unwrap_err()));
    assert!(life(group.accumulate(&all).unwrap_err()));
    let two = group.activate(&placement("a", 2)).unwrap_err();
    assert!(matches!(two, GroupError::Config { field: "placement", .. }), "{two}");
    group.activate(&at).unwrap();
    assert!(life(group.activate(&at).unwrap_err()));
    let refused = group.apply().unwrap_err();
    assert!(matches!(refused, GroupError::Refused { rank: 0, .. }), "{refused}");
    assert_eq!(refused.kind(), ErrorKind::Input);
    // Rows of another version are refused by the rank, those beside them are not.
    let mut mixed = all[..2].to_vec();
    mixed[0].units[0].version = 9;
    let outcomes = group.accumulate(&mixed).unwrap();
    assert!(matches!(&outcomes[0], BatchOutcome::Refused { reason, .. } if reason.contains("version 9")));
    assert!(matches!(&outcomes[1], BatchOutcome::Accumulated { rank: 0, .. }));
    assert_eq!(group.ledger().accumulated.len(), 1);
    let taken = group.accumulate(&all).unwrap_err();
    assert!(matches!(&taken, GroupError::ClaimTaken { claim, .. } if *claim == all[1].claim), "{taken}");
    let twice = [all[2].clone(), all[2].clone()];
    assert!(matches!(group.accumulate(&twice).unwrap_err(), GroupError::ClaimTaken { .. }));
    assert_eq!((group.life(), group.ledger().accumulated.len()), (Life::Active, 1));
}

/// A gradient that is no number leaves the weights, and the claims behind it are named; the step is made without them.
#[test]
fn an_update_that_is_not_finite_is_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let mut group = group(folder.path(), "solver", 2);
    group.activate(&placement("a", 2)).unwrap();
    let mut all = batches("solver", 0);
    all[0].units[0].rows.iter_mut().for_each(|row| row.advantage = f32::MAX);
    group.accumulate(&all[..3]).unwrap();
    let refused = group.apply().unwrap_err();
    let GroupError::NotApplied { claims, .. } = &refused else { panic!("{refused}") };
    assert_eq!(claims.len(), 3);
    assert_eq!((group.life(), group.ledger().accumulated.len()), (Life::Active, 0));
    group.suspend().unwrap();
    group.resume(&placement("a", 2)).unwrap();
    group.accumulate(&batches("solver", 0)).unwrap();
    group.apply().unwrap();
    group.save().unwrap();
    Training::new(group, folder.path(), "solver").run_step(1);
    assert_eq!(kept_sha256(folder.path(), "solver"), Some(expected_sha256("solver")));
}

/// Two coordinators for one agent: the second to commit is refused, and what was committed stays.
#[test]
fn a_second_coordinator_cannot_commit_over_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let at = placement("a", 1);
    let mut first = group(folder.path(), "solver", 1);
    first.activate(&at).unwrap();
    let mut second = group(folder.path(), "solver", 1);
    second.resume(&at).unwrap();
    first.accumulate(&batches("solver", 0)[..1]).unwrap();
    second.accumulate(&batches("solver", 0)[1..2]).unwrap();
    first.suspend().unwrap();
    let refused = second.suspend().unwrap_err();
    assert!(matches!(&refused, GroupError::States { .. }), "{refused}");
    assert_eq!(refused.lost(), [batches("solver", 0)[1].claim.clone()]);
    assert!(second.resume(&at).is_err(), "it does not know the newest version");
    let newest = group(folder.path(), "solver", 1);
    assert!(newest.ledger().has(&batches("solver", 0)[0].claim));
}

/// Every command would cost the rank, and its work: told before there is one.
#[test]
fn limits_that_leave_a_rank_no_time_are_refused_when_the_group_is_created() {
    let folder = tempfile::tempdir().unwrap();
    let none = std::time::Duration::ZERO;
    let create = |options| {
        let launcher = Arc::new(launcher(folder.path(), RANK));
        ProcessGroup::create("solver", options, launcher, states(folder.path()))
    };
    let cases = [
        ("world", GroupOptions { world: 0, ..GroupOptions::default() }),
        ("start_limit", GroupOptions { start_limit: none, ..GroupOptions::default() }),
        ("command_limit", GroupOptions { command_limit: none, ..GroupOptions::default() }),
    ];
    for (expected, options) in cases {
        let refused = create(options).unwrap_err();
        assert!(matches!(&refused, GroupError::Config { field, .. } if *field == expected), "{refused}");
        assert_eq!(refused.kind(), ErrorKind::Input);
    }
    // Told to end, a rank need not be given time.
    let mut group = create(GroupOptions { end_limit: none, ..GroupOptions::default() }).unwrap();
    group.activate(&placement("a", 1)).unwrap();
    assert_eq!(group.suspend().unwrap().exits.len(), 1);
    assert_eq!(group.life(), Life::Suspended);
}

/// A rank that hangs is lost after the time limit, and killed.
#[test]
fn a_rank_that_does_not_answer_in_time_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let options =
        GroupOptions { command_limit: std::time::Duration::from_millis(300), ..GroupOptions::default() };
    let mut group = ProcessGroup::create(
        "solver",
        options,
        Arc::new(launcher(folder.path(), RANK)),
        states(folder.path()),
    )
    .unwrap();
    let pid = group.activate(&placement("a", 1)).unwrap().pids[0];
    order_kill(folder.path(), "rank0", Boundary::BatchReceived, crate::program::HANG);
    let error = group.accumulate(&batches("solver", 0)[..1]).unwrap_err();
    let GroupError::RankLost { reason, exit, lost, .. } = &error else { panic!("{error}") };
    assert_eq!((reason.as_str(), lost.len()), ("it did not answer in time", 1));
    assert_eq!(exit.unwrap().signal, Some(9));
    assert!(!is_there(pid));
    assert_eq!(group.life(), Life::Suspended);
}

// FX-71
#[test]
fn a_rank_has_its_device_by_name_whatever_its_process_sees() {
    let folder = tempfile::tempdir().unwrap();
    let devices = folder.path().join("devices");
    for device in ["a-0", "a-1"] {
        budget::make(&devices, device, 1_000);
    }
    // The only device that the process sees is its own, so its ordinal there is 0 on either.
    let launcher = launcher(folder.path(), RANK).variable(RANK_BYTES, "700").device_variable(VISIBLE);
    let options = GroupOptions::default();
    let mut group =
        ProcessGroup::create("solver", options, Arc::new(launcher), states(folder.path())).unwrap();
    let mut at = placement("a", 2);
    at.devices.reverse();
    at.devices.truncate(1);
    group.activate(&at).unwrap();
    let used = ["a-0", "a-1"].map(|device| budget::used_bytes(&devices, device));
    assert_eq!(used, [0, 700]);
}

/// Has ranks listen elsewhere than where they were told to.
struct Wayward(LocalLauncher, PathBuf);

impl Launcher for Wayward {
    fn spawn(&self, place: &RankPlace) -> io::Result<Launched> {
        self.0.spawn(&RankPlace { socket: self.1.clone(), ..place.clone() })
    }

    fn folder(&self, node: &str) -> PathBuf {
        self.0.folder(node)
    }
}

#[test]
fn a_coordinator_removes_only_sockets_that_it_gave_out() {
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = folder.path().join("elsewhere");
    let options = GroupOptions { world: 2, ..GroupOptions::default() };
    let create = |launcher: Arc<dyn Launcher>| {
        ProcessGroup::create("solver", options.clone(), launcher, states(folder.path())).unwrap()
    };
    let start = |launcher, rank: &str| {
        order_kill(folder.path(), rank, Boundary::Got, 0);
        let error = create(launcher).activate(&placement("a", 2)).unwrap_err();
        assert!(matches!(error, GroupError::NotStarted { .. }), "{error}");
    };
    start(Arc::new(Wayward(launcher(folder.path(), RANK), elsewhere.clone())), "rank0");
    assert!(elsewhere.exists(), "what a rank that was killed has made in a place of its own");
    start(Arc::new(launcher(folder.path(), RANK)), "rank0");
    assert_eq!(fs::read_dir(folder.path().join("sockets")).unwrap().count(), 0);
}

#[test]
fn a_folder_too_long_for_sockets_is_refused() {
    let folder = Path::new("/tmp").join("x".repeat(100));
    let refused = LocalLauncher::new("program", folder).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
}
