//! Where an agent's ranks are: on slots of their own for the whole run, or on shared ones when it is their turn.

use anyhow::Result;
use forebay_trainer_adapter::process_group::{FleetMember, GroupError, Life, Next, ProcessGroup};
use forebay_trainer_adapter::scheduler::Placement;

/// An agent's group and its way to slots.
pub(super) enum Seat {
    /// There is room for all: the ranks are started once, and stay.
    Own { group: Box<ProcessGroup>, placement: Placement },
    /// There is not: the ranks are there while the agent has something to do and it is its turn.
    Shared(Box<FleetMember>),
}

impl Seat {
    /// The group; on shared slots it has no processes outside of [`run`](Self::run).
    pub(super) fn group(&self) -> &ProcessGroup {
        match self {
            Seat::Own { group, .. } => group,
            Seat::Shared(member) => member.group(),
        }
    }

    /// Calls `work` with the active group until it has nothing to do. One call is a micro-batch or an update; on shared slots the group
    /// may be suspended and resumed between two.
    ///
    /// # Errors
    /// As [`FleetMember::run`].
    pub(super) fn run(
        &mut self,
        mut work: impl FnMut(&mut ProcessGroup) -> Result<Next, GroupError>,
    ) -> Result<(), GroupError> {
        match self {
            Seat::Shared(member) => member.run(work),
            Seat::Own { group, placement } => {
                if group.life() != Life::Active {
                    let started = group.resume(placement)?;
                    tracing::info!(agent = group.agent(), pids = ?started.pids, "ranks were started");
                }
                while work(group)? == Next::More {}
                Ok(())
            }
        }
    }

    /// Ends all processes, and gives the group up.
    pub(super) fn end(self) -> ProcessGroup {
        match self {
            Seat::Own { group, .. } => *group,
            Seat::Shared(member) => member.leave(),
        }
    }
}
