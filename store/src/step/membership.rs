//! What a step was made of: its plan, its claims and the gradient caches that it has had.
//!
//! It is needed while the step may be undone and while a row of it is there, and forgotten then (`forget.rs`). So it stands beside the
//! step, which is a line of history without it.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::StepState;
use crate::consumer::GroupName;
use crate::error::{Cause, Result};
use crate::heap::HeapBytes;
use crate::state::State;

static NOTHING: Membership = Membership::NOTHING;

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

/// What a step was made of.
#[derive(Clone, Debug)]
pub(crate) struct Membership {
    pub(crate) planned: Vec<Planned>,
    /// Every claim granted in it, live or ended, in ascending order.
    pub(crate) claims: Vec<u64>,
    /// The same in the order in which they were granted, with their places; kept when the claims are forgotten.
    pub(crate) batches: Vec<StepBatch>,
    /// Where the epochs of the gradient caches begin: above those of a step of this number that was given up.
    pub(crate) first_cache_epoch: u32,
    /// How often the gradient cache of a policy was dropped in the step; a policy that is missing has 0.
    pub(crate) caches_dropped: BTreeMap<usize, u32>,
}

impl Membership {
    /// Of a step that has just begun, or was forgotten.
    pub(crate) const NOTHING: Membership = Membership {
        planned: Vec::new(),
        claims: Vec::new(),
        batches: Vec::new(),
        first_cache_epoch: 0,
        caches_dropped: BTreeMap::new(),
    };

    /// Bytes of memory beside the record itself.
    pub(super) fn heap_bytes(&self) -> usize {
        let groups = self.planned.iter().map(|planned| planned.groups.heap_bytes()).sum::<usize>();
        let lists = self.planned.heap_bytes() + self.claims.heap_bytes() + self.batches.heap_bytes();
        lists + groups + self.caches_dropped.heap_bytes()
    }

    /// Whether a claim was granted in it.
    pub(crate) fn has_claim(&self, number: u64) -> bool {
        self.claims.binary_search(&number).is_ok()
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

impl State {
    /// What a step was made of; nothing where that is forgotten, or there is no such step.
    pub(crate) fn membership(&self, step: u64) -> &Membership {
        self.steps.get(&step).map_or(&NOTHING, StepState::membership)
    }

    /// Refuses a claim that was granted in another step of that number, which was given up.
    pub(crate) fn check_granted_in(&self, step: u64, claim: u64) -> Result<()> {
        match self.membership(step).has_claim(claim) {
            true => Ok(()),
            false => Err(Cause::StepClosed { step }.into()),
        }
    }

    /// Where the epochs of the caches of a step of that number begin that begins now: above those of one that was given up.
    pub(crate) fn next_first_cache_epoch(&self, step: u64) -> u32 {
        self.steps.get(&step).map(StepState::membership).map_or(0, Membership::next_cache_epoch)
    }

    /// What a step was made of, to be changed.
    pub(crate) fn membership_mut(&mut self, step: u64) -> Option<&mut Membership> {
        self.steps.get_mut(&step)?.membership.as_deref_mut()
    }
}

impl StepState {
    /// What it was made of; nothing once that is forgotten.
    pub(crate) fn membership(&self) -> &Membership {
        self.membership.as_deref().unwrap_or(&NOTHING)
    }
}
