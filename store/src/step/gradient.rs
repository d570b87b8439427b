//! Names of gradients, so that each counts once.

use std::fmt;

use super::{Membership, StepBatch, StepProgress, StepState};
use crate::claim::{ClaimProgress, ClaimState};
use crate::error::{Cause, Result};
use crate::log::record::Event;
use crate::sample_id::SampleId;
use crate::state::State;
use crate::store::Store;

/// The name of one micro-batch's gradient. No two gradients of a store share one, also not after a step was given up
/// and begun again.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GradientId {
    /// The policy that it moves.
    pub policy: String,
    /// The step that it is part of.
    pub step: u64,
    /// The trainer whose micro-batch it is.
    pub consumer: String,
    /// The micro-batch's place among its trainer's in the step, from 0.
    pub sequence: u32,
    /// How often the policy's gradient cache had been dropped in the step before.
    pub cache_epoch: u32,
}

impl fmt::Display for GradientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GradientId { policy, step, consumer, sequence, cache_epoch } = self;
        write!(f, "{policy}/{step}/{consumer}/{sequence}/{cache_epoch}")
    }
}

/// A gradient that is in its policy's cache, or that a committed step used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GradientInfo {
    /// Its name.
    pub id: GradientId,
    /// The claim of the rows that made it, which they name as long as they are there.
    pub claim: u64,
    /// The table of the rows.
    pub table: String,
    /// How far the claim has come: accumulated or consumed. `None` of a committed step's claim that the store has forgotten; of such
    /// a claim it is not told here whether its rows had gone back, only by rows that name it or do not.
    pub progress: Option<ClaimProgress>,
}

impl Store {
    /// The gradients in the caches of the open step, and those of committed steps whose micro-batches are still known: in the order of
    /// steps, and of their claims in each.
    pub fn gradients(&self) -> Vec<GradientInfo> {
        let state = self.0.state.lock();
        state.steps.iter().flat_map(|(number, step)| state.gradients_of(*number, step)).collect()
    }

    /// Says that a gradient is in its policy's cache, by its name instead of by its claim: for trainers that hear of it
    /// more than once. True the first time, false for every repetition, which changes nothing.
    ///
    /// # Errors
    /// `state` when the cache that the gradient was meant for has been dropped since, or its claim has gone to another
    /// holder; `input` when there is no such micro-batch, or when ranks of a gang share it: each says so of its own claim.
    pub fn accumulate(&self, gradient: &GradientId) -> Result<bool> {
        self.0.submit_if(|state| {
            let claim = state.decide_accumulate(gradient)?;
            Ok((claim.map(|claim| Event::Accumulated { claim }), claim.is_some()))
        })
    }

    /// The samples that made a gradient which a committed step used, in sample-id order.
    ///
    /// # Errors
    /// `input` when no committed step used it; `state` when rows of the step have been deleted since.
    pub fn samples_of(&self, gradient: &GradientId) -> Result<Vec<SampleId>> {
        let batches = self.replay(gradient.step)?;
        let batch = batches.into_iter().find(|batch| batch.gradient_id() == gradient);
        batch.map(|batch| batch.sample_ids().to_vec()).ok_or_else(|| unknown_gradient(gradient))
    }
}

fn unknown_gradient(gradient: &GradientId) -> crate::Error {
    Cause::Unknown { what: "gradient", name: gradient.to_string(), close: None }.into()
}

impl State {
    fn gradients_of<'s>(
        &'s self,
        number: u64,
        step: &'s StepState,
    ) -> impl Iterator<Item = GradientInfo> + 's {
        let is_committed = step.progress == StepProgress::Committed;
        let membership = step.membership();
        membership.batches.iter().filter_map(move |batch| {
            let progress = self.claims.get(batch.claim).map(|claim| claim.progress);
            let is_used = match progress {
                Some(progress) => matches!(progress, ClaimProgress::Accumulated | ClaimProgress::Consumed),
                None => is_committed,
            };
            is_used.then(|| GradientInfo {
                id: self.name_of(number, membership, batch),
                claim: batch.claim,
                table: self.tables[batch.table as usize].name.to_string(),
                progress,
            })
        })
    }

    /// The name of the gradient of a micro-batch that a step handed out.
    pub(crate) fn gradient_id(&self, step: u64, claim: u64) -> Option<GradientId> {
        let membership = self.membership(step);
        let batch = membership.batches.iter().find(|batch| batch.claim == claim)?;
        Some(self.name_of(step, membership, batch))
    }

    fn name_of(&self, step: u64, membership: &Membership, batch: &StepBatch) -> GradientId {
        let policy = self.tables[batch.table as usize].policy;
        GradientId {
            policy: self.policies[policy].name.to_string(),
            step,
            consumer: self.consumers[batch.consumer].name.to_string(),
            sequence: batch.sequence,
            cache_epoch: membership.cache_epoch(policy),
        }
    }

    /// The claim that turns accumulated, or `None` when it has already.
    fn decide_accumulate(&self, gradient: &GradientId) -> Result<Option<u64>> {
        let unknown = || unknown_gradient(gradient);
        let step = self.steps.get(&gradient.step).ok_or_else(unknown)?;
        let consumer = self.consumer_named(&gradient.consumer).ok_or_else(unknown)?;
        let policy = self.policy_named(&gradient.policy).ok_or_else(unknown)?;
        let membership = step.membership.as_ref().ok_or_else(unknown)?;
        let epoch = membership.cache_epoch(policy);
        if gradient.cache_epoch != epoch {
            return Err(Cause::CacheDropped { gradient: gradient.to_string(), epoch }.into());
        }
        let of_gradient =
            |batch: &&StepBatch| batch.consumer == consumer && batch.sequence == gradient.sequence;
        let batch = membership.batches.iter().find(of_gradient).ok_or_else(unknown)?;
        if self.tables[batch.table as usize].policy != policy {
            return Err(unknown());
        }
        let progress = self.claims.get(batch.claim).map(|claim| claim.progress);
        let forgotten = progress.is_none() && step.progress == StepProgress::Committed;
        if forgotten || matches!(progress, Some(ClaimProgress::Accumulated | ClaimProgress::Consumed)) {
            return Ok(None);
        }
        if self.open_step() != Some(gradient.step) {
            return Err(Cause::StepClosed { step: gradient.step }.into());
        }
        self.check_claim(batch.claim, &["leased"])?;
        if self.claims.get(batch.claim).is_some_and(ClaimState::is_shared) {
            let reason = format!(
                "{gradient} is one of several ranks; each says of its own claim that it is accumulated"
            );
            return Err(Cause::Argument { what: "gradient", reason }.into());
        }
        Ok(Some(batch.claim))
    }

    /// The caches that held the gradients of these claims are gone: those of the next ones have other names.
    pub(crate) fn count_dropped_caches(&mut self, claims: &[u64]) {
        // Those that were leased only come back with them, and were in no cache.
        let in_cache =
            |claim: &&ClaimState| claim.progress == ClaimProgress::Accumulated || claim.is_partly_done();
        let held = claims.iter().filter_map(|number| self.claims.get(*number));
        let held = held.filter(|claim| claim.step != 0).filter(in_cache);
        let mut dropped: Vec<(u64, usize)> =
            held.map(|claim| (claim.step, self.tables[claim.table as usize].policy)).collect();
        dropped.sort_unstable();
        dropped.dedup();
        for (step, policy) in dropped {
            if let Some(membership) = self.membership_mut(step) {
                *membership.caches_dropped.entry(policy).or_default() += 1;
            }
        }
    }
}
