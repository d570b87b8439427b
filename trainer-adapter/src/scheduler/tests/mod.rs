#![allow(clippy::unwrap_used, reason = "tests")]

mod simulation;

use super::*;

fn node(name: &str, bytes: &[u64]) -> Node {
    let slot = |(ordinal, &bytes)| DeviceSlot { id: DeviceId(format!("{name}-{ordinal}")), ordinal, bytes };
    Node { name: name.into(), devices: bytes.iter().enumerate().map(slot).collect() }
}

fn scheduler(options: SchedulerOptions, nodes: &[Node], agents: &[(&str, usize, u64)]) -> Scheduler {
    let mut scheduler = Scheduler::new(options, nodes.to_vec()).unwrap();
    for &(name, ranks, bytes_per_rank) in agents {
        scheduler.add(name, Demand { ranks, bytes_per_rank }).unwrap();
    }
    scheduler
}

fn work(agent: &str) -> Event {
    Event::Work { agent: agent.into() }
}

fn done(agent: &str, turn: Turn, more: bool) -> Event {
    Event::Done { agent: agent.into(), turn, more }
}

fn suspended(agent: &str, turn: Turn) -> Event {
    Event::Suspended { agent: agent.into(), turn }
}

/// Agent, node and turn of every start.
fn starts(decisions: &[Decision]) -> Vec<(String, String, Turn)> {
    let start = |decision: &Decision| match decision {
        Decision::Start { agent, placement, turn, .. } => {
            Some((agent.clone(), placement.node.clone(), *turn))
        }
        _ => None,
    };
    decisions.iter().filter_map(start).collect()
}

fn only_start(decisions: &[Decision]) -> (String, String, Turn) {
    let [start] = &starts(decisions)[..] else { panic!("{decisions:?}") };
    start.clone()
}

// FX-54
#[test]
fn a_job_of_four_with_three_free_slots_waits_and_holds_nothing() {
    let agents = [("four", 4, 10), ("one", 1, 10), ("other", 1, 10)];
    let mut scheduler = scheduler(SchedulerOptions::default(), &[node("a", &[10; 4])], &agents);
    let (_, _, one) = only_start(&scheduler.handle(work("one"), 0).unwrap());
    assert_eq!(scheduler.handle(work("four"), 1).unwrap(), []);
    let free: u64 = scheduler.free_bytes("a").unwrap().values().sum();
    assert_eq!((free, scheduler.placement("four")), (30, None));
    // What it does not hold, others use.
    let (_, _, other) = only_start(&scheduler.handle(work("other"), 2).unwrap());
    for (agent, turn) in [("one", one), ("other", other)] {
        let leave = Decision::Suspend { agent: agent.into(), turn };
        assert_eq!(scheduler.handle(done(agent, turn, true), 3).unwrap(), [leave]);
    }
    assert_eq!(scheduler.handle(suspended("one", one), 4).unwrap().len(), 1, "its slot is used meanwhile");
}

// FX-72
#[test]
fn all_ranks_are_on_one_node_or_it_is_an_error() {
    let nodes = [node("a", &[10, 10]), node("b", &[10, 20, 10])];
    let mut scheduler = Scheduler::new(SchedulerOptions::default(), nodes).unwrap();
    for (ranks, bytes_per_rank) in [(4, 10), (2, 11), (1, 21), (5, 1)] {
        let demand = Demand { ranks, bytes_per_rank };
        let refused = scheduler.add("agent", demand);
        assert_eq!(refused, Err(SchedulerError::Unplaceable { agent: "agent".into(), demand }));
    }
    scheduler.add("agent", Demand { ranks: 3, bytes_per_rank: 10 }).unwrap();
    let decisions = scheduler.handle(work("agent"), 0).unwrap();
    let [Decision::Start { placement, .. }] = &decisions[..] else { panic!("{decisions:?}") };
    assert_eq!(placement.node, "b");
    assert_eq!(placement.devices.len(), 3);
}

// FX-71
#[test]
fn ranks_have_the_same_devices_in_whatever_order_those_are_named() {
    let mut permuted = node("a", &[10, 10, 10, 10]);
    let expected: Vec<DeviceId> = permuted.devices.iter().map(|slot| slot.id.clone()).collect();
    for _ in 0..4 {
        permuted.devices.rotate_left(1);
        permuted.devices.swap(0, 2);
        let agents = [("agent", 4, 10)];
        let mut scheduler = scheduler(SchedulerOptions::default(), std::slice::from_ref(&permuted), &agents);
        scheduler.handle(work("agent"), 0).unwrap();
        assert_eq!(scheduler.placement("agent").unwrap().devices, expected);
    }
}

// FX-22 (a state stays with the node that produced it, whose name its key goes by), FX-60
#[test]
fn the_node_that_has_the_state_is_chosen_when_it_is_free_and_a_copy_is_counted_otherwise() {
    let nodes = [node("a", &[10]), node("b", &[10])];
    let mut scheduler = scheduler(SchedulerOptions::default(), &nodes, &[("one", 1, 10), ("two", 1, 10)]);
    scheduler.lose("a");
    let (_, node_of_one, turn) = only_start(&scheduler.handle(work("one"), 0).unwrap());
    assert_eq!(node_of_one, "b");
    scheduler.handle(done("one", turn, false), 1).unwrap();
    scheduler.handle(suspended("one", turn), 1).unwrap();
    scheduler.handle(Event::NodeJoined(node("a", &[10])), 2).unwrap();
    // Free: its own node, although the other one has the smaller name.
    let (_, home, turn) = only_start(&scheduler.handle(work("one"), 3).unwrap());
    assert_eq!((home.as_str(), scheduler.counts().local_copies), ("b", 1));
    scheduler.handle(done("one", turn, false), 4).unwrap();
    scheduler.handle(suspended("one", turn), 4).unwrap();
    // Taken: another one, and the copy is counted.
    scheduler.agents.get_mut("two").unwrap().home = Some("b".into());
    scheduler.handle(work("two"), 5).unwrap();
    let decisions = scheduler.handle(work("one"), 6).unwrap();
    let [Decision::Start { placement, source, .. }] = &decisions[..] else { panic!("{decisions:?}") };
    assert_eq!((placement.node.as_str(), source), ("a", &Source::Remote { from: "b".into() }));
    assert_eq!(scheduler.counts().remote_copies, 1);
}

// FX-55
#[test]
fn a_turn_ends_with_its_micro_batch_when_others_wait_and_when_nothing_is_new() {
    let options = SchedulerOptions { turn_ms: 100, ..SchedulerOptions::default() };
    let mut scheduler = scheduler(options, &[node("a", &[10])], &[("one", 1, 10), ("two", 1, 10)]);
    let (_, _, one) = only_start(&scheduler.handle(work("one"), 0).unwrap());
    assert_eq!(scheduler.handle(done("one", one, true), 500).unwrap(), [], "nobody waits");
    scheduler.handle(work("two"), 510).unwrap();
    let leave = Decision::Suspend { agent: "one".into(), turn: one };
    assert_eq!(scheduler.handle(done("one", one, true), 520).unwrap(), [leave]);
    let (agent, _, two) = only_start(&scheduler.handle(suspended("one", one), 530).unwrap());
    assert_eq!(agent, "two");
    assert_eq!(scheduler.handle(done("two", two, true), 629).unwrap(), [], "a turn of 99 ms");
    // News of the turn that is over changes nothing.
    assert_eq!(scheduler.handle(done("one", one, false), 629).unwrap(), []);
    assert_eq!(scheduler.handle(suspended("one", one), 629).unwrap(), []);
    let leave = Decision::Suspend { agent: "two".into(), turn: two };
    assert_eq!(scheduler.handle(done("two", two, false), 629).unwrap(), [leave], "nothing is new");
    assert_eq!(only_start(&scheduler.handle(suspended("two", two), 640).unwrap()).0, "one");
    assert_eq!((scheduler.waiting().len(), scheduler.counts().preemptions), (0, 1));
}

#[test]
fn what_was_on_a_lost_node_waits_for_another_and_says_so_where_there_is_none() {
    let nodes = [node("a", &[10, 10]), node("b", &[10])];
    let mut scheduler = scheduler(SchedulerOptions::default(), &nodes, &[("one", 1, 10), ("two", 2, 10)]);
    let (_, _, two) = only_start(&scheduler.handle(work("two"), 0).unwrap());
    let decisions = scheduler.handle(Event::NodeLost { node: "a".into() }, 1).unwrap();
    assert_eq!(decisions, [Decision::Unplaceable { agent: "two".into() }]);
    assert_eq!(only_start(&scheduler.handle(work("one"), 2).unwrap()).1, "b");
    assert_eq!(scheduler.handle(suspended("two", two), 3).unwrap(), [], "that turn is over");
    assert_eq!(scheduler.waiting(), ["two"]);
    let again = scheduler.handle(Event::NodeJoined(node("a", &[10, 10])), 4).unwrap();
    assert_eq!(only_start(&again).0, "two");
}

#[test]
fn work_on_nodes_that_are_gone_is_said_to_have_no_place_each_time() {
    let mut scheduler = scheduler(SchedulerOptions::default(), &[node("a", &[10])], &[("one", 1, 10)]);
    let (_, _, turn) = only_start(&scheduler.handle(work("one"), 0).unwrap());
    let nowhere = [Decision::Unplaceable { agent: "one".into() }];
    assert_eq!(scheduler.handle(Event::NodeLost { node: "a".into() }, 1).unwrap(), nowhere);
    scheduler.handle(suspended("one", turn), 2).unwrap();
    assert_eq!(scheduler.handle(work("one"), 3).unwrap(), nowhere);
    assert_eq!(only_start(&scheduler.handle(Event::NodeJoined(node("a", &[10])), 4).unwrap()).0, "one");
}

#[test]
fn an_agent_that_is_withdrawn_waits_for_nothing_and_has_no_room() {
    let agents = [("one", 1, 10), ("two", 1, 10), ("three", 1, 10)];
    let mut scheduler = scheduler(SchedulerOptions::default(), &[node("a", &[10])], &agents);
    for agent in ["one", "two", "three"] {
        scheduler.handle(work(agent), 0).unwrap();
    }
    assert_eq!(scheduler.withdraw("two", 1).unwrap(), []);
    assert_eq!(scheduler.waiting(), ["three"]);
    // The room of one that had a turn is given away at once.
    let (agent, _, three) = only_start(&scheduler.withdraw("one", 2).unwrap());
    assert_eq!((agent.as_str(), scheduler.placement("one")), ("three", None));
    // A turn that began when its node was lost and came back.
    scheduler.handle(Event::NodeLost { node: "a".into() }, 3).unwrap();
    assert_eq!(scheduler.handle(suspended("three", three), 4).unwrap(), []);
    scheduler.handle(Event::NodeJoined(node("a", &[10])), 5).unwrap();
    scheduler.withdraw("three", 6).unwrap();
    assert_eq!(scheduler.free_bytes("a").unwrap()[&DeviceId("a-0".into())], 10);
    let unknown = SchedulerError::UnknownAgent { agent: "four".into() };
    assert_eq!(scheduler.withdraw("four", 7), Err(unknown));
}

#[test]
fn what_is_not_there_or_there_already_is_refused() {
    let mut scheduler = scheduler(SchedulerOptions::default(), &[node("a", &[10])], &[("one", 1, 10)]);
    let unknown = SchedulerError::UnknownAgent { agent: "two".into() };
    assert_eq!(scheduler.handle(work("two"), 0), Err(unknown.clone()));
    assert_eq!(scheduler.remove("two"), Err(unknown));
    let demand = Demand { ranks: 1, bytes_per_rank: 1 };
    assert_eq!(scheduler.add("one", demand), Err(SchedulerError::KnownAgent { agent: "one".into() }));
    let demand = Demand { ranks: 0, bytes_per_rank: 1 };
    assert_eq!(scheduler.add("two", demand), Err(SchedulerError::NoRanks { agent: "two".into() }));
    let known = SchedulerError::KnownNode { node: "a".into() };
    assert_eq!(scheduler.handle(Event::NodeJoined(node("a", &[10])), 0), Err(known));
    let mut twice = node("b", &[10, 10]);
    twice.devices[1].id = twice.devices[0].id.clone();
    assert!(matches!(scheduler.handle(Event::NodeJoined(twice), 0), Err(SchedulerError::KnownDevice { .. })));
    scheduler.handle(work("one"), 0).unwrap();
    assert_eq!(scheduler.remove("one"), Err(SchedulerError::HasTurn { agent: "one".into() }));
}

/// Small agents that always have more to do, one after the other, beside one that needs the whole node: how many of them are started
/// before it.
fn starts_before_the_large_one(overtakes_max: u32) -> Option<u64> {
    let options = SchedulerOptions { overtakes_max, ..SchedulerOptions::default() };
    let agents = [("large", 2, 10), ("a", 1, 10), ("b", 1, 10), ("c", 1, 10), ("d", 1, 10)];
    let mut scheduler = scheduler(options, &[node("a", &[10, 10])], &agents);
    let mut running = Vec::new();
    for small in ["a", "b", "large", "c", "d"] {
        running.extend(starts(&scheduler.handle(work(small), 0).unwrap()));
    }
    for _ in 0..1_000 {
        let (agent, _, turn) = running.remove(0);
        if agent == "large" {
            return Some(scheduler.counts().starts - 1);
        }
        let decisions = scheduler.handle(done(&agent, turn, true), 0).unwrap();
        if decisions.is_empty() {
            running.push((agent, "a".into(), turn));
        } else {
            running.extend(starts(&scheduler.handle(suspended(&agent, turn), 0).unwrap()));
        }
    }
    None
}

#[test]
fn who_is_overtaken_too_often_has_a_node_kept_and_would_starve_without() {
    for overtakes_max in [0, 1, 8] {
        // Two were there before it.
        assert_eq!(starts_before_the_large_one(overtakes_max), Some(2 + u64::from(overtakes_max)));
    }
    assert_eq!(starts_before_the_large_one(u32::MAX), None);
}
