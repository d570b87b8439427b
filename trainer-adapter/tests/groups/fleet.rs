//! More agents than fit: eight on devices for two, and the same weights as on devices for eight.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay_trainer_adapter::process_group::{Fleet, GroupError, GroupOptions, Life, Next, ProcessGroup};
use forebay_trainer_adapter::scheduler::{
    DeviceId, DeviceSlot, Event, Node, Scheduler, SchedulerCounts, SchedulerError, SchedulerOptions,
};

use crate::budget;
use crate::program::{
    BATCHES, RANK, RANK_BYTES, STEPS, batches, expected_sha256, group, kept_sha256, launcher, states,
};

const AGENTS: usize = 8;
const RANK_BYTES_TAKEN: u64 = 400;

fn node(device_bytes: u64) -> Node {
    let slot = DeviceSlot { id: DeviceId("a-0".into()), ordinal: 0, bytes: device_bytes };
    Node { name: "a".into(), devices: vec![slot] }
}

fn scheduler(device_bytes: u64) -> Scheduler {
    Scheduler::new(SchedulerOptions::default(), [node(device_bytes)]).unwrap()
}

/// Trains all agents to the end, each on a thread of its own, and gives what was decided.
fn train(folder: &Path, device_bytes: u64) -> SchedulerCounts {
    let devices = folder.join("devices");
    budget::make(&devices, "a-0", device_bytes);
    let fleet = Fleet::new(scheduler(device_bytes));
    let launcher = Arc::new(launcher(folder, RANK).variable(RANK_BYTES, RANK_BYTES_TAKEN.to_string()));
    std::thread::scope(|scope| {
        for index in 0..AGENTS {
            let agent = format!("agent-{index}");
            let group =
                ProcessGroup::create(&agent, GroupOptions::default(), launcher.clone(), states(folder))
                    .unwrap();
            let mut member = fleet.join(group, RANK_BYTES_TAKEN).unwrap();
            scope.spawn(move || {
                for step in 0..STEPS {
                    member.run(|group| one_call(group, &agent, step)).unwrap();
                    // Between steps it is idle, and costs nothing.
                    assert_eq!((member.group().life(), member.group().pids().len()), (Life::Suspended, 0));
                }
            });
        }
    });
    assert_eq!(budget::used_bytes(&devices, "a-0"), 0);
    fleet.counts()
}

/// A micro-batch, or the update behind the last one.
fn one_call(group: &mut ProcessGroup, agent: &str, step: u64) -> Result<Next, GroupError> {
    let next = batches(agent, step).into_iter().find(|batch| !group.ledger().has(&batch.claim));
    match next {
        Some(batch) => {
            group.accumulate(&[batch])?;
            Ok(Next::More)
        }
        None => {
            group.apply()?;
            Ok(Next::Idle)
        }
    }
}

// FX-56, FX-59. A rank that finds less memory than it was promised fails its group's start, so that it ends well shows that the
// scheduler never gave out more than there is.
#[test]
fn eight_agents_on_memory_for_two_end_with_the_weights_of_memory_for_eight() {
    let (two, eight) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let swapped = train(two.path(), 1_000);
    let resident = train(eight.path(), AGENTS as u64 * RANK_BYTES_TAKEN);
    for index in 0..AGENTS {
        let agent = format!("agent-{index}");
        let expected = expected_sha256(&agent);
        assert_eq!(kept_sha256(two.path(), &agent).as_ref(), Some(&expected), "{agent}");
        assert_eq!(kept_sha256(eight.path(), &agent).as_ref(), Some(&expected), "{agent}");
    }
    // With room for all nobody is suspended but for want of work: a start a step.
    assert_eq!((resident.starts, resident.preemptions), (AGENTS as u64 * STEPS, 0));
    // With room for two turns are short: most micro-batches end with a swap.
    assert!(swapped.preemptions > (AGENTS * BATCHES) as u64, "{swapped:?}");
    assert_eq!(swapped.remote_copies, 0);
}

// FX-72
#[test]
fn an_agent_that_no_node_could_hold_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let fleet = Fleet::new(scheduler(1_000));
    let refused = fleet.join(group(folder.path(), "solver", 2), 10).unwrap_err();
    assert!(matches!(refused, GroupError::Scheduler(SchedulerError::Unplaceable { .. })), "{refused}");
}

/// An agent whose work fails has no process and no room afterwards, and can go on; the others never notice.
#[test]
fn a_failure_of_one_agent_gives_its_room_back() {
    let folder = tempfile::tempdir().unwrap();
    budget::make(&folder.path().join("devices"), "a-0", 1_000);
    let fleet = Fleet::new(scheduler(400));
    let launcher = launcher(folder.path(), RANK).variable(RANK_BYTES, "400");
    let group =
        ProcessGroup::create("solver", GroupOptions::default(), Arc::new(launcher), states(folder.path()));
    let mut member = fleet.join(group.unwrap(), 400).unwrap();
    let batch = batches("solver", 0).remove(0);
    let failed = member.run(|group| {
        group.accumulate(std::slice::from_ref(&batch))?;
        group.accumulate(std::slice::from_ref(&batch))?;
        Ok(Next::More)
    });
    assert!(matches!(failed, Err(GroupError::ClaimTaken { .. })), "{failed:?}");
    assert_eq!((member.group().life(), member.group().pids().len()), (Life::Suspended, 0));
    assert!(member.group().ledger().has(&batch.claim), "what was done before is kept");
    member.run(|group| one_call(group, "solver", 0)).unwrap();
    let group = member.leave();
    assert_eq!(group.ledger().applied.len(), BATCHES);
}

/// A panic in the work of one agent: its processes end, and the next one has the room.
#[test]
fn a_panic_in_an_agents_work_gives_its_room_back() {
    let folder = tempfile::tempdir().unwrap();
    let devices = folder.path().join("devices");
    budget::make(&devices, "a-0", 400);
    let fleet = Fleet::new(scheduler(400));
    let launcher = Arc::new(launcher(folder.path(), RANK).variable(RANK_BYTES, "400"));
    let join = |agent: &str| {
        let options = GroupOptions::default();
        let group = ProcessGroup::create(agent, options, launcher.clone(), states(folder.path()));
        fleet.join(group.unwrap(), 400).unwrap()
    };
    let (mut solver, mut checker) = (join("solver"), join("checker"));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        solver.run(|group| {
            assert_eq!(group.pids().len(), 1);
            std::panic::resume_unwind(Box::new("the work fails"))
        })
    }));
    assert!(panicked.is_err());
    assert_eq!((solver.group().life(), budget::used_bytes(&devices, "a-0")), (Life::Suspended, 0));
    checker.run(|group| one_call(group, "checker", 0)).unwrap();
    solver.run(|group| one_call(group, "solver", 0)).unwrap();
}

/// Does it on a thread, so that a wait without an end fails instead of hanging.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(Duration::from_secs(60)).unwrap()
}

/// Its only node is lost while it works: the agent is told so, keeps what it has, and goes on where a node joins.
#[test]
fn an_agent_whose_only_node_is_lost_is_told_and_goes_on_when_it_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let fleet = Fleet::new(scheduler(400));
    let mut member = fleet.join(group(folder.path(), "solver", 1), 400).unwrap();
    let lost = fleet.clone();
    let (mut member, refused) = in_time(move || {
        let refused = member.run(|group| {
            let next = one_call(group, "solver", 0)?;
            lost.tell(Event::NodeLost { node: "a".into() })?;
            Ok(next)
        });
        (member, refused.unwrap_err())
    });
    assert!(matches!(refused, GroupError::Scheduler(SchedulerError::Unplaceable { .. })), "{refused}");
    assert_eq!((member.group().life(), member.group().ledger().accumulated.len()), (Life::Suspended, 1));
    fleet.tell(Event::NodeJoined(node(400))).unwrap();
    assert_eq!(fleet.counts().starts, 1, "nobody waits any more");
    let member = in_time(move || {
        member.run(|group| one_call(group, "solver", 0)).unwrap();
        member
    });
    assert_eq!(member.leave().ledger().applied.len(), BATCHES);
}

/// Its node is lost and comes back during its last call: the turn that it is given then is for nobody, and takes nothing from others.
#[test]
fn a_turn_that_comes_after_the_work_has_ended_takes_no_room() {
    let folder = tempfile::tempdir().unwrap();
    let fleet = Fleet::new(scheduler(400));
    let join = |agent: &str| fleet.join(group(folder.path(), agent, 1), 400).unwrap();
    let (mut solver, mut checker) = (join("solver"), join("checker"));
    solver
        .run(|_| {
            fleet.tell(Event::NodeLost { node: "a".into() })?;
            fleet.tell(Event::NodeJoined(node(400)))?;
            Ok(Next::Idle)
        })
        .unwrap();
    let checker = in_time(move || {
        checker.run(|group| one_call(group, "checker", 0)).unwrap();
        checker
    });
    assert_eq!(checker.group().ledger().applied.len(), BATCHES);
    assert_eq!(solver.leave().life(), Life::Suspended);
}
