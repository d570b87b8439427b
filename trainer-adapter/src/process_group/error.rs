//! What can go wrong with a group, and what the caller does about it.

use super::batch::ClaimId;
use super::launcher::RankExit;
use super::life::Life;
use crate::error::ErrorKind;
use crate::scheduler::SchedulerError;
use crate::states::StatesError;

/// A failed call to a group.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// The call is not one for this part of the group's life.
    #[error("the group of {agent:?} is {life}; {call} is not for then")]
    Life {
        /// The agent.
        agent: String,
        /// Where in its life the group is.
        life: Life,
        /// What was called.
        call: &'static str,
    },
    /// A value in the call is wrong.
    #[error("{field} of the group of {agent:?}: {reason}")]
    Config {
        /// The agent.
        agent: String,
        /// Which value.
        field: &'static str,
        /// What it has to be.
        reason: String,
    },
    /// A claim has its gradient in the state already, or stands twice in a call.
    #[error("the gradient of claim {claim} is in the state of {agent:?} already; nothing is trained twice")]
    ClaimTaken {
        /// The agent.
        agent: String,
        /// The claim.
        claim: ClaimId,
    },
    /// Not all ranks could be started. No process is there, the state is as it was: start again, here or elsewhere.
    #[error("rank {rank} of {agent:?} could not be started: {reason}; no rank is left")]
    NotStarted {
        /// The agent.
        agent: String,
        /// The first rank that failed.
        rank: usize,
        /// What happened.
        reason: String,
        /// How its process ended, if there was one.
        exit: Option<RankExit>,
    },
    /// A rank was lost. All processes have ended, and what the others had is in the state: return the rows of `lost`, and resume.
    #[error("rank {rank} of {agent:?} was lost: {reason}; {} claims are to be returned", lost.len())]
    RankLost {
        /// The agent.
        agent: String,
        /// The first rank that was lost.
        rank: usize,
        /// What happened.
        reason: String,
        /// How its process ended.
        exit: Option<RankExit>,
        /// Claims whose gradient is in no state: exactly these have to be trained on again.
        lost: Vec<ClaimId>,
    },
    /// A rank would not do it. The group is active and as before.
    #[error("rank {rank} of {agent:?} refuses: {reason}")]
    Refused {
        /// The agent.
        agent: String,
        /// The rank.
        rank: usize,
        /// Why.
        reason: String,
    },
    /// A rank could not stage its part of the state, for want of room where states are kept, say. The group is active; its ranks, and its
    /// newest version, are as before: make room, and save again. From [`super::FleetMember::run`] the group is suspended, with all that it had.
    #[error(
        "rank {rank} of {agent:?} did not stage its part of the state: {reason}; make room, and save again"
    )]
    NotStaged {
        /// The agent.
        agent: String,
        /// The rank.
        rank: usize,
        /// Why.
        reason: String,
    },
    /// The update was not made, and the gradient is gone (it was not finite). The group is active with an empty cache, and its newest
    /// version may still have what was in it: [`super::ProcessGroup::save`] first, and then return the claims.
    #[error("no update of {agent:?} was made: {reason}; its {} claims are out of the cache", claims.len())]
    NotApplied {
        /// The agent.
        agent: String,
        /// Why.
        reason: String,
        /// What was in the cache: train on it with a lower learning rate, or leave it out.
        claims: Vec<ClaimId>,
    },
    /// The state could not be set or got. If the group had processes, they have ended, and `lost` is to be returned.
    #[error("the state of {agent:?} could not be kept; {} claims are to be returned", lost.len())]
    States {
        /// The agent.
        agent: String,
        /// Claims whose gradient is in no state.
        lost: Vec<ClaimId>,
        /// What happened.
        #[source]
        source: StatesError,
    },
    /// Whether a version was committed is not known: neither the commit nor a look after it was answered, or it is there and could not be
    /// made as durable as its keeper promises. All processes have ended. Nothing
    /// may be returned yet, or it could be trained on twice: as soon as the states answer again, [`super::ProcessGroup::create`] the
    /// group anew, and return what [`super::Ledger::lost_of`] its ledger and `claims` gives.
    #[error(
        "whether version {version} of the state of {agent:?} was committed is not known; create the group again and return those of \
         {} claims that its ledger does not have", claims.len()
    )]
    Unknown {
        /// The agent.
        agent: String,
        /// The version that is there or not, if its keeper said which ([`StatesError::NotDurable`]). Else the next number: where one was taken
        /// back or forgotten before, the version has a later one.
        version: u64,
        /// Claims whose gradient is in that version if it is there, and in no state otherwise.
        claims: Vec<ClaimId>,
        /// What the commit failed with.
        #[source]
        source: StatesError,
    },
    /// No group is open at that place: it was closed, or nothing of it was added.
    #[error("no group of {agent:?} is open at position {position}")]
    NoGroup {
        /// The agent.
        agent: String,
        /// The group's planned place in the step.
        position: usize,
    },
    /// Groups are open, whose gradients would be missing in an update. The group is active and as before.
    #[error(
        "no update of {agent:?} while groups are open at positions {positions:?}; close them, or forget them"
    )]
    OpenGroups {
        /// The agent.
        agent: String,
        /// Their planned places.
        positions: Vec<usize>,
    },
    /// The state was got, and does not fit together.
    #[error("version {version} of the state of {agent:?} is damaged: {reason}")]
    Damaged {
        /// The agent.
        agent: String,
        /// The version.
        version: u64,
        /// What does not fit.
        reason: String,
    },
    /// The scheduler refused.
    #[error("the scheduler refused")]
    Scheduler(#[from] SchedulerError),
}

impl GroupError {
    /// What the caller does next.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Config { .. }
            | Self::ClaimTaken { .. }
            | Self::Refused { .. }
            | Self::NoGroup { .. }
            | Self::Scheduler(_) => ErrorKind::Input,
            Self::Damaged { .. } | Self::States { source: StatesError::Damaged { .. }, .. } => {
                ErrorKind::Corrupt
            }
            Self::Life { .. }
            | Self::NotStarted { .. }
            | Self::RankLost { .. }
            | Self::NotStaged { .. }
            | Self::NotApplied { .. }
            | Self::OpenGroups { .. }
            | Self::Unknown { .. }
            | Self::States { .. } => ErrorKind::State,
        }
    }

    /// Claims whose gradient was lost with this error: return their rows. None of [`Self::Unknown`], which says what to do instead.
    pub fn lost(&self) -> &[ClaimId] {
        match self {
            Self::RankLost { lost, .. } | Self::States { lost, .. } => lost,
            _ => &[],
        }
    }

    /// Whether this says what has become of claims: that they are lost, or that nobody knows yet.
    pub(super) fn is_about_claims(&self) -> bool {
        matches!(self, Self::Unknown { .. }) || !self.lost().is_empty()
    }
}
