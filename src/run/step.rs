//! One step of a run, from its plan to its commit.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use forebay_pipeline::plan::Membership;
use forebay_pipeline::route::Router;
use forebay_rollout_adapter::environment::Environment;
use forebay_rollout_adapter::writer::begin_trajectories;
use forebay_store::{GroupBy, MicroBatch, ObjectRef, Step, StepPlan, Store};
use forebay_trainer_adapter::CpuDevice;

use crate::config::Config;

use super::policies::{Published, Weights};
use super::progress::Progress;
use super::trainer::{PolicyTrainer, Spans, StepWork, Update};

/// What a step needs of its run.
pub(super) struct StepContext<'a> {
    pub(super) store: &'a Store,
    pub(super) router: &'a Router,
    pub(super) environment: &'a dyn Environment,
    pub(super) published: &'a Published,
    pub(super) progress: &'a Progress,
    pub(super) first_agent: &'a str,
    /// Nothing is trained before the whole batch is there.
    pub(super) is_barrier: bool,
    pub(super) config: &'a Config,
}

impl StepContext<'_> {
    /// Runs one step. Gives the spans of time in which trainers computed.
    pub(super) fn run(&self, trainers: &mut [PolicyTrainer], membership: &Membership) -> Result<Spans> {
        self.progress.begin_step();
        let step = Arc::new(self.store.begin_step(self.plan(trainers, membership)?)?);
        let policy = self.router.policy_of(self.first_agent)?;
        let version = self.store.policy(policy)?.version;
        let weights = self.published.at(policy, version).map_err(|reason| anyhow!(reason))?;
        begin_trajectories(
            self.store,
            self.router,
            self.environment,
            self.first_agent,
            membership,
            version,
            &weights.fingerprint,
        )?;
        let spans = self.accumulate(trainers, &step, membership)?;
        self.commit(trainers, step, membership.step())?;
        Ok(spans)
    }

    /// Every agent of the lineage gets a group for each planned input, at its own turn.
    fn plan(&self, trainers: &[PolicyTrainer], membership: &Membership) -> Result<StepPlan> {
        let mut plan = StepPlan::new();
        for trainer in trainers {
            let lineage = self.router.lineage(self.first_agent)?;
            let turns = lineage
                .iter()
                .enumerate()
                .filter(|(_, agent)| self.router.policy_of(agent).ok() == Some(trainer.name()));
            let turns: Vec<u32> = turns.map(|(turn, _)| turn as u32).collect();
            let mut keys = Vec::new();
            for (input, &turn) in
                membership.inputs().iter().flat_map(|input| turns.iter().map(move |turn| (input, turn)))
            {
                let member = membership.samples(input, turn)?.swap_remove(0);
                keys.push(GroupBy::InputAndTurn.key(&member));
            }
            plan = plan.groups(&trainer.feed.consumer, keys);
        }
        Ok(plan)
    }

    /// All trainers at once, each on a thread of its own, until everything planned is in their caches.
    fn accumulate(
        &self,
        trainers: &mut [PolicyTrainer],
        step: &Arc<Step>,
        membership: &Membership,
    ) -> Result<Spans> {
        let learning_rate_share = self.config.learning_rate_share(membership.step());
        let (batch, progress, is_barrier) = (&self.config.file.batch, self.progress, self.is_barrier);
        let rule = MicroBatch::of(if is_barrier { batch.global_batch } else { batch.micro_batch });
        let is_early = self.config.file.trainer.early;
        let work = StepWork { step, membership, rule, is_barrier, is_early, progress, learning_rate_share };
        let results: Vec<Result<Spans>> = std::thread::scope(|scope| {
            let train = |trainer| {
                let work = &work;
                scope.spawn(move || PolicyTrainer::accumulate_step(trainer, work))
            };
            let threads: Vec<_> = trainers.iter_mut().map(train).collect();
            threads
                .into_iter()
                .map(|t| t.join().unwrap_or_else(|_| Err(anyhow!("a trainer panicked"))))
                .collect()
        });
        let mut spans = Vec::new();
        for result in results {
            spans.extend(result?);
        }
        Ok(spans)
    }

    /// Updates every policy that has rows, stores its state, publishes the weights, and commits all of it in one record. With that
    /// record rollouts get rows of the new versions, so the weights are there before it.
    fn commit(&self, trainers: &mut [PolicyTrainer], step: Arc<Step>, number: u64) -> Result<()> {
        let share = self.config.learning_rate_share(number);
        let mut updates: Vec<(String, Vec<ObjectRef>)> = Vec::new();
        for trainer in trainers.iter_mut() {
            if let Some(Update { version, state }) = trainer.update(share)? {
                let state = self.store.put_object(trainer.name(), version, &state)?;
                updates.push((trainer.name().to_owned(), vec![state]));
                self.publish(trainer, version)?;
            }
        }
        let step = Arc::into_inner(step).ok_or_else(|| anyhow!("a trainer still holds the step"))?;
        step.commit(updates.iter().map(|(name, objects)| (name.as_str(), objects.clone())))?;
        trainers.iter_mut().for_each(PolicyTrainer::committed);
        Ok(())
    }

    /// Lets rollouts of rows of this version run on a trainer's newest weights.
    pub(super) fn publish(&self, trainer: &PolicyTrainer, version: u64) -> Result<()> {
        let policy = trainer.newest_policy();
        let fingerprint = policy.sha256(&CpuDevice::inline())[..16].to_owned();
        let weights = Weights { policy, version, fingerprint };
        self.published.publish(trainer.name(), weights).map_err(|reason| anyhow!(reason))
    }
}
