//! What a scheduler is told, and what it decides.

use super::node::{Node, Placement};

/// One start of an agent, from the decision on until its processes have ended. Numbers never come again, so whoever is told of
/// the end of an earlier one tells it apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Turn(pub u64);

/// What has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The agent has something to do: enough samples for a micro-batch, or an update to make.
    Work {
        /// The agent.
        agent: String,
    },
    /// An active agent has done a micro-batch (or an update), and has more to do or has not.
    Done {
        /// The agent.
        agent: String,
        /// The turn that it is in.
        turn: Turn,
        /// Whether it has more to do now.
        more: bool,
    },
    /// Its processes have ended, and its state lies on the node where they were.
    Suspended {
        /// The agent.
        agent: String,
        /// The turn that is over.
        turn: Turn,
    },
    /// Its processes have ended otherwise: a rank was lost, or they could not all be started. Its state lies where it lay. The
    /// agent does not wait for another turn before more [`Event::Work`] is told of.
    Failed {
        /// The agent.
        agent: String,
        /// The turn that is over.
        turn: Turn,
    },
    /// A node can be used.
    NodeJoined(Node),
    /// A node cannot be used any more, and what was on it has ended. Agents that had a turn there wait for another.
    NodeLost {
        /// Its name.
        node: String,
    },
}

/// Where the state is that a turn begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Nowhere yet, or in a place that is no node of this scheduler (a lost node's state, restored from elsewhere).
    Elsewhere,
    /// On the same node.
    Local,
    /// On another node: it has to be copied.
    Remote {
        /// That node.
        from: String,
    },
}

/// What is to be done now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Start all ranks of the agent there. The room is the agent's from now on, until its end is told.
    Start {
        /// The agent.
        agent: String,
        /// The turn that begins.
        turn: Turn,
        /// Where.
        placement: Placement,
        /// Where its state is.
        source: Source,
    },
    /// Suspend the agent. The room stays its own until [`Event::Suspended`] or [`Event::Failed`].
    Suspend {
        /// The agent.
        agent: String,
        /// Its turn.
        turn: Turn,
    },
    /// The agent waits, and since a node was lost no node could hold it even if it were empty. It is started if one joins that can;
    /// whoever does not wait for that withdraws it.
    Unplaceable {
        /// The agent.
        agent: String,
    },
}
