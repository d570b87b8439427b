//! What the scheduler knows of an agent.

use super::event::Turn;
use super::node::{Demand, Placement};

/// Where an agent is between work and turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing to do; holds nothing.
    Idle,
    /// Something to do; holds nothing.
    Waiting(Waiting),
    /// Its processes are there, or are being made or ended.
    Placed(Placed),
}

/// A place in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Waiting {
    /// Who came first has the smaller one.
    pub(super) ticket: u64,
    /// Starts of others on nodes that could have held it.
    pub(super) overtaken: u32,
    /// The node that is kept free for it since it was overtaken too often.
    pub(super) kept: Option<String>,
}

/// A turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) turn: Turn,
    pub(super) placement: Placement,
    pub(super) since_ms: u64,
    /// Whether its suspension was decided.
    pub(super) is_leaving: bool,
    /// Whether it has more to do than what it was started for.
    pub(super) more: bool,
}

/// An agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Agent {
    pub(super) demand: Demand,
    pub(super) phase: Phase,
    /// The node that has its state in memory.
    pub(super) home: Option<String>,
}

impl Agent {
    pub(super) fn new(demand: Demand) -> Self {
        Self { demand, phase: Phase::Idle, home: None }
    }

    pub(super) fn placed(&self) -> Option<&Placed> {
        if let Phase::Placed(placed) = &self.phase { Some(placed) } else { None }
    }

    /// The turn, if it is this one: news of an earlier turn is no news.
    pub(super) fn in_turn(&mut self, turn: Turn) -> Option<&mut Placed> {
        match &mut self.phase {
            Phase::Placed(placed) if placed.turn == turn => Some(placed),
            _ => None,
        }
    }

    pub(super) fn waiting(&self) -> Option<&Waiting> {
        if let Phase::Waiting(waiting) = &self.phase { Some(waiting) } else { None }
    }

    pub(super) fn waiting_mut(&mut self) -> Option<&mut Waiting> {
        if let Phase::Waiting(waiting) = &mut self.phase { Some(waiting) } else { None }
    }
}
