//! Random runs of the scheduler beside a plain count of who has what.
//!
//! Work comes for random agents, and whatever runs goes on at random times: a micro-batch is done, processes end. After every event
//! the bytes taken are counted anew and compared with what the scheduler says, so that it can neither give out too much nor let
//! somebody who waits hold something. How many starts go by while an agent waits is bounded.

use super::*;

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
        assert!(longest <= 4 * (agents + 4), "seed {seed}: {longest} starts went by, {agents} agents");
        let still = simulation.waiting_since.iter().map(|(agent, since)| (agent, simulation.starts - since));
        for (agent, passed) in still {
            assert!(passed <= 4 * (agents + 4), "seed {seed}: {agent} waits since {passed} starts");
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
