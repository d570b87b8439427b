//! Turns: who waits, who is started, who has to leave.

use std::collections::BTreeSet;

use super::agent::{Phase, Placed};
use super::event::{Decision, Source, Turn};
use super::node::{DeviceId, Node, Placement, Room};
use super::{Scheduler, SchedulerError};

impl Scheduler {
    /// There is something to do: the agent waits, and is told where it would wait for a node that is gone.
    pub(super) fn work(&mut self, agent: &str) -> Result<Option<Decision>, SchedulerError> {
        let entry = self.agent_mut(agent)?;
        let demand = entry.demand;
        match &mut entry.phase {
            Phase::Idle => self.wait(agent),
            Phase::Waiting(_) => {}
            Phase::Placed(placed) => {
                placed.more = true;
                return Ok(None);
            }
        }
        let is_told = !self.is_placeable(demand);
        Ok(is_told.then(|| Decision::Unplaceable { agent: agent.to_owned() }))
    }

    /// A micro-batch is done: the agent stays, or leaves.
    pub(super) fn done(
        &mut self,
        agent: &str,
        turn: Turn,
        more: bool,
        now_ms: u64,
    ) -> Result<Option<Decision>, SchedulerError> {
        let turn_ms = self.options.turn_ms;
        let Some(placed) = self.agent_mut(agent)?.in_turn(turn).filter(|placed| !placed.is_leaving) else {
            return Ok(None);
        };
        // What was told of in the meantime is more to do, whatever the agent knew when it ended.
        let more = more || std::mem::take(&mut placed.more);
        let (node, is_over) =
            (placed.placement.node.clone(), now_ms.saturating_sub(placed.since_ms) >= turn_ms);
        let leaves = !more || (is_over && self.is_needed(&node));
        if !leaves {
            return Ok(None);
        }
        self.counts.preemptions += u64::from(more);
        if let Some(placed) = self.agent_mut(agent)?.in_turn(turn) {
            (placed.is_leaving, placed.more) = (true, more);
        }
        Ok(Some(Decision::Suspend { agent: agent.to_owned(), turn }))
    }

    /// The processes of a turn have ended.
    pub(super) fn ended(&mut self, agent: &str, turn: Turn, is_set: bool) -> Result<(), SchedulerError> {
        let entry = self.agent_mut(agent)?;
        let Some(placed) = entry.in_turn(turn) else { return Ok(()) };
        let (node, more) = (placed.placement.node.clone(), placed.more && is_set);
        entry.phase = Phase::Idle;
        if is_set {
            entry.home = Some(node);
        }
        if more {
            self.wait(agent);
        }
        Ok(())
    }

    /// Whether somebody who waits could be on this node, and fits nowhere once those who leave have left.
    fn is_needed(&self, node: &str) -> bool {
        let mut rooms: Vec<(&Node, Room)> = self
            .nodes
            .values()
            .map(|node| (node, self.room(node, |placed: &Placed| !placed.is_leaving)))
            .collect();
        for name in self.waiting() {
            let agent = &self.agents[name];
            let kept = agent.waiting().and_then(|waiting| waiting.kept.as_deref());
            let place = rooms.iter_mut().filter(|(node, _)| kept.is_none_or(|kept| kept == node.name));
            let place = place.map(|(_, room)| (room.fit(agent.demand), room)).find(|(fit, _)| fit.is_some());
            if let Some((Some(devices), room)) = place {
                room.take(&devices, agent.demand.bytes_per_rank);
                continue;
            }
            let could =
                self.nodes.get(node).is_some_and(|node| Room::empty(node).fit(agent.demand).is_some());
            if could && kept.is_none_or(|kept| kept == node) {
                return true;
            }
        }
        false
    }

    /// Starts whoever may be started, first come first.
    pub(super) fn start_waiting(&mut self, now_ms: u64) -> Vec<Decision> {
        let waiting: Vec<String> = self.waiting().into_iter().map(str::to_owned).collect();
        let mut decisions = Vec::new();
        let mut kept = BTreeSet::new();
        for (index, agent) in waiting.iter().enumerate() {
            if let Some((node, devices)) = self.choose(agent, &kept) {
                self.count_overtakings(&waiting[..index], &node);
                decisions.push(self.start(agent, Placement { node, devices }, now_ms));
            } else {
                kept.extend(self.keep_for(agent));
            }
        }
        decisions
    }

    /// The best node with room for the agent that is kept for nobody before it.
    fn choose(&self, agent: &str, kept: &BTreeSet<String>) -> Option<(String, Vec<DeviceId>)> {
        let agent = self.agents.get(agent)?;
        let candidates = self.nodes.values().filter(|node| !kept.contains(&node.name)).filter_map(|node| {
            let room = self.room(node, |_| true);
            let devices = room.fit(agent.demand)?;
            let is_away = agent.home.as_ref() != Some(&node.name);
            Some(((is_away, room.free_bytes(), node.name.clone()), devices))
        });
        let ((_, _, node), devices) = candidates.min_by(|(one, _), (other, _)| one.cmp(other))?;
        Some((node, devices))
    }

    /// Those before who still wait and could have been on the node.
    fn count_overtakings(&mut self, before: &[String], node: &str) {
        let Some(room) = self.nodes.get(node).map(Room::empty) else { return };
        for name in before {
            let Some(agent) = self.agents.get_mut(name) else { continue };
            let could = room.fit(agent.demand).is_some();
            if let Some(waiting) = agent.waiting_mut().filter(|_| could) {
                waiting.overtaken = waiting.overtaken.saturating_add(1);
            }
        }
    }

    /// The node that is kept for an agent that was overtaken too often: its own if that could hold it, else the one with most
    /// room. Once chosen it stays the one, or the agent might wait for a different node each time.
    fn keep_for(&mut self, name: &str) -> Option<String> {
        let agent = self.agents.get(name)?;
        let waiting = agent.waiting()?;
        if waiting.overtaken < self.options.overtakes_max {
            return None;
        }
        let chosen = waiting.kept.clone().or_else(|| {
            let able = self.nodes.values().filter(|node| Room::empty(node).fit(agent.demand).is_some());
            let best = able.max_by_key(|node| {
                let is_home = agent.home.as_ref() == Some(&node.name);
                (is_home, self.room(node, |placed| !placed.is_leaving).free_bytes())
            });
            best.map(|node| node.name.clone())
        });
        self.agents.get_mut(name)?.waiting_mut()?.kept.clone_from(&chosen);
        chosen
    }

    fn start(&mut self, name: &str, placement: Placement, now_ms: u64) -> Decision {
        let turn = Turn(self.next_turn);
        self.next_turn += 1;
        self.counts.starts += 1;
        let mut source = Source::Elsewhere;
        if let Some(agent) = self.agents.get_mut(name) {
            if let Some(home) = &agent.home {
                let is_local = *home == placement.node;
                source = if is_local { Source::Local } else { Source::Remote { from: home.clone() } };
            }
            let (placement, since_ms) = (placement.clone(), now_ms);
            let placed = Placed { turn, placement, since_ms, is_leaving: false, more: false };
            agent.phase = Phase::Placed(placed);
        }
        match source {
            Source::Local => self.counts.local_copies += 1,
            Source::Remote { .. } => self.counts.remote_copies += 1,
            Source::Elsewhere => {}
        }
        Decision::Start { agent: name.to_owned(), turn, placement, source }
    }
}
