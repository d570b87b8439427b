//! What an agent does while it is its turn: one call is a micro-batch, or the update.

use std::cell::{Cell, RefCell};
use std::time::Instant;

use anyhow::{Context, Error, Result, bail, ensure};
use forebay_store::{Claim, GroupBy, MicroBatch as Rule, Wait};
use forebay_trainer_adapter::process_group::{
    BatchOutcome, BatchRow, BatchTrajectory, GroupError, GroupPlan, Ledger, MicroBatch, Next, ProcessGroup,
};

use super::claimed::{AllHeld, Claimed, GroupPart, Work};
use super::gradient_name::GradientName;
use super::members::Early;
use crate::run::early::early_rule;
use crate::run::feed::{Feed, groups_of};
use crate::run::report::MicroBatches;
use crate::run::trainer::{Spans, StepWork};

/// The state has gradients of rows that have come out otherwise since, in another life of the run: what is accumulated is forgotten, and the
/// step is trained anew.
#[derive(Debug, thiserror::Error)]
#[error(
    "the state has gradients of other rows at position {position}; everything that is accumulated is trained again"
)]
pub(super) struct StaleGradients {
    /// The place of such a gradient in the step.
    pub(super) position: usize,
}

/// The turns of an agent in a step.
pub(super) struct Turn<'a> {
    pub(super) feed: &'a Feed,
    pub(super) work: &'a StepWork<'a>,
    /// The version of the policy that the rows have to be of.
    pub(super) version: u64,
    pub(super) learning_rate: f64,
    /// Where members are trained before their groups are complete.
    pub(super) early: Option<Early>,
    /// What is accumulated in the store by now.
    pub(super) held: RefCell<AllHeld>,
    /// What was trained on by now.
    pub(super) counted: Cell<MicroBatches>,
}

impl Turn<'_> {
    /// Gives back the rows whose gradients are not in this ledger, and no others.
    pub(super) fn return_lost(&self, ledger: &Ledger) -> Result<()> {
        let lost = self.held.borrow_mut().take_lost(ledger);
        let rows = self.work.step.return_lost(&lost)?;
        tracing::info!(
            agent = self.feed.name,
            claims = lost.len(),
            rows,
            "rows of lost gradients come again"
        );
        Ok(())
    }

    /// Says that the gradients of a micro-batch are in the cache.
    pub(super) fn accumulated(&self, claimed: Claimed) -> Result<()> {
        if let Some(held) = claimed.accumulated()? {
            self.held.borrow_mut().add(held);
        }
        Ok(())
    }

    /// Refuses an update that was saved in another life if it is not one of exactly the rows that are accumulated in the store.
    pub(super) fn check_applied(&self, ledger: &Ledger) -> Result<()> {
        let of_step = |claim: &&_| GradientName::step_of(claim) == Some(self.step());
        let other = self.held.borrow().other_than(ledger.applied.iter().filter(of_step));
        match other.filter(|_| GradientName::is_applied(ledger, self.step())) {
            Some(other) => bail!(
                "its state has an update of other rows than the step has now ({other}); go on without [process_groups], which \
                 forgets that state"
            ),
            None => Ok(()),
        }
    }

    pub(super) fn step(&self) -> u64 {
        self.work.membership.step()
    }

    /// The next micro-batch; nothing when there is none in this time.
    pub(super) fn next(&self, wait: Wait) -> Result<Option<Claimed>> {
        let claim = self.work.step.next(&self.feed.consumer, self.rule(), wait)?;
        let claimed = claim.map(|claim| {
            let work = match self.early {
                Some(early) => self.members(&claim, early).map(Work::Members),
                None => self.groups(&claim).map(Work::Groups),
            };
            Ok(Claimed { work: work?, claim })
        });
        claimed.transpose()
    }

    fn rule(&self) -> Rule {
        self.early.map_or(self.work.rule, |early| early_rule(self.work, early.room))
    }

    fn groups(&self, claim: &Claim) -> Result<Vec<MicroBatch>> {
        self.feed.units(claim, self.version, self.work.membership, |units| {
            let named = units.iter().map(|unit| {
                let (name, unit) = GradientName::of(self.step(), unit);
                MicroBatch { claim: name.claim(), units: vec![unit] }
            });
            Ok(named.collect())
        })
    }

    fn members(&self, claim: &Claim, early: Early) -> Result<Vec<GroupPart>> {
        let (samples, membership) = (claim.sample_ids(), self.work.membership);
        let (policy, version) = (&self.feed.name, self.version);
        self.feed.read_rows(claim, version, |read| {
            let groups = groups_of(samples, membership)?.into_iter().map(|(position, rows)| {
                let key = GroupBy::InputAndTurn.key(&samples[rows.start]);
                let (members, rewards) = (membership.group_size() as usize, early.rewards);
                let group = GroupPlan { position, policy: policy.clone(), version, members, rewards };
                let members = rows.map(|row| {
                    let (member, reward) = (samples[row].trajectory() as usize, read.rewards[row]);
                    let rows = vec![BatchRow::from(read.row(row, 1.0))];
                    let name = GradientName::of_member(self.step(), position, member, reward, &rows);
                    BatchTrajectory { claim: name.claim(), group: group.clone(), member, reward, rows }
                });
                GroupPart { position, key, members: members.collect() }
            });
            Ok(groups.collect())
        })
    }

    /// Trains on a micro-batch, or on the next one that is ready; makes the update once all that is planned is in.
    pub(super) fn call(
        &self,
        group: &mut ProcessGroup,
        claimed: Option<Claimed>,
        spans: &mut Spans,
    ) -> Result<Next> {
        let claimed = match claimed {
            Some(claimed) => Some(claimed),
            None => self.next(Wait::No)?,
        };
        match claimed {
            Some(claimed) => {
                self.accumulate(group, claimed, spans)?;
                Ok(Next::More)
            }
            None => {
                if self.work.step.is_complete(&self.feed.consumer) {
                    self.update(group)?;
                }
                Ok(Next::Idle)
            }
        }
    }

    /// What the ledger does not have of a micro-batch goes to ranks.
    fn accumulate(&self, group: &mut ProcessGroup, claimed: Claimed, spans: &mut Spans) -> Result<()> {
        let start = Instant::now();
        let is_early = match (&claimed.work, self.early) {
            (Work::Members(parts), Some(early)) => self.add_members(group, early, parts)?,
            (Work::Members(_), None) => false,
            (Work::Groups(batches), _) => self.add_groups(group, batches)?,
        };
        spans.push((start, Instant::now()));
        let mut counted = self.counted.get();
        counted.add(is_early);
        self.counted.set(counted);
        self.work.progress.trained(claimed.claim.len());
        self.accumulated(claimed)
    }

    /// Whole groups; none of them is early.
    fn add_groups(&self, group: &mut ProcessGroup, batches: &[MicroBatch]) -> Result<bool> {
        let missing = |batch: &&MicroBatch| !group.ledger().has(&batch.claim);
        let batches: Vec<MicroBatch> = batches.iter().filter(missing).cloned().collect();
        let positions = batches.iter().flat_map(|batch| &batch.units).map(|unit| unit.position);
        let is_stale = |position: &usize| GradientName::has_place(group.ledger(), self.step(), *position);
        if let Some(position) = positions.clone().find(is_stale) {
            return self.forget_stale(group, position);
        }
        for outcome in group.accumulate(&batches)? {
            let refused = matches!(outcome, BatchOutcome::Refused { .. });
            ensure!(!refused, "policy {:?} could not be trained: {outcome:?}", self.feed.name);
        }
        Ok(false)
    }

    /// The update, and at once its state: from then on it outlives the ranks.
    fn update(&self, group: &mut ProcessGroup) -> Result<()> {
        let ledger = group.ledger();
        if ledger.accumulated.is_empty() || GradientName::is_applied(ledger, self.step()) {
            return Ok(());
        }
        self.close_all(group)?;
        let other = self.held.borrow().other_than(&group.ledger().accumulated);
        if let Some(other) = other {
            return self.forget_stale(group, GradientName::position_of(&other).unwrap_or_default());
        }
        group.set_learning_rate(self.learning_rate)?;
        let update = group.apply()?;
        let version = keep(group, self.step())?;
        let (policy_version, rows) = (update.step.version, update.step.rows);
        tracing::debug!(agent = group.agent(), step = self.step(), policy_version, rows, version, "updated");
        Ok(())
    }
}

/// Sets the state, and gives its version. The group is suspended then where a rank had no room for its part.
fn keep(group: &mut ProcessGroup, step: u64) -> Result<u64, GroupError> {
    match group.save() {
        // Once more, and for good: what is not in a state by then is told as lost, and trained again.
        Err(GroupError::NotStaged { .. }) => match group.suspend() {
            // A rank that had no room; the update is in the state, of another. That no claim is lost would not say so: a version of before the
            // update may have them all.
            Err(GroupError::RankLost { .. }) if GradientName::is_applied(group.ledger(), step) => {
                Ok(group.version())
            }
            suspended => suspended.map(|report| report.version),
        },
        saved => saved,
    }
}

/// The group's part of an error, or what else has failed.
pub(super) fn of_group(error: Error) -> Result<GroupError, Error> {
    error.downcast::<GroupError>()
}

/// Whether a group that failed so can go on, once what it has lost was returned.
pub(super) fn can_go_on(error: &Error) -> bool {
    let is_stale = error.is::<StaleGradients>();
    let error = error.downcast_ref::<GroupError>();
    is_stale
        || error.is_some_and(|error| {
            matches!(
                error,
                GroupError::RankLost { .. } | GroupError::NotStarted { .. } | GroupError::States { .. }
            )
        })
}

/// An error with the agent that met it.
pub(super) fn of_agent<T>(result: Result<T>, agent: &str) -> Result<T> {
    result.with_context(|| format!("agent {agent:?} could not be trained by its process group"))
}
