//! Which agents train now, and where: a state machine without threads, processes or a clock.
//!
//! Events go in ([`Event`]), decisions come out ([`Decision`]). Whoever carries decisions out tells when it has:
//! [`crate::process_group::Fleet`] does for local processes. Time is handed in, in milliseconds from any beginning.
//!
//! Words: an agent *waits* from the moment it has work until it is started; a *turn* is from its start until its processes have
//! ended; *room* is free memory of devices.
//!
//! Invariants
//! - Room is taken by the decision to start, all ranks or none, and given back when the end of the processes was told of. So the
//!   bytes taken of a device are never more than it has, and an agent that waits or is idle holds none.
//! - All ranks of an agent are on one node, each on a device of its own; several agents may share a device. An agent that no node
//!   could hold is an error when it is added, and a decision of its own when a lost node makes it so.
//! - The same events at the same times give the same decisions.
//!
//! Who is started
//! 1. Agents are looked at in the order in which they began to wait. One that fits is started: on the node that has its state, if
//!    it fits there, else where the least room is left over.
//! 2. An agent that does not fit waits and holds nothing; those behind it may go first. Once `overtakes_max` have been started on
//!    nodes that could hold it, one such node is kept for it: nobody who waits behind it is started there.
//! 3. An agent keeps its turn while it has more to do and nobody else needs its room. When a micro-batch is done, the turn has
//!    lasted `turn_ms`, and somebody waits who fits nowhere, counting what is about to be left as free, the agent is suspended
//!    and waits anew, behind all others. An agent with nothing to do is suspended at once.
//!
//! So as long as micro-batches end, everybody who waits is started: each start of another either was one of a bounded number of
//! overtakings, or was on another node than the one that is kept.

mod agent;
mod error;
mod event;
mod node;
mod queue;

use std::collections::BTreeMap;

use agent::{Agent, Phase, Placed, Waiting};
pub use error::SchedulerError;
pub use event::{Decision, Event, Source, Turn};
use node::Room;
pub use node::{Demand, DeviceId, DeviceSlot, Node, Placement};

/// How turns are given: plain data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchedulerOptions {
    /// How long a turn lasts at least while its agent has more to do, in milliseconds. More means fewer swaps and longer waits.
    /// Default 0: a turn is a micro-batch when somebody waits.
    pub turn_ms: u64,
    /// How many may be started before an agent that began to wait earlier, where it would have had room on an empty node.
    /// Default 8.
    pub overtakes_max: u32,
}

impl Default for SchedulerOptions {
    fn default() -> Self {
        Self { turn_ms: 0, overtakes_max: 8 }
    }
}

/// What has been decided so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SchedulerCounts {
    /// Starts.
    pub starts: u64,
    /// Starts on the node that had the state.
    pub local_copies: u64,
    /// Starts on another node: the state was copied between nodes.
    pub remote_copies: u64,
    /// Agents that were suspended with more to do, because others waited.
    pub preemptions: u64,
}

/// Gives agents turns on device slots.
///
/// ```
/// use forebay_trainer_adapter::scheduler::{Decision, Demand, DeviceId, DeviceSlot, Event, Node, Scheduler, SchedulerOptions};
///
/// let slot = |ordinal: usize| DeviceSlot { id: DeviceId(format!("GPU-{ordinal}")), ordinal, bytes: 80 };
/// let node = Node { name: "a".into(), devices: (0..3).map(slot).collect() };
/// let mut scheduler = Scheduler::new(SchedulerOptions::default(), [node])?;
/// scheduler.add("solver", Demand { ranks: 2, bytes_per_rank: 60 })?;
/// scheduler.add("checker", Demand { ranks: 2, bytes_per_rank: 60 })?;
///
/// let started = scheduler.handle(Event::Work { agent: "solver".into() }, 0)?;
/// assert!(matches!(&started[..], [Decision::Start { placement, .. }] if placement.devices.len() == 2));
/// // One device is left, and the other agent needs two: it waits, and holds nothing.
/// assert_eq!(scheduler.handle(Event::Work { agent: "checker".into() }, 5)?, []);
/// assert_eq!(scheduler.free_bytes("a").unwrap()[&DeviceId("GPU-2".into())], 80);
/// # Ok::<(), forebay_trainer_adapter::scheduler::SchedulerError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Scheduler {
    options: SchedulerOptions,
    nodes: BTreeMap<String, Node>,
    agents: BTreeMap<String, Agent>,
    next_ticket: u64,
    next_turn: u64,
    counts: SchedulerCounts,
}

impl Scheduler {
    /// A scheduler over these nodes.
    ///
    /// # Errors
    /// [`SchedulerError::KnownNode`], [`SchedulerError::KnownDevice`].
    pub fn new(
        options: SchedulerOptions,
        nodes: impl IntoIterator<Item = Node>,
    ) -> Result<Self, SchedulerError> {
        let (nodes_by_name, agents) = Default::default();
        let counts = SchedulerCounts::default();
        let mut scheduler =
            Self { options, nodes: nodes_by_name, agents, next_ticket: 0, next_turn: 1, counts };
        nodes.into_iter().try_for_each(|node| scheduler.join(node))?;
        Ok(scheduler)
    }

    /// Adds an agent. It costs nothing until it has work.
    ///
    /// # Errors
    /// [`SchedulerError::Unplaceable`] if no node could hold it, [`SchedulerError::NoRanks`], [`SchedulerError::KnownAgent`].
    pub fn add(&mut self, agent: &str, demand: Demand) -> Result<(), SchedulerError> {
        let name = || agent.to_owned();
        if demand.ranks == 0 {
            return Err(SchedulerError::NoRanks { agent: name() });
        }
        if self.agents.contains_key(agent) {
            return Err(SchedulerError::KnownAgent { agent: name() });
        }
        if !self.is_placeable(demand) {
            return Err(SchedulerError::Unplaceable { agent: name(), demand });
        }
        self.agents.insert(name(), Agent::new(demand));
        Ok(())
    }

    /// An agent has nothing to do and no process, whatever was told of it before: it does not wait, and has no room. For whoever carries
    /// out the decisions about an agent and stops doing so.
    ///
    /// # Errors
    /// [`SchedulerError::UnknownAgent`].
    pub fn withdraw(&mut self, agent: &str, now_ms: u64) -> Result<Vec<Decision>, SchedulerError> {
        self.agent_mut(agent)?.phase = Phase::Idle;
        Ok(self.start_waiting(now_ms))
    }

    /// Removes an agent that has no turn.
    ///
    /// # Errors
    /// [`SchedulerError::UnknownAgent`], [`SchedulerError::HasTurn`].
    pub fn remove(&mut self, agent: &str) -> Result<(), SchedulerError> {
        if self.agent_mut(agent)?.placed().is_some() {
            return Err(SchedulerError::HasTurn { agent: agent.to_owned() });
        }
        self.agents.remove(agent);
        Ok(())
    }

    /// Takes an event in and gives what is to be done now, in this order. An event of a turn that is over changes nothing.
    ///
    /// # Errors
    /// [`SchedulerError::UnknownAgent`]; [`SchedulerError::KnownNode`] and [`SchedulerError::KnownDevice`] of a node that joins.
    pub fn handle(&mut self, event: Event, now_ms: u64) -> Result<Vec<Decision>, SchedulerError> {
        let mut decisions = Vec::new();
        match event {
            Event::Work { agent } => decisions.extend(self.work(&agent)?),
            Event::Done { agent, turn, more } => {
                decisions.extend(self.done(&agent, turn, more, now_ms)?);
            }
            Event::Suspended { agent, turn } => self.ended(&agent, turn, true)?,
            Event::Failed { agent, turn } => self.ended(&agent, turn, false)?,
            Event::NodeJoined(node) => self.join(node)?,
            Event::NodeLost { node } => decisions.extend(self.lose(&node)),
        }
        decisions.extend(self.start_waiting(now_ms));
        Ok(decisions)
    }

    /// Free bytes of a node's devices; none if there is no such node.
    pub fn free_bytes(&self, node: &str) -> Option<BTreeMap<DeviceId, u64>> {
        let room = self.room(self.nodes.get(node)?, |_| true);
        Some(room.by_device())
    }

    /// Where an agent is placed; none if it has no turn.
    pub fn placement(&self, agent: &str) -> Option<&Placement> {
        Some(&self.agents.get(agent)?.placed()?.placement)
    }

    /// The agents that wait, first come first.
    pub fn waiting(&self) -> Vec<&str> {
        let mut waiting: Vec<(u64, &str)> = self
            .agents
            .iter()
            .filter_map(|(name, agent)| Some((agent.waiting()?.ticket, name.as_str())))
            .collect();
        waiting.sort_unstable();
        waiting.into_iter().map(|(_, name)| name).collect()
    }

    /// What has been decided so far.
    pub fn counts(&self) -> SchedulerCounts {
        self.counts
    }

    fn agent_mut(&mut self, agent: &str) -> Result<&mut Agent, SchedulerError> {
        self.agents.get_mut(agent).ok_or_else(|| SchedulerError::UnknownAgent { agent: agent.to_owned() })
    }

    /// What is free of a node, besides the agents that `counts` says count.
    fn room(&self, node: &Node, counts: impl Fn(&Placed) -> bool) -> Room {
        let mut room = Room::empty(node);
        for agent in self.agents.values() {
            let placed = agent.placed().filter(|placed| placed.placement.node == node.name);
            if let Some(placed) = placed.filter(|placed| counts(placed)) {
                room.take(&placed.placement.devices, agent.demand.bytes_per_rank);
            }
        }
        room
    }

    fn join(&mut self, node: Node) -> Result<(), SchedulerError> {
        if self.nodes.contains_key(&node.name) {
            return Err(SchedulerError::KnownNode { node: node.name });
        }
        for (index, slot) in node.devices.iter().enumerate() {
            if node.devices[..index].iter().any(|earlier| earlier.id == slot.id) {
                return Err(SchedulerError::KnownDevice { node: node.name, device: slot.id.to_string() });
            }
        }
        self.nodes.insert(node.name.clone(), node);
        Ok(())
    }

    fn lose(&mut self, node: &str) -> Vec<Decision> {
        self.nodes.remove(node);
        let mut ended = Vec::new();
        for (name, agent) in &mut self.agents {
            if agent.home.as_deref() == Some(node) {
                agent.home = None;
            }
            if agent.placed().is_some_and(|placed| placed.placement.node == node) {
                ended.push(name.clone());
            }
            if let Some(waiting) = agent.waiting_mut().filter(|waiting| waiting.kept.as_deref() == Some(node))
            {
                waiting.kept = None;
            }
        }
        ended.iter().for_each(|agent| self.wait(agent));
        let unplaceable = |name: &&str| !self.is_placeable(self.agents[*name].demand);
        let waiting = self.waiting().into_iter().filter(unplaceable);
        waiting.map(|agent| Decision::Unplaceable { agent: agent.to_owned() }).collect()
    }

    /// Whether some node could hold it if it were empty.
    fn is_placeable(&self, demand: Demand) -> bool {
        self.nodes.values().any(|node| Room::empty(node).fit(demand).is_some())
    }

    /// Puts an agent at the end of the queue.
    fn wait(&mut self, agent: &str) {
        let ticket = self.next_ticket;
        if let Some(agent) = self.agents.get_mut(agent) {
            agent.phase = Phase::Waiting(Waiting { ticket, overtaken: 0, kept: None });
            self.next_ticket += 1;
        }
    }
}

#[cfg(test)]
mod tests;
