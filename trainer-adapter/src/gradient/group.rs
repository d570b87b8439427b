//! The sums of one open group, and how they become its gradient.
//!
//! The policy term of a trajectory is linear in its advantage, so with `s_i` the gradient of its numerator for an advantage
//! of 1 and advantages `a_i = slope (r_i - reference) + base`, the group's gradient is `slope D + base S` of the sums
//! `S = sum of s_i` and `D = sum of (r_i - reference) s_i`. Every group-relative estimator has this form (GRPO: slope
//! `1 / (std + eps)`, base `-(mean - reference) slope`), whatever its standard deviation is. With a clipped loss the term is
//! linear once the sign of the advantage is known: with two reward values each has a sum of its own. The KL term and the
//! entropy bonus do not depend on the advantage and have a third.
//!
//! Sums are 64-bit integers, so their bits do not depend on the order in which members arrive, and they keep the digits
//! that 32-bit sums of large rewards lose.

use super::cache::UnitTotals;
use super::trajectory::RewardValues;
use super::unit::UnitReport;
use crate::device::Device;
use crate::error::Error;

/// A member that has come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Arrival {
    pub(crate) reward: f64,
    pub(crate) totals: UnitTotals,
    /// Report of the policy term for an advantage of 1 (-1 at the lower of two rewards).
    pub(crate) policy: UnitReport,
    /// Loss numerator of the terms that do not depend on the advantage.
    pub(crate) rest_loss: f64,
}

/// A planned member.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Member {
    Expected,
    /// Will never come.
    Excluded,
    Arrived(Arrival),
}

/// An open group.
pub(crate) struct GroupSums<D: Device> {
    pub(crate) rewards: RewardValues,
    pub(crate) members: Vec<Member>,
    /// `S`, or the sum of the members with the higher reward.
    pub(crate) first: D::Sums,
    /// `D`, or the sum of the members with the lower reward.
    pub(crate) second: D::Sums,
    /// Of the terms that do not depend on the advantage, where there are any.
    pub(crate) rest: Option<D::Sums>,
}

/// What the two sums are multiplied by, and the advantage of each arrived member.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Factors {
    pub(crate) first: f64,
    pub(crate) second: f64,
    pub(crate) advantages: Vec<f64>,
}

impl RewardValues {
    /// The advantage that a member's policy term is computed for, and the factors of its gradient in the two sums.
    pub(crate) fn parts(self, reward: f64) -> (f32, [f64; 2]) {
        match self {
            Self::Any { reference } => (1.0, [1.0, reward - reference]),
            Self::Two { high, .. } if reward == high => (1.0, [1.0, 0.0]),
            Self::Two { .. } => (-1.0, [0.0, 1.0]),
        }
    }
}

impl<D: Device> GroupSums<D> {
    pub(crate) fn arrivals(&self) -> impl Iterator<Item = &Arrival> {
        self.members.iter().filter_map(|member| match member {
            Member::Arrived(arrival) => Some(arrival),
            Member::Expected | Member::Excluded => None,
        })
    }

    /// Members that are still to come.
    pub(crate) fn missing(&self) -> usize {
        self.members.iter().filter(|member| **member == Member::Expected).count()
    }

    pub(crate) fn sums(&self) -> usize {
        2 + usize::from(self.rest.is_some())
    }

    /// Checks that a member may arrive with this reward.
    pub(crate) fn check_arrival(&self, position: usize, member: usize, reward: f64) -> Result<(), Error> {
        let refuse = |reason| Err(Error::Member { position, member, reason });
        match self.members.get(member) {
            None => return refuse("is not planned"),
            Some(Member::Excluded) => return refuse("was excluded"),
            Some(Member::Arrived(_)) => return refuse("has arrived already"),
            Some(Member::Expected) => {}
        }
        let fits = match self.rewards {
            RewardValues::Any { .. } => reward.is_finite(),
            RewardValues::Two { low, high } => reward == low || reward == high,
        };
        if fits { Ok(()) } else { Err(Error::Reward { position, member, reward }) }
    }

    /// Finds what the sums are multiplied by to give each member its advantage.
    pub(crate) fn factors(
        &self,
        position: usize,
        advantages: &[f64],
        signed: bool,
    ) -> Result<Factors, Error> {
        let refuse = |reason: String| Err(Error::GroupAdvantages { position, reason });
        let rewards: Vec<f64> = self.arrivals().map(|arrival| arrival.reward).collect();
        let numbers = advantages.iter().all(|advantage| advantage.is_finite());
        if rewards.len() != advantages.len() || rewards.is_empty() || !numbers {
            let (given, members) = (advantages.len(), rewards.len());
            return refuse(format!(
                "{given} advantages for {members} members; give a finite number for each"
            ));
        }
        // Exact comparison: a mean with rounding would give equal rewards a spread.
        if rewards.len() > 1 && rewards.iter().all(|reward| *reward == rewards[0]) {
            return Ok(Factors { first: 0.0, second: 0.0, advantages: vec![0.0; rewards.len()] });
        }
        let line = Line::through(self.rewards, &rewards, advantages);
        if let Some(reason) = line.misses(&rewards, advantages) {
            return refuse(reason);
        }
        let (first, second) = match self.rewards {
            RewardValues::Any { .. } => (line.base, line.slope),
            RewardValues::Two { low, high } => {
                let of =
                    |value: f64| rewards.iter().position(|&reward| reward == value).map(|at| advantages[at]);
                (of(high).unwrap_or(0.0), -of(low).unwrap_or(0.0))
            }
        };
        if signed && (first < 0.0 || second < 0.0) {
            return refuse(
                "a clipped loss needs 0 or more at the higher reward and 0 or less at the lower".into(),
            );
        }
        Ok(Factors { first, second, advantages: advantages.to_vec() })
    }

    /// What the group counts, and its report under these advantages.
    pub(crate) fn report(&self, advantages: &[f64]) -> (UnitTotals, UnitReport) {
        let (mut totals, mut report) = (UnitTotals::default(), UnitReport::default());
        for (arrival, advantage) in self.arrivals().zip(advantages) {
            let (sign, _) = self.rewards.parts(arrival.reward);
            let UnitReport { rows, tokens, loss_numerator, clipped_tokens, .. } = arrival.policy;
            totals += arrival.totals;
            report.rows += rows;
            report.tokens += tokens;
            report.clipped_tokens += clipped_tokens;
            report.loss_numerator += advantage * f64::from(sign) * loss_numerator + arrival.rest_loss;
            report.mean_log_prob += arrival.policy.mean_log_prob * tokens as f64;
            report.mean_entropy += arrival.policy.mean_entropy * tokens as f64;
            report.mean_kl += arrival.policy.mean_kl * tokens as f64;
        }
        let tokens = report.tokens.max(1) as f64;
        for mean in [&mut report.mean_log_prob, &mut report.mean_entropy, &mut report.mean_kl] {
            *mean /= tokens;
        }
        (totals, report)
    }
}

/// `advantage = slope (reward - reference) + base`.
struct Line {
    slope: f64,
    base: f64,
    reference: f64,
}

impl Line {
    /// The line through the members with the least and the greatest reward.
    fn through(values: RewardValues, rewards: &[f64], advantages: &[f64]) -> Self {
        let reference = match values {
            RewardValues::Any { reference } => reference,
            RewardValues::Two { low, .. } => low,
        };
        let by_reward = |a: &usize, b: &usize| rewards[*a].total_cmp(&rewards[*b]);
        let ends = (0..rewards.len()).min_by(by_reward).zip((0..rewards.len()).max_by(by_reward));
        let Some((least, most)) = ends else { return Self { slope: 0.0, base: 0.0, reference } };
        let spread = rewards[most] - rewards[least];
        let slope = if spread > 0.0 { (advantages[most] - advantages[least]) / spread } else { 0.0 };
        Self { slope, base: advantages[least] - slope * (rewards[least] - reference), reference }
    }

    /// What is wrong with the first advantage that does not lie on the line.
    fn misses(&self, rewards: &[f64], advantages: &[f64]) -> Option<String> {
        let greatest = advantages.iter().fold(0.0, |most: f64, advantage| most.max(advantage.abs()));
        let expected = |reward: f64| self.slope * (reward - self.reference) + self.base;
        let mut pairs = rewards.iter().zip(advantages);
        let (&reward, advantage) =
            pairs.find(|&(&reward, advantage)| (expected(reward) - advantage).abs() > 1e-6 * greatest)?;
        let line = expected(reward);
        Some(format!(
            "reward {reward} has advantage {advantage}, on a line through the others it would have {line}"
        ))
    }
}
