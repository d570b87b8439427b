//! What an agent does while it is its turn: one call is a micro-batch, or the update.

use std::cell::RefCell;
use std::time::Instant;

use anyhow::{Context, Error, Result, ensure};
use forebay_store::{Claim, Kind, Wait};
use forebay_trainer_adapter::process_group::{
    BatchOutcome, ClaimId, GroupError, Ledger, MicroBatch, Next, ProcessGroup,
};

use super::gradient_name::GradientName;
use crate::run::feed::Feed;
use crate::run::trainer::{Spans, StepWork};

/// A micro-batch: its claim, and each of its groups as one that a rank takes.
pub(super) struct Claimed {
    claim: Claim,
    batches: Vec<MicroBatch>,
}

impl Claimed {
    /// Whether a ledger has the gradients of all of it.
    pub(super) fn is_in(&self, ledger: &Ledger) -> bool {
        self.batches.iter().all(|batch| ledger.has(&batch.claim))
    }

    /// Says that the gradients are in the cache. A claim that has ended meanwhile is none: its rows come again, with the same names, and
    /// the answer is false.
    fn accumulated(self) -> Result<bool> {
        match self.claim.accumulated() {
            Err(error) if error.kind() == Kind::State => {
                tracing::debug!(%error, "a claim has ended; its rows come again");
                Ok(false)
            }
            said => Ok(said.map(|()| true)?),
        }
    }
}

/// A claim that is accumulated, and the gradients that it was accumulated for.
#[derive(Debug, PartialEq)]
pub(super) struct Held {
    epoch: (u64, u64),
    gradients: Vec<ClaimId>,
}

/// Takes those out of which a ledger does not have every gradient.
fn take_lost(held: &mut Vec<Held>, ledger: &Ledger) -> Vec<(u64, u64)> {
    let is_lost = |held: &mut Held| !held.gradients.iter().all(|gradient| ledger.has(gradient));
    held.extract_if(.., is_lost).map(|lost| lost.epoch).collect()
}

/// The turns of an agent in a step.
pub(super) struct Turn<'a> {
    pub(super) feed: &'a Feed,
    pub(super) work: &'a StepWork<'a>,
    /// The version of the policy that the rows have to be of.
    pub(super) version: u64,
    pub(super) learning_rate: f64,
    /// What is accumulated in the store by now.
    pub(super) held: RefCell<Vec<Held>>,
}

impl Turn<'_> {
    /// Gives back the rows whose gradients are not in this ledger, and no others.
    pub(super) fn return_lost(&self, ledger: &Ledger) -> Result<()> {
        let lost = take_lost(&mut self.held.borrow_mut(), ledger);
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
        let gradients = claimed.batches.iter().map(|batch| batch.claim.clone()).collect();
        let held = Held { epoch: claimed.claim.epoch(), gradients };
        if claimed.accumulated()? {
            self.held.borrow_mut().push(held);
        }
        Ok(())
    }

    pub(super) fn step(&self) -> u64 {
        self.work.membership.step()
    }

    /// The next micro-batch; nothing when there is none in this time.
    pub(super) fn next(&self, wait: Wait) -> Result<Option<Claimed>> {
        let claim = self.work.step.next(&self.feed.consumer, self.work.rule, wait)?;
        claim.map(|claim| self.claimed(claim)).transpose()
    }

    fn claimed(&self, claim: Claim) -> Result<Claimed> {
        let batches = self.feed.units(&claim, self.version, self.work.membership, |units| {
            let named = units.iter().map(|unit| {
                let (name, unit) = GradientName::of(self.step(), unit);
                MicroBatch { claim: name.claim(), units: vec![unit] }
            });
            Ok(named.collect())
        })?;
        Ok(Claimed { claim, batches })
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

    /// Each group of rows that the ledger does not have goes to a rank.
    fn accumulate(&self, group: &mut ProcessGroup, claimed: Claimed, spans: &mut Spans) -> Result<()> {
        let missing = |batch: &&MicroBatch| !group.ledger().has(&batch.claim);
        let batches: Vec<MicroBatch> = claimed.batches.iter().filter(missing).cloned().collect();
        let start = Instant::now();
        for outcome in group.accumulate(&batches)? {
            let refused = matches!(outcome, BatchOutcome::Refused { .. });
            ensure!(!refused, "policy {:?} could not be trained: {outcome:?}", self.feed.name);
        }
        spans.push((start, Instant::now()));
        self.work.progress.trained(batches.iter().map(MicroBatch::rows).sum());
        self.accumulated(claimed)
    }

    /// The update, and at once its state: from then on it outlives the ranks.
    fn update(&self, group: &mut ProcessGroup) -> Result<()> {
        let ledger = group.ledger();
        if ledger.accumulated.is_empty() || GradientName::is_applied(ledger, self.step()) {
            return Ok(());
        }
        group.set_learning_rate(self.learning_rate)?;
        let update = group.apply()?;
        let version = group.save()?;
        let (policy_version, rows) = (update.step.version, update.step.rows);
        tracing::debug!(agent = group.agent(), step = self.step(), policy_version, rows, version, "updated");
        Ok(())
    }
}

/// The group's part of an error, or what else has failed.
pub(super) fn of_group(error: Error) -> Result<GroupError, Error> {
    error.downcast::<GroupError>()
}

/// Whether a group that failed so can be started again and go on, once what it has lost was returned.
pub(super) fn can_go_on(error: &Error) -> bool {
    let error = error.downcast_ref::<GroupError>();
    error.is_some_and(|error| {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<ClaimId> {
        names.iter().map(|name| ClaimId((*name).into())).collect()
    }

    // FX-57: exactly the rows whose gradient was lost
    #[test]
    fn what_is_lost_is_what_the_ledger_does_not_have_and_is_told_once() {
        let held = |number, gradients: &[&str]| Held { epoch: (1, number), gradients: names(gradients) };
        let mut all = vec![held(1, &["a", "b"]), held(2, &["c"]), held(3, &["d", "e"]), held(4, &["f"])];
        let ledger = Ledger {
            accumulated: names(&["a", "b", "d"]).into_iter().collect(),
            applied: names(&["f"]).into_iter().collect(),
        };
        assert_eq!(
            take_lost(&mut all, &ledger),
            [(1, 2), (1, 3)],
            "a half that is lost takes its claim along"
        );
        assert_eq!(all, [held(1, &["a", "b"]), held(4, &["f"])]);
        assert!(take_lost(&mut all, &ledger).is_empty());
        assert_eq!(take_lost(&mut all, &Ledger::default()), [(1, 1), (1, 4)]);
    }
}
