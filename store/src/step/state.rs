//! A step as the engine holds it.

use std::collections::HashSet;
use std::sync::Arc;

use crate::clock::Timestamp;

/// How far a step has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepProgress {
    /// Taking micro-batches.
    Open,
    /// Its rows are consumed and its policies updated.
    Committed,
    /// Given up, or cut off by the end of its process; its rows went back.
    Abandoned,
}

impl StepProgress {
    /// The word for this state, in messages and SQL.
    pub fn as_str(self) -> &'static str {
        match self {
            StepProgress::Open => "open",
            StepProgress::Committed => "committed",
            StepProgress::Abandoned => "abandoned",
        }
    }
}

/// What one consumer takes in a step.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) consumer: usize,
    /// Planned groups; empty when only rows are counted.
    pub(crate) groups: Arc<HashSet<Arc<str>>>,
    pub(crate) rows: u64,
    /// Claims granted so far, which numbers the next one.
    pub(crate) claims: u32,
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
    pub(crate) rows: u64,
    /// Policies that it moved, with the version they moved to.
    pub(crate) updates: Vec<(Arc<str>, u64)>,
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
    /// Policies that it moved, with the version they moved to.
    pub updates: Vec<(String, u64)>,
}

impl StepInfo {
    pub(crate) fn new(step: u64, state: &StepState) -> Self {
        let updates = state.updates.iter().map(|(name, version)| (name.to_string(), *version)).collect();
        let &StepState { progress, begun_at, ended_at, rows, .. } = state;
        StepInfo { step, progress, begun_at, ended_at, rows, updates }
    }
}
