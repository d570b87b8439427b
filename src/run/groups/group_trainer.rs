//! An agent's trainer whose work is done by a process group.

use std::sync::Arc;

use anyhow::{Context, Result};
use forebay_store::Wait;
use forebay_trainer_adapter::process_group::Next;
use forebay_trainer_adapter::{CpuDevice, Policy, Trainer, TrainerOptions};

use super::claimed::Claimed;
use super::gradient_name::GradientName;
use super::members::Early;
use super::opening::open_state;
use super::ranks::Ranks;
use super::seat::Seat;
use super::turn::{Turn, can_go_on, of_agent, of_group};
use crate::run::early::{early_room, reward_values};
use crate::run::feed::Feed;
use crate::run::report::{Found, GroupReport, MicroBatches};
use crate::run::trainer::{Spans, StepWork, Update};

/// An update that is saved, and is to be committed.
struct Updated {
    policy: Arc<Policy<CpuDevice>>,
    /// Until it is handed out.
    update: Option<Update>,
}

/// Trains one policy by a process group. See the module for who owns what.
pub(in crate::run) struct GroupTrainer {
    seat: Seat,
    options: TrainerOptions,
    /// The weights after the last step that was committed.
    policy: Arc<Policy<CpuDevice>>,
    updated: Option<Updated>,
    /// Whether the group may forget gradients that are applied: their step is committed.
    is_committed: bool,
    losses_max: u32,
    /// How it trains early, where it is asked to and has room for the sums of one group.
    early: Option<Early>,
    found: Found,
}

impl GroupTrainer {
    /// The group of an agent, the `index`th, that goes on from what the store has of its trainer; `next_step` is the one to come.
    ///
    /// # Errors
    /// When its state cannot be read or set, or no slots can hold it.
    pub(in crate::run) fn open(
        ranks: &Ranks,
        (index, agent): (usize, &str),
        trainer: &Trainer<CpuDevice>,
        next_step: u64,
    ) -> Result<Self> {
        let open = || {
            let mut group = ranks.group(agent)?;
            let found = open_state(&mut group, trainer, next_step)
                .context("its state cannot be used; go on without [process_groups], which needs none")?;
            Ok((ranks.seat(index, group)?, found))
        };
        let (seat, found) = of_agent(open(), agent)?;
        Ok(GroupTrainer {
            seat,
            options: trainer.options().clone(),
            policy: trainer.policy(),
            updated: None,
            is_committed: found.applied == 0,
            losses_max: ranks.losses_max(),
            early: Some(Early { room: early_room(trainer), rewards: reward_values(trainer) })
                .filter(|early| early.room > 0),
            found,
        })
    }

    /// The weights after the last step that was committed.
    pub(in crate::run) fn policy(&self) -> Arc<Policy<CpuDevice>> {
        Arc::clone(&self.policy)
    }

    /// The weights of the update that was made, committed or not.
    pub(in crate::run) fn newest_policy(&self) -> Arc<Policy<CpuDevice>> {
        Arc::clone(self.updated.as_ref().map_or(&self.policy, |updated| &updated.policy))
    }

    /// Trains on everything that the step has planned, and makes the update. Lost ranks are started again; adds what was trained to
    /// `counted`, and gives the spans of time that ranks computed in.
    ///
    /// # Errors
    /// When ranks were lost too often, the state has an update of other rows, or something else has failed.
    pub(in crate::run) fn train_step(
        &mut self,
        feed: &Feed,
        work: &StepWork<'_>,
        learning_rate: f64,
        counted: &mut MicroBatches,
    ) -> Result<Spans> {
        let (version, early) = (self.policy.version(), self.early.filter(|_| work.is_early));
        let (held, trained) = Default::default();
        let turn = Turn { feed, work, version, learning_rate, early, held, counted: trained };
        let (mut spans, mut losses) = (Spans::new(), 0);
        while let Err(error) = self.try_step(&turn, &mut spans) {
            if !can_go_on(&error) || losses == self.losses_max {
                return of_agent(Err(error), &feed.name);
            }
            losses += 1;
            let cause = format!("{error:#}");
            tracing::warn!(
                agent = feed.name,
                losses,
                cause,
                "gradients were lost; their rows go back and are trained on again"
            );
            turn.return_lost(self.seat.group().ledger())?;
        }
        of_agent(turn.check_applied(self.seat.group().ledger()), &feed.name)?;
        *counted = *counted + turn.counted.get();
        self.updated = of_agent(self.read_update(turn.step()), &feed.name)?;
        Ok(spans)
    }

    /// From whatever is in the state to the update.
    fn try_step(&mut self, turn: &Turn<'_>, spans: &mut Spans) -> Result<()> {
        loop {
            let claimed = turn.next(Wait::Forever)?;
            let ledger = self.seat.group().ledger();
            match claimed {
                Some(claimed) if claimed.is_in(ledger) => turn.accumulated(claimed)?,
                // All that is planned is in.
                None if ledger.accumulated.is_empty() => return Ok(()),
                claimed => self.take_turn(turn, claimed, spans)?,
            }
        }
    }

    fn take_turn(&mut self, turn: &Turn<'_>, mut claimed: Option<Claimed>, spans: &mut Spans) -> Result<()> {
        let (is_committed, mut failed) = (&mut self.is_committed, None);
        let ran = self.seat.run(|group| {
            if std::mem::take(is_committed) {
                group.settle()?;
            }
            turn.call(group, claimed.take(), spans).or_else(|error| match of_group(error) {
                Ok(error) => Err(error),
                Err(other) => {
                    failed = Some(other);
                    Ok(Next::Idle)
                }
            })
        });
        let counts = self.seat.group().counts();
        let (resumes, suspends) = (counts.starts.times, counts.suspends.times);
        tracing::debug!(agent = self.seat.group().agent(), resumes, suspends, "a turn is over");
        ran?;
        failed.map_or(Ok(()), Err)
    }

    /// The update that the newest state has of this step; nothing where nothing was trained on.
    fn read_update(&self, step: u64) -> Result<Option<Updated>> {
        let group = self.seat.group();
        if !GradientName::is_applied(group.ledger(), step) {
            return Ok(None);
        }
        let state = group.trainer_state()?.context("its update is in no state")?;
        let restored =
            Trainer::restore(&CpuDevice::inline(), self.policy.config(), self.options.clone(), &state)?;
        let policy = restored.policy();
        let update = Some(Update { version: policy.version(), state });
        Ok(Some(Updated { policy, update }))
    }

    /// The update of the step that was trained on last, once.
    pub(in crate::run) fn update(&mut self) -> Option<Update> {
        self.updated.as_mut()?.update.take()
    }

    /// The step with that update is committed.
    pub(in crate::run) fn committed(&mut self) {
        if let Some(Updated { policy, .. }) = self.updated.take() {
            (self.policy, self.is_committed) = (policy, true);
        }
    }

    /// Ends all ranks, and tells what the group has been through.
    pub(in crate::run) fn end(self) -> GroupReport {
        let group = self.seat.end();
        let report = GroupReport {
            agent: group.agent().to_owned(),
            world: group.world(),
            counts: group.counts(),
            found: self.found,
        };
        group.destroy();
        report
    }
}
