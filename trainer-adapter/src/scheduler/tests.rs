#![allow(clippy::unwrap_used, reason = "tests")]

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

// FX-60
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

/// A run with random nodes, agents and times, and what it is compared with: the room as the simulation itself counts it.
struct Simulation {
    state: u64,
    now_ms: u64,
    nodes: Vec<Node>,
    demands: BTreeMap<String, Demand>,
    scheduler: Scheduler,
    /// Processes that are there: the agent, where, and whether it was told to leave.
    running: BTreeMap<String, (Turn, Placement, bool)>,
    /// How many starts there were when the agent began to wait.
    waiting_since: BTreeMap<String, u64>,
    longest_wait: u64,
    starts: u64,
    trace: Vec<Decision>,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut state = seed;
        let mut random = |below: u64| below_of(&mut state, below);
        let nodes: Vec<Node> = (0..1 + random(3))
            .map(|index| {
                let devices: Vec<u64> = (0..1 + random(4)).map(|_| 40 + 20 * random(4)).collect();
                node(&format!("node-{index}"), &devices)
            })
            .collect();
        let options = SchedulerOptions { turn_ms: 10 * random(4), overtakes_max: random(5) as u32 };
        let mut scheduler = Scheduler::new(options, nodes.clone()).unwrap();
        let mut demands = BTreeMap::new();
        for index in 0..2 + random(8) {
            let demand = Demand { ranks: 1 + random(4) as usize, bytes_per_rank: 20 + 20 * random(3) };
            let name = format!("agent-{index}");
            if scheduler.add(&name, demand).is_ok() {
                demands.insert(name, demand);
            }
        }
        let (running, waiting_since, trace) = Default::default();
        let (now_ms, longest_wait, starts) = (0, 0, 0);
        Self { state, now_ms, nodes, demands, scheduler, running, waiting_since, longest_wait, starts, trace }
    }

    fn random(&mut self, below: u64) -> u64 {
        below_of(&mut self.state, below)
    }

    /// Work for a random agent, or the next thing that happens to a random one that runs.
    fn step(&mut self, seed: u64) {
        self.now_ms += self.random(8);
        let names: Vec<String> = self.demands.keys().cloned().collect();
        if names.is_empty() {
            return;
        }
        let agent = names[self.random(names.len() as u64) as usize].clone();
        let event = match self.running.get(&agent).cloned() {
            None => work(&agent),
            Some((turn, _, false)) => {
                let more = self.random(4) > 0;
                done(&agent, turn, more)
            }
            Some((turn, _, true)) => {
                self.running.remove(&agent);
                match self.random(8) {
                    0 => Event::Failed { agent: agent.clone(), turn },
                    _ => suspended(&agent, turn),
                }
            }
        };
        let decisions = self.scheduler.handle(event, self.now_ms).unwrap();
        for decision in &decisions {
            self.carry_out(decision, seed);
        }
        self.trace.extend(decisions);
        self.check(seed);
    }

    fn carry_out(&mut self, decision: &Decision, seed: u64) {
        match decision {
            Decision::Start { agent, turn, placement, .. } => {
                self.starts += 1;
                if let Some(since) = self.waiting_since.remove(agent) {
                    self.longest_wait = self.longest_wait.max(self.starts - since);
                }
                let before = self.running.insert(agent.clone(), (*turn, placement.clone(), false));
                assert!(before.is_none(), "seed {seed}: {agent} was started twice");
            }
            Decision::Suspend { agent, turn } => {
                let running = self.running.get_mut(agent).unwrap();
                assert!(running.0 == *turn && !running.2, "seed {seed}: {agent}");
                running.2 = true;
            }
            Decision::Unplaceable { agent } => panic!("seed {seed}: {agent}"),
        }
    }

    fn check(&mut self, seed: u64) {
        let mut taken: BTreeMap<&DeviceId, u64> = BTreeMap::new();
        for (agent, (_, placement, _)) in &self.running {
            let demand = self.demands[agent];
            let node = self.nodes.iter().find(|node| node.name == placement.node).unwrap();
            assert_eq!(placement.devices.len(), demand.ranks, "seed {seed}: {agent}");
            for (index, device) in placement.devices.iter().enumerate() {
                assert!(node.devices.iter().any(|slot| slot.id == *device), "seed {seed}: {agent}");
                assert!(!placement.devices[..index].contains(device), "seed {seed}: {agent}");
                *taken.entry(device).or_default() += demand.bytes_per_rank;
            }
        }
        for node in &self.nodes {
            let free = self.scheduler.free_bytes(&node.name).unwrap();
            for slot in &node.devices {
                let taken = taken.get(&slot.id).copied().unwrap_or(0);
                assert!(taken <= slot.bytes, "seed {seed}: {} of {}", taken, slot.bytes);
                // Who waits or is idle holds nothing.
                assert_eq!(free[&slot.id], slot.bytes - taken, "seed {seed}");
            }
        }
        for agent in self.scheduler.waiting() {
            self.waiting_since.entry(agent.to_owned()).or_insert(self.starts);
        }
    }
}

fn below_of(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (z ^ (z >> 31)) % below
}

// FX-54, FX-59
#[test]
fn in_random_runs_room_is_never_exceeded_and_nobody_starves() {
    let seeds = std::env::var("FOREBAY_SEED").map_or(0..300, |seed| {
        let seed = seed.parse().expect("FOREBAY_SEED is a number");
        seed..seed + 1
    });
    for seed in seeds {
        let mut simulation = Simulation::new(seed);
        (0..2_000).for_each(|_| simulation.step(seed));
        // Each of ten agents may be overtaken a few times, and waits behind those who wait before it. On a node that is kept for
        // another the others go on meanwhile.
        let agents = simulation.demands.len() as u64;
        let longest = simulation.longest_wait;
        assert!(longest <= 60 * (agents + 4), "seed {seed}: {longest} starts went by, {agents} agents");
        let still = simulation.waiting_since.iter().map(|(agent, since)| (agent, simulation.starts - since));
        for (agent, passed) in still {
            assert!(passed <= 60 * (agents + 4), "seed {seed}: {agent} waits since {passed} starts");
        }
    }
}

#[test]
fn the_same_events_give_the_same_decisions() {
    let run = |seed| {
        let mut simulation = Simulation::new(seed);
        (0..500).for_each(|_| simulation.step(seed));
        simulation.trace
    };
    for seed in 1_000..1_010 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}
