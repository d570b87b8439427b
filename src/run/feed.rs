//! What an agent is trained on: the groups of a claim, each at its planned place, with advantages.

use std::ops::Range;
use std::sync::Arc;

use anyhow::Result;
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use forebay_pipeline::advantage::Grpo;
use forebay_pipeline::plan::Membership;
use forebay_pipeline::version::check_fresh;
use forebay_rollout_adapter::columns::{
    LOGPROBS, PROMPT, RESPONSE, REWARD, log_prob_lists, rewards, token_lists,
};
use forebay_store::{Claim, ConsumerHandle, SampleId};
use forebay_trainer_adapter::{CpuDevice, Policy, Row, Unit};

/// Where the micro-batches of an agent come from, and what is made of them.
pub(super) struct Feed {
    /// The policy, and the table of its agent.
    pub(super) name: String,
    pub(super) consumer: ConsumerHandle,
    pub(super) estimator: Grpo,
    /// The loss compares with the probabilities that responses were sampled with.
    pub(super) needs_behaviour: bool,
    /// The policy that the loss keeps near, where it does.
    pub(super) reference: Option<Arc<Policy<CpuDevice>>>,
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
        take: impl FnOnce(&[Unit<'_, Row<'_>>]) -> Result<T>,
    ) -> Result<T> {
        self.read_rows(claim, version, |read| self.with_advantages(claim, version, membership, read, take))
    }

    fn with_advantages<T>(
        &self,
        claim: &Claim,
        version: u64,
        membership: &Membership,
        read: &Rows<'_>,
        take: impl FnOnce(&[Unit<'_, Row<'_>>]) -> Result<T>,
    ) -> Result<T> {
        let mut groups: Vec<(usize, Vec<Row<'_>>)> = Vec::new();
        for (position, rows) in groups_of(claim.sample_ids(), membership)? {
            let advantages = self.estimator.advantages(&read.rewards[rows.clone()])?;
            let rows = rows.zip(advantages);
            groups.push((position, rows.map(|(row, advantage)| read.row(row, advantage as f32)).collect()));
        }
        let unit = |(position, rows)| Unit { position, policy: &self.name, version, rows };
        let units: Vec<Unit<'_, Row<'_>>> =
            groups.iter().map(|(position, rows)| unit((*position, rows.as_slice()))).collect();
        take(&units)
    }

    /// Hands the rows of a claim to `take`, with all that the loss asks for.
    ///
    /// # Errors
    /// Rows of another version; and what `take` fails with.
    pub(super) fn read_rows<T>(
        &self,
        claim: &Claim,
        version: u64,
        take: impl FnOnce(&Rows<'_>) -> Result<T>,
    ) -> Result<T> {
        let batch = self.read(claim, version)?;
        take(&self.rows(claim, &batch)?)
    }

    /// What a claim holds of what the loss asks for, all of it of this version.
    fn read(&self, claim: &Claim, version: u64) -> Result<RecordBatch> {
        let recorded = self.needs_behaviour.then_some(LOGPROBS);
        let columns = ["policy_version", PROMPT, RESPONSE, REWARD].into_iter().chain(recorded);
        let batch = claim.columns(columns)?;
        let versions = batch.column(0).as_primitive::<UInt64Type>().values().iter().copied();
        check_fresh(claim.table(), version, versions)?;
        Ok(batch)
    }

    fn rows<'a>(&self, claim: &Claim, batch: &'a RecordBatch) -> Result<Rows<'a>> {
        let table = claim.table();
        let recorded = self.needs_behaviour.then(|| log_prob_lists(table, batch, LOGPROBS));
        let mut rows = Rows {
            prompts: token_lists(table, batch, PROMPT)?,
            responses: token_lists(table, batch, RESPONSE)?,
            behaviour: recorded.transpose()?,
            reference: None,
            rewards: rewards(table, batch)?,
        };
        if let Some(policy) = &self.reference {
            let bare: Vec<Row<'_>> = (0..claim.len()).map(|row| rows.row(row, 0.0)).collect();
            rows.reference = Some(policy.log_probs(&CpuDevice::inline(), &bare)?);
        }
        Ok(rows)
    }
}

/// The rows of a claim, column by column.
pub(super) struct Rows<'a> {
    prompts: Vec<&'a [u32]>,
    responses: Vec<&'a [u32]>,
    behaviour: Option<Vec<&'a [f32]>>,
    reference: Option<Vec<Vec<f32>>>,
    pub(super) rewards: Vec<f64>,
}

impl Rows<'_> {
    pub(super) fn row(&self, index: usize, advantage: f32) -> Row<'_> {
        Row {
            advantage,
            behaviour_log_probs: self.behaviour.as_ref().map(|recorded| recorded[index]),
            reference_log_probs: self.reference.as_ref().map(|computed| computed[index].as_slice()),
            ..Row::new(self.prompts[index], self.responses[index])
        }
    }
}

/// The groups of a claim's rows: the place of each, and which rows it has.
///
/// # Errors
/// Rows that are not planned.
pub(super) fn groups_of(samples: &[SampleId], membership: &Membership) -> Result<Vec<(usize, Range<usize>)>> {
    let (mut groups, mut start) = (Vec::new(), 0);
    while start < samples.len() {
        let end = group_end(samples, start);
        groups.push((position(membership, &samples[start])?, start..end));
        start = end;
    }
    Ok(groups)
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
