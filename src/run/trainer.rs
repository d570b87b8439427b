//! One policy's trainer: takes micro-batches as they become ready and fills the gradient cache.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use forebay_pipeline::advantage::Grpo;
use forebay_pipeline::plan::Membership;
use forebay_pipeline::trigger::Trigger;
use forebay_pipeline::version::check_fresh;
use forebay_rollout_adapter::columns::{PROMPT, RESPONSE, REWARD, rewards, token_lists};
use forebay_store::{Claim, ConsumerHandle, MicroBatch, SampleId, Step};
use forebay_trainer_adapter::{CpuDevice, Sequence, Trainer, Unit};

use super::progress::Progress;

/// Trains one policy over the whole run.
pub(super) struct PolicyTrainer {
    /// The policy, and the table of its agent.
    pub(super) name: String,
    pub(super) consumer: ConsumerHandle,
    pub(super) trainer: Trainer<CpuDevice>,
    pub(super) estimator: Grpo,
    /// The greatest learning rate of the run.
    pub(super) learning_rate: f64,
}

impl PolicyTrainer {
    /// Accumulates everything that the step has planned for the policy. Gives the spans of time that it computed in.
    ///
    /// On an error the cache is dropped; the claims go back with the step.
    pub(super) fn accumulate_step(
        &mut self,
        step: &Arc<Step>,
        membership: &Membership,
        rule: MicroBatch,
        progress: &Progress,
    ) -> Result<Vec<(Instant, Instant)>> {
        let accumulated = self.take_claims(step, membership, rule, progress);
        accumulated.inspect_err(|_| self.trainer.drop_cache())
    }

    fn take_claims(
        &mut self,
        step: &Arc<Step>,
        membership: &Membership,
        rule: MicroBatch,
        progress: &Progress,
    ) -> Result<Vec<(Instant, Instant)>> {
        let mut spans = Vec::new();
        for claim in Trigger::new(step.clone(), &self.consumer, rule) {
            let claim = claim?;
            let (start, rows) = (Instant::now(), claim.len());
            self.accumulate(&claim, membership)?;
            spans.push((start, Instant::now()));
            claim.accumulated()?;
            progress.trained(rows);
        }
        Ok(spans)
    }

    /// Adds the gradient of a micro-batch, group by group, each at its planned place.
    fn accumulate(&mut self, claim: &Claim, membership: &Membership) -> Result<()> {
        let batch = claim.columns(["policy_version", PROMPT, RESPONSE, REWARD])?;
        let version = self.trainer.version();
        check_fresh(
            claim.table(),
            version,
            batch.column(0).as_primitive::<UInt64Type>().values().iter().copied(),
        )?;
        let prompts = token_lists(claim.table(), &batch, PROMPT)?;
        let responses = token_lists(claim.table(), &batch, RESPONSE)?;
        let rewards = rewards(claim.table(), &batch)?;
        let mut groups: Vec<(usize, Vec<Sequence<'_>>)> = Vec::new();
        let mut start = 0;
        while start < claim.len() {
            let end = group_end(claim.sample_ids(), start);
            let position = position(membership, &claim.sample_ids()[start])?;
            let advantages = self.estimator.advantages(&rewards[start..end])?;
            let rows = (start..end).zip(advantages).map(|(row, advantage)| Sequence {
                prompt: prompts[row],
                response: responses[row],
                advantage: advantage as f32,
            });
            groups.push((position, rows.collect()));
            start = end;
        }
        let unit = |(position, rows)| Unit { position, policy: &self.name, version, rows };
        let units: Vec<Unit<'_>> =
            groups.iter().map(|(position, rows)| unit((*position, rows.as_slice()))).collect();
        self.trainer
            .accumulate_many(&units)
            .with_context(|| format!("policy {:?} could not be trained", self.name))?;
        Ok(())
    }
}

/// Rows of one group stand together, in sample-id order.
fn group_end(samples: &[SampleId], start: usize) -> usize {
    let same = |sample: &&SampleId| {
        sample.input() == samples[start].input() && sample.turn() == samples[start].turn()
    };
    start + samples[start..].iter().take_while(same).count()
}

/// A group's place in the step: turn by turn, inside a turn by input.
fn position(membership: &Membership, sample: &SampleId) -> Result<usize> {
    let sample = membership.admit(sample.clone())?;
    let place = membership.position(sample.input()).unwrap_or_default();
    Ok(sample.turn() as usize * membership.inputs().len() + place)
}
