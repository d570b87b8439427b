//! A step as the engine holds it.

use super::membership::Membership;
use crate::clock::Timestamp;
use crate::heap::HeapBytes;
use crate::object::ObjectRef;
use crate::policy::PolicyState;

/// How far a step has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepProgress {
    /// Taking micro-batches.
    Open,
    /// Its rows are consumed and its policies updated.
    Committed,
    /// Given up, or cut off by the end of its process; its rows went back.
    Abandoned,
    /// Committed once, and undone since: the run went back to a step before it.
    Rewound,
}

impl StepProgress {
    /// Every state, in the order of their numbers in checkpoints.
    pub(crate) const ALL: [StepProgress; 4] =
        [StepProgress::Open, StepProgress::Committed, StepProgress::Abandoned, StepProgress::Rewound];

    /// The word for this state, in messages and SQL.
    pub fn as_str(self) -> &'static str {
        match self {
            StepProgress::Open => "open",
            StepProgress::Committed => "committed",
            StepProgress::Abandoned => "abandoned",
            StepProgress::Rewound => "rewound",
        }
    }

    /// Whether the step was committed, be it undone since: then its number is never given out again.
    pub(crate) fn was_committed(self) -> bool {
        matches!(self, StepProgress::Committed | StepProgress::Rewound)
    }
}

/// How a committed step moved one policy.
#[derive(Clone, Debug)]
pub(crate) struct StepUpdate {
    pub(crate) policy: usize,
    pub(crate) version: u64,
    pub(crate) objects: Vec<ObjectRef>,
}

/// One step.
#[derive(Clone, Debug)]
pub(crate) struct StepState {
    pub(crate) progress: StepProgress,
    pub(crate) begun_at: Timestamp,
    pub(crate) ended_at: Option<Timestamp>,
    pub(crate) rows: u64,
    /// How many of those have been removed since.
    pub(crate) deleted_rows: u64,
    /// Policies that it moved.
    pub(crate) updates: Box<[StepUpdate]>,
    /// What it was made of, until that is forgotten.
    pub(crate) membership: Option<Box<Membership>>,
}

impl StepState {
    /// Bytes of memory beside the record itself.
    pub(crate) fn heap_bytes(&self) -> usize {
        let membership =
            self.membership.as_ref().map_or(0, |kept| size_of::<Membership>() + kept.heap_bytes());
        let objects = self.updates.iter().map(|update| update.objects.heap_bytes()).sum::<usize>();
        membership + size_of_val(&*self.updates) + objects
    }
}

/// A step as it is shown to people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepInfo {
    /// Its number: how many steps had been committed before it, plus one.
    pub step: u64,
    /// How far it has come.
    pub progress: StepProgress,
    /// When it began to take micro-batches.
    pub begun_at: Timestamp,
    /// When it was committed or given up.
    pub ended_at: Option<Timestamp>,
    /// Rows that it consumed.
    pub rows: u64,
    /// Rows that its plan counts; 0 where it names groups, and once the plan is forgotten, as it is when all rows of the
    /// step are deleted.
    pub planned_rows: u64,
    /// Groups that its plan names; 0 where it counts rows, and once it is forgotten.
    pub planned_groups: u64,
    /// Policies that it moved, with the version they moved to.
    pub updates: Vec<(String, u64)>,
}

impl StepInfo {
    pub(crate) fn new(step: u64, state: &StepState, policies: &[PolicyState]) -> Self {
        let named = |update: &StepUpdate| (policies[update.policy].name.to_string(), update.version);
        let updates = state.updates.iter().map(named).collect();
        let planned = &state.membership().planned;
        let planned_rows = planned.iter().map(|planned| planned.rows).sum();
        let planned_groups = planned.iter().map(|planned| planned.groups.len() as u64).sum();
        let &StepState { progress, begun_at, ended_at, rows, .. } = state;
        StepInfo { step, progress, begun_at, ended_at, rows, planned_rows, planned_groups, updates }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A run of months has millions of steps that are history.
    #[test]
    fn a_step_that_is_history_takes_a_line() {
        assert!(size_of::<StepState>() <= 88, "{} bytes", size_of::<StepState>());
    }
}
