//! One policy's trainer: takes micro-batches as they become ready, fills the gradient cache, and makes the step's update.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use forebay_pipeline::plan::Membership;
use forebay_pipeline::trigger::Trigger;
use forebay_store::{Claim, MicroBatch, Step};
use forebay_trainer_adapter::{CpuDevice, Policy};

use super::early::accumulate_early;
use super::feed::Feed;
use super::groups::GroupTrainer;
use super::local::LocalTrainer;
use super::progress::Progress;
use super::report::{GroupReport, MicroBatches};

/// Trains one policy over the whole run.
pub(super) struct PolicyTrainer {
    pub(super) feed: Feed,
    pub(super) learner: Learner,
    /// The greatest learning rate of the run.
    pub(super) learning_rate: f64,
    /// What it has trained in this process.
    pub(super) micro_batches: MicroBatches,
}

/// Where the gradient is computed.
pub(super) enum Learner {
    /// In this process.
    Here(Box<dyn LocalTrainer>),
    /// In a process group.
    Group(Box<GroupTrainer>),
}

/// What a trainer needs of the step that it works on.
pub(super) struct StepWork<'a> {
    pub(super) step: &'a Arc<Step>,
    pub(super) membership: &'a Membership,
    pub(super) rule: MicroBatch,
    /// Nothing is trained before the whole batch is there.
    pub(super) is_barrier: bool,
    /// Members of groups are trained before their groups are complete.
    pub(super) is_early: bool,
    pub(super) progress: &'a Progress,
    /// The share of the greatest learning rate that holds in this step.
    pub(super) learning_rate_share: f64,
}

/// An update that was made, and is to be committed.
pub(super) struct Update {
    /// The policy's version behind it.
    pub(super) version: u64,
    /// The trainer behind it, as [`Trainer::state`](forebay_trainer_adapter::Trainer::state) gives it.
    pub(super) state: Vec<u8>,
}

/// When a trainer computed.
pub(super) type Spans = Vec<(Instant, Instant)>;

impl PolicyTrainer {
    pub(super) fn name(&self) -> &str {
        &self.feed.name
    }

    /// The weights after the last step that was committed.
    pub(super) fn policy(&self) -> Arc<Policy<CpuDevice>> {
        match &self.learner {
            Learner::Here(trainer) => trainer.policy(),
            Learner::Group(group) => group.policy(),
        }
    }

    /// The weights of the update that was made, committed or not.
    pub(super) fn newest_policy(&self) -> Arc<Policy<CpuDevice>> {
        match &self.learner {
            Learner::Here(trainer) => trainer.policy(),
            Learner::Group(group) => group.newest_policy(),
        }
    }

    pub(super) fn weights_sha256(&self) -> String {
        self.policy().sha256(&CpuDevice::inline())
    }

    /// Accumulates everything that the step has planned for the policy. Gives the spans of time that it computed in.
    ///
    /// On an error the cache is dropped; the claims go back with the step.
    pub(super) fn accumulate_step(&mut self, work: &StepWork<'_>) -> Result<Spans> {
        let (feed, rate) = (&self.feed, self.learning_rate * work.learning_rate_share);
        match &mut self.learner {
            Learner::Here(trainer) => accumulate_here(feed, &mut **trainer, work, &mut self.micro_batches)
                .inspect_err(|_| trainer.drop_cache()),
            Learner::Group(group) => group.train_step(feed, work, rate, &mut self.micro_batches),
        }
    }

    /// Makes the update of what was accumulated; nothing where there was nothing. It counts once [`committed`](Self::committed) is told.
    pub(super) fn update(&mut self, learning_rate_share: f64) -> Result<Option<Update>> {
        let rate = self.learning_rate * learning_rate_share;
        match &mut self.learner {
            Learner::Here(trainer) => trainer.update(rate),
            Learner::Group(group) => Ok(group.update()),
        }
    }

    /// Ends what it trains by, and tells what became of its process group if it has one.
    pub(super) fn end(self) -> Option<GroupReport> {
        match self.learner {
            Learner::Here(_) => None,
            Learner::Group(group) => Some(group.end()),
        }
    }

    /// The step with the update is committed.
    pub(super) fn committed(&mut self) {
        if let Learner::Group(group) = &mut self.learner {
            group.committed();
        }
    }
}

/// What trainers have trained in this process, over all policies.
pub(super) fn count_micro_batches(trainers: &[PolicyTrainer]) -> MicroBatches {
    trainers.iter().fold(MicroBatches::default(), |sum, trainer| sum + trainer.micro_batches)
}

fn accumulate_here(
    feed: &Feed,
    trainer: &mut dyn LocalTrainer,
    work: &StepWork<'_>,
    counted: &mut MicroBatches,
) -> Result<Spans> {
    let room = if work.is_early { trainer.early_room() } else { 0 };
    if room > 0 {
        return accumulate_early(feed, trainer, work, room, counted);
    }
    let mut spans = Vec::new();
    for claim in Trigger::new(work.step.clone(), &feed.consumer, work.rule) {
        let claim = claim?;
        let (start, rows) = (Instant::now(), claim.len());
        accumulate(feed, trainer, &claim, work.membership)?;
        spans.push((start, Instant::now()));
        claim.accumulated()?;
        counted.add(false);
        work.progress.trained(rows);
    }
    Ok(spans)
}

/// Adds the gradient of a micro-batch, group by group, each at its planned place.
fn accumulate(
    feed: &Feed,
    trainer: &mut dyn LocalTrainer,
    claim: &Claim,
    membership: &Membership,
) -> Result<()> {
    feed.units(claim, trainer.version(), membership, |units| {
        let done = trainer.accumulate(units);
        done.with_context(|| format!("policy {:?} could not be trained", feed.name))
    })
}
