//! What an agent is trained on: the groups of a claim, each at its planned place, with advantages.

use anyhow::Result;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use forebay_pipeline::advantage::Grpo;
use forebay_pipeline::plan::Membership;
use forebay_pipeline::version::check_fresh;
use forebay_rollout_adapter::columns::{PROMPT, RESPONSE, REWARD, rewards, token_lists};
use forebay_store::{Claim, ConsumerHandle, SampleId};
use forebay_trainer_adapter::{Sequence, Unit};

/// Where the micro-batches of an agent come from, and what is made of them.
pub(super) struct Feed {
    /// The policy, and the table of its agent.
    pub(super) name: String,
    pub(super) consumer: ConsumerHandle,
    pub(super) estimator: Grpo,
}

impl Feed {
    /// Hands the groups of a claim to `take`, as units of the policy at this version.
    ///
    /// # Errors
    /// Rows of another version, or not planned; and what `take` fails with.
    pub(super) fn units<T>(
        &self,
        claim: &Claim,
        version: u64,
        membership: &Membership,
        take: impl FnOnce(&[Unit<'_>]) -> Result<T>,
    ) -> Result<T> {
        let batch = claim.columns(["policy_version", PROMPT, RESPONSE, REWARD])?;
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
        take(&units)
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
