//! What an active group does: micro-batches, and updates.

use std::collections::BTreeSet;
use std::time::Duration;

use super::batch::{ClaimId, MicroBatch};
use super::boundary::Boundary;
use super::error::GroupError;
use super::group::ProcessGroup;
use super::life::Life;
use super::member::{Fault, Member, side_by_side};
use super::message::{Answer, Command};
use crate::trainer::StepReport;

/// What became of a micro-batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchOutcome {
    /// Its gradient is in the cache of a rank.
    Accumulated {
        /// The rank.
        rank: usize,
        /// Rows that count.
        rows: u64,
        /// Trained tokens.
        tokens: u64,
        /// What it took.
        compute: Duration,
    },
    /// It cannot be trained on, and nothing of it is in any cache.
    Refused {
        /// The rank.
        rank: usize,
        /// What is wrong with it.
        reason: String,
    },
}

/// What an update did.
#[derive(Debug, Clone, PartialEq)]
pub struct UpdateReport {
    /// SHA-256 of the new weights, the same on every rank.
    pub weights_sha256: String,
    /// The update.
    pub step: StepReport,
}

/// What a rank has made of its share: an outcome for each micro-batch up to the fault, if there was one.
type Share = (Vec<(usize, BatchOutcome)>, Option<Fault>);

impl ProcessGroup {
    /// Trains on micro-batches, shared out over the ranks: each goes to the rank that has the fewest rows of this call. Gives what
    /// became of each, in their order.
    ///
    /// Which rank computes a micro-batch changes no bit of the update.
    ///
    /// # Errors
    /// [`GroupError::ClaimTaken`] before anything was done; [`GroupError::RankLost`] and [`GroupError::States`] as
    /// [`Self::suspend`], claims of this call among the lost. [`GroupError::Life`] unless the group is active.
    pub fn accumulate(&mut self, batches: &[MicroBatch]) -> Result<Vec<BatchOutcome>, GroupError> {
        self.expect(Life::Active, "accumulate")?;
        let asked = self.check_claims(batches.iter().map(|batch| &batch.claim))?;
        let (shares, limit) = (share_out(batches, self.options.world), self.options.command_limit);
        let done = side_by_side(&mut self.members, |rank, member| {
            accumulate_share(member, batches, &shares[rank], limit)
        });
        self.observer.reached(Boundary::BatchesKnown);
        let (mut outcomes, mut faults) = (Vec::new(), Vec::new());
        for (made, fault) in done {
            for (index, outcome) in made {
                if matches!(outcome, BatchOutcome::Accumulated { .. }) {
                    self.current.accumulated.insert(batches[index].claim.clone());
                }
                outcomes.push((index, outcome));
            }
            faults.extend(fault);
        }
        if !faults.is_empty() {
            self.lose(faults, &asked)?;
        }
        outcomes.sort_unstable_by_key(|&(index, _)| index);
        Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
    }

    /// Makes the update of everything in the caches of all ranks: each rank makes the same one.
    ///
    /// It is lost with the processes until the state is set: [`Self::save`] or [`Self::suspend`].
    ///
    /// # Errors
    /// [`GroupError::OpenGroups`] while groups are open; [`GroupError::Refused`] if nothing was accumulated; [`GroupError::NotApplied`] if the gradient is not finite;
    /// [`GroupError::RankLost`] and [`GroupError::States`] as [`Self::suspend`]: if any rank that is left has made the update, it
    /// stands, and otherwise it has not been made. [`GroupError::Life`] unless the group is active.
    pub fn apply(&mut self) -> Result<UpdateReport, GroupError> {
        self.expect(Life::Active, "apply")?;
        self.expect_closed()?;
        let limit = self.options.command_limit;
        let apply = Command::Apply { learning_rate: self.learning_rate };
        let answers = side_by_side(&mut self.members, |_, member| (member.rank, member.ask(&apply, limit)));
        let mut answered = Answered::of(answers);
        let first = answered.updates.first().map(|(_, update)| update.clone());
        match first {
            None if answered.faults.is_empty() => return Err(self.not_applied(answered.refusals)),
            None => {}
            Some(ref first) => answered.expect_all(first),
        }
        if !answered.faults.is_empty() {
            self.lose(answered.faults, &BTreeSet::new())?;
        }
        let update = first.ok_or_else(|| self.life_error("apply"))?;
        self.applied(update.step.version);
        Ok(update)
    }

    /// Changes the learning rate from the next update on (a schedule). It is no part of the state: whoever resumes the group elsewhere
    /// says it again. Until it is said, it is what the ranks' [`super::Recipe`] gave their trainers.
    ///
    /// # Errors
    /// [`GroupError::Config`] if it is not 0 or more.
    pub fn set_learning_rate(&mut self, learning_rate: f64) -> Result<(), GroupError> {
        if !(learning_rate.is_finite() && learning_rate >= 0.0) {
            let reason = format!("{learning_rate} has to be 0 or more");
            return Err(GroupError::Config { agent: self.agent.clone(), field: "learning_rate", reason });
        }
        self.learning_rate = Some(learning_rate);
        Ok(())
    }

    /// Says that the claims whose gradient is in the weights of the newest version are written down as consumed: the state need not name
    /// them any more. The next version is the first that does not. Claims of an update that no version has stay, as
    /// [`Self::save`] comes first.
    ///
    /// # Errors
    /// [`GroupError::Life`] unless the group is active.
    pub fn settle(&mut self) -> Result<(), GroupError> {
        self.expect(Life::Active, "settle")?;
        self.current.applied.retain(|claim| !self.kept.applied.contains(claim));
        Ok(())
    }

    fn applied(&mut self, policy_version: u64) {
        let accumulated = std::mem::take(&mut self.current.accumulated);
        self.current.applied.extend(accumulated);
        self.policy_version = policy_version;
        self.members.iter_mut().for_each(|member| member.is_changed = false);
        self.observer.reached(Boundary::UpdateKnown);
    }

    /// No rank has made the update.
    fn not_applied(&mut self, refusals: Vec<(usize, String, bool)>) -> GroupError {
        let agent = self.agent.clone();
        let is_cache_lost = refusals.iter().any(|&(_, _, is_cache_lost)| is_cache_lost);
        let (rank, reason, _) = refusals.into_iter().next().unwrap_or_default();
        if !is_cache_lost {
            return GroupError::Refused { agent, rank, reason };
        }
        self.members.iter_mut().for_each(|member| member.is_changed = true);
        let claims = std::mem::take(&mut self.current.accumulated).into_iter().collect();
        GroupError::NotApplied { agent, reason, claims }
    }

    /// The claims of the call, none of which is in the state.
    pub(super) fn check_claims<'a>(
        &self,
        claims: impl IntoIterator<Item = &'a ClaimId>,
    ) -> Result<BTreeSet<ClaimId>, GroupError> {
        let mut asked = BTreeSet::new();
        for claim in claims {
            if self.current.has(claim) || !asked.insert(claim.clone()) {
                return Err(GroupError::ClaimTaken { agent: self.agent.clone(), claim: claim.clone() });
            }
        }
        Ok(asked)
    }
}

/// What ranks have answered to an update.
#[derive(Default)]
struct Answered {
    updates: Vec<(usize, UpdateReport)>,
    /// The rank, why, and whether its cache was lost.
    refusals: Vec<(usize, String, bool)>,
    faults: Vec<Fault>,
}

impl Answered {
    fn of(answers: Vec<(usize, Result<Answer, Fault>)>) -> Self {
        let mut answered = Self::default();
        for (rank, answer) in answers {
            match answer {
                Ok(Answer::Applied { weights_sha256, report, .. }) => {
                    answered.updates.push((rank, UpdateReport { weights_sha256, step: report }));
                }
                Ok(Answer::Refused { reason, is_cache_lost }) => {
                    answered.refusals.push((rank, reason, is_cache_lost));
                }
                Ok(other) => {
                    let reason = format!("it answered {other:?} to apply");
                    answered.faults.push(Fault { rank, reason });
                }
                Err(fault) => answered.faults.push(fault),
            }
        }
        answered
    }

    /// Some have made the update: whoever has not, or has made another one, is no rank of this step.
    fn expect_all(&mut self, first: &UpdateReport) {
        let refused = self.refusals.drain(..).map(|(rank, reason, _)| Fault { rank, reason });
        self.faults.extend(refused);
        let others = self.updates.iter().filter(|(_, update)| update.weights_sha256 != first.weights_sha256);
        self.faults.extend(others.map(|&(rank, _)| {
            let reason = "its weights are others than those of the first rank".into();
            Fault { rank, reason }
        }));
    }
}

/// Which micro-batches each rank computes: in their order, each to the rank with the fewest rows so far.
fn share_out(batches: &[MicroBatch], world: usize) -> Vec<Vec<usize>> {
    let mut shares = vec![Vec::new(); world];
    let mut rows = vec![0; world];
    for (index, batch) in batches.iter().enumerate() {
        let rank = (0..world).min_by_key(|&rank| rows[rank]).unwrap_or(0);
        shares[rank].push(index);
        rows[rank] += batch.rows();
    }
    shares
}

fn accumulate_share(member: &mut Member, batches: &[MicroBatch], share: &[usize], limit: Duration) -> Share {
    let mut made = Vec::new();
    for &index in share {
        // From the first word on its cache may be another one.
        member.is_changed = true;
        let (rank, batch) = (member.rank, batches[index].clone());
        let outcome = match member.ask(&Command::Accumulate(batch), limit) {
            Ok(Answer::Accumulated { rows, tokens, compute_us }) => {
                let compute = Duration::from_micros(compute_us);
                BatchOutcome::Accumulated { rank, rows, tokens, compute }
            }
            Ok(Answer::Refused { reason, .. }) => BatchOutcome::Refused { rank, reason },
            Ok(other) => {
                let fault = member.fault(format!("it answered {other:?} to a micro-batch"));
                return (made, Some(fault));
            }
            Err(fault) => return (made, Some(fault)),
        };
        made.push((index, outcome));
    }
    (made, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process_group::batch::{BatchRow, BatchUnit};

    #[test]
    fn micro_batches_go_to_the_rank_with_the_fewest_rows() {
        let batch = |rows: usize| {
            let unit = BatchUnit { rows: vec![BatchRow::default(); rows], ..BatchUnit::default() };
            MicroBatch { claim: ClaimId("claim".into()), units: vec![unit] }
        };
        let batches: Vec<MicroBatch> = [4, 1, 1, 1, 2].into_iter().map(batch).collect();
        assert_eq!(share_out(&batches, 2), [vec![0], vec![1, 2, 3, 4]]);
        assert_eq!(share_out(&batches[..1], 3), [vec![0], vec![], vec![]]);
        assert_eq!(share_out(&[], 1), [Vec::<usize>::new()]);
    }
}
