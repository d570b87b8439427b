//! What a scheduler refuses.

use super::node::Demand;

/// A refused call. The scheduler is as before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchedulerError {
    /// No node could hold the agent, even if it were empty: all ranks of an agent are on one node, each on a device of its own.
    #[error(
        "agent {agent:?} needs {} devices with {} bytes each on one node, and no node has them; \
         take fewer ranks, or let a node join that does", demand.ranks, demand.bytes_per_rank
    )]
    Unplaceable {
        /// The agent.
        agent: String,
        /// What it needs.
        demand: Demand,
    },
    /// An agent without ranks.
    #[error("agent {agent:?} has no ranks; an agent has at least one")]
    NoRanks {
        /// The agent.
        agent: String,
    },
    /// No such agent.
    #[error("there is no agent {agent:?}; add it first")]
    UnknownAgent {
        /// The name.
        agent: String,
    },
    /// The agent is there already.
    #[error("agent {agent:?} was added already")]
    KnownAgent {
        /// The name.
        agent: String,
    },
    /// The agent has a turn.
    #[error("agent {agent:?} has a turn; end its processes and tell of it before it is removed")]
    HasTurn {
        /// The name.
        agent: String,
    },
    /// The node is there already.
    #[error("node {node:?} has joined already")]
    KnownNode {
        /// The name.
        node: String,
    },
    /// A device is named twice on a node.
    #[error("node {node:?} names device {device} twice; each has one name")]
    KnownDevice {
        /// The node.
        node: String,
        /// The device.
        device: String,
    },
}
