//! A step as the engine holds it.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use crate::clock::Timestamp;
use crate::consumer::GroupName;
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

/// What one consumer takes in a step.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) consumer: usize,
    /// Planned groups; empty when only rows are counted.
    pub(crate) groups: Arc<HashSet<GroupName>>,
    pub(crate) rows: u64,
    /// Claims granted so far, which numbers the next one.
    pub(crate) claims: u32,
    /// Rows of the claims that are live.
    pub(crate) held: u64,
}

/// A micro-batch that was handed out in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StepBatch {
    pub(crate) claim: u64,
    pub(crate) consumer: usize,
    pub(crate) table: u32,
    /// Its place among the consumer's micro-batches of the step.
    pub(crate) sequence: u32,
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
    pub(crate) planned: Vec<Planned>,
    /// Every claim granted in it, live or ended.
    pub(crate) claims: Vec<u64>,
    /// The same in the order in which they were granted, with their places; kept when the claims are forgotten.
    pub(crate) batches: Vec<StepBatch>,
    /// Where the epochs of the gradient caches begin: above those of a step of this number that was given up.
    pub(crate) first_cache_epoch: u32,
    /// How often the gradient cache of a policy was dropped in the step; a policy that is missing has 0.
    pub(crate) caches_dropped: BTreeMap<usize, u32>,
    pub(crate) rows: u64,
    /// How many of those have been removed since.
    pub(crate) deleted_rows: u64,
    /// Policies that it moved.
    pub(crate) updates: Vec<StepUpdate>,
}

impl StepState {
    /// Bytes of memory beside the record itself.
    pub(crate) fn heap_bytes(&self) -> usize {
        let groups = self.planned.iter().map(|planned| planned.groups.heap_bytes()).sum::<usize>();
        let lists = self.planned.heap_bytes() + self.claims.heap_bytes() + self.batches.heap_bytes();
        let objects = self.updates.iter().map(|update| update.objects.heap_bytes()).sum::<usize>();
        lists + groups + self.caches_dropped.heap_bytes() + self.updates.heap_bytes() + objects
    }

    /// The epoch of a policy's gradient cache.
    pub(crate) fn cache_epoch(&self, policy: usize) -> u32 {
        self.first_cache_epoch + self.caches_dropped.get(&policy).copied().unwrap_or(0)
    }

    /// An epoch that no cache of the step has had.
    pub(crate) fn next_cache_epoch(&self) -> u32 {
        self.first_cache_epoch + self.caches_dropped.values().max().copied().unwrap_or(0) + 1
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
        let planned_rows = state.planned.iter().map(|planned| planned.rows).sum();
        let planned_groups = state.planned.iter().map(|planned| planned.groups.len() as u64).sum();
        let &StepState { progress, begun_at, ended_at, rows, .. } = state;
        StepInfo { step, progress, begun_at, ended_at, rows, planned_rows, planned_groups, updates }
    }
}
