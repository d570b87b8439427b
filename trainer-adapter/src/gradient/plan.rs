//! From the rows of a unit to the rows that the model works on.
//!
//! Rows with equal prompts become one family: the prompt runs through the model once and the responses branch off. The
//! last prompt row predicts the first token of every response; what comes behind a response's last trained token
//! predicts nothing and is left out. Families stand in the order in which their prompts first appear, branches in the
//! order of their rows, so the shapes depend on the unit alone. A row of weight 0 has no place in the batch, and a masked
//! token no readout.

use super::cache::UnitTotals;
use super::loss::Loss;
use super::objective::{Objective, Term};
use super::row::Row;
use super::unit::UnitReport;
use crate::device::{Branch, Family, SharedAttention};
use crate::error::Error;
use crate::policy::{Batch, PolicyConfig, TokenStatistics};

/// What a readout is weighed with.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Weighing {
    /// That of the row, times what the token weighs whatever the current weights are.
    advantage: f32,
    /// A bound has decided that weight.
    is_truncated: bool,
    /// Weight of the row times that of the loss form.
    weight: f32,
    /// Recorded log-probabilities, 0 where the objective does not ask for them: of whom the current weights are compared with...
    sampled: f32,
    /// ...and of whom they are to keep near.
    reference: f32,
}

/// A checked unit, ready to be computed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    pub(crate) batch: Batch,
    pub(crate) totals: UnitTotals,
    /// The rows that are computed, in the order in which their readouts stand.
    pub(crate) row_order: Vec<usize>,
    loss: Loss,
    readouts: Vec<Weighing>,
}

/// What the backward pass is given: for each readout the derivatives of the loss numerator by its log-probability and by
/// its entropy.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Slopes {
    pub(crate) log_probs: Vec<f32>,
    pub(crate) entropies: Vec<f32>,
}

/// Which terms of the loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Terms {
    /// All of them.
    All,
    /// The policy term: it depends on the advantage.
    Policy,
    /// KL term and entropy bonus: they do not.
    Rest,
}

impl Plan {
    /// Checks the rows of the unit at `position` and lays them out.
    pub(crate) fn new(
        position: usize,
        rows: &[Row<'_>],
        config: &PolicyConfig,
        loss: Loss,
    ) -> Result<Self, Error> {
        if rows.is_empty() {
            return Err(Error::EmptyUnit { position });
        }
        for (index, row) in rows.iter().enumerate() {
            row.check(index, config, &loss.objective)?;
        }
        let attention = SharedAttention { heads: config.heads(), families: Vec::new() };
        let (tokens, positions, readouts, targets) = Default::default();
        let batch = Batch { tokens, positions, attention, readouts, targets };
        let mut plan =
            Self { batch, totals: UnitTotals::default(), row_order: Vec::new(), loss, readouts: Vec::new() };
        let counted: Vec<(usize, &Row<'_>)> =
            rows.iter().enumerate().filter(|(_, row)| row.weight > 0.0).collect();
        for (index, (_, row)) in counted.iter().enumerate() {
            let seen = counted[..index].iter().any(|(_, earlier)| earlier.prompt == row.prompt);
            if !seen {
                let members = counted[index..].iter().filter(|(_, other)| other.prompt == row.prompt);
                plan.push_family(row.prompt, members.copied());
            }
        }
        Ok(plan)
    }

    fn push_family<'a>(&mut self, prompt: &[u32], members: impl Iterator<Item = (usize, &'a Row<'a>)>) {
        let first = self.batch.tokens.len();
        self.push_rows(prompt, 0);
        let mut branches = Vec::new();
        for (index, member) in members {
            self.row_order.push(index);
            let fed = member.reach().saturating_sub(1);
            let branch = Branch { first: self.batch.tokens.len() - first, rows: fed };
            self.push_rows(&member.response[..fed], prompt.len());
            self.push_readouts(member, first + prompt.len() - 1, first + branch.first);
            branches.push(branch);
        }
        self.batch.attention.families.push(Family { first, prompt: prompt.len(), branches });
    }

    fn push_rows(&mut self, tokens: &[u32], position: usize) {
        self.batch.tokens.extend_from_slice(tokens);
        self.batch.positions.extend((position..position + tokens.len()).map(|position| position as u32));
    }

    fn push_readouts(&mut self, row: &Row<'_>, prompt_end: usize, branch: usize) {
        let tokens = row.trained();
        let weight = row.weight * self.loss.form.row_weight(tokens);
        let recorded = |values: Option<&[f32]>, needed: bool, index: usize| {
            values.filter(|_| needed).map_or(0.0, |values| values[index])
        };
        let objective = self.loss.objective;
        for (index, &target) in row.response.iter().enumerate().filter(|&(index, _)| row.is_trained(index)) {
            let source = if index == 0 { prompt_end } else { branch + index - 1 };
            self.batch.readouts.push(source as u32);
            self.batch.targets.push(target);
            let behaviour = recorded(row.behaviour_log_probs, objective.needs_behaviour(), index);
            let proximal = recorded(row.proximal_log_probs, objective.needs_proximal(), index);
            let (importance, is_truncated) = objective.importance(behaviour, proximal);
            self.readouts.push(Weighing {
                advantage: importance * row.advantage,
                is_truncated,
                weight,
                sampled: if objective.needs_proximal() { proximal } else { behaviour },
                reference: recorded(row.reference_log_probs, objective.needs_reference(), index),
            });
        }
        self.totals += UnitTotals::of_row(row.weight, tokens);
    }

    /// Whether the gradient of these terms is zero whatever the model says: a group without spread, no entropy bonus.
    pub(crate) fn is_flat(&self, terms: Terms) -> bool {
        let Loss { entropy_coefficient, objective, .. } = self.loss;
        let no_rest =
            terms == Terms::Policy || (entropy_coefficient == 0.0 && objective.kl_coefficient == 0.0);
        let no_policy = terms == Terms::Rest || self.readouts.iter().all(|readout| readout.advantage == 0.0);
        self.readouts.is_empty() || (no_rest && no_policy)
    }

    /// The slopes of the chosen terms where the model gives these statistics.
    pub(crate) fn slopes(&self, terms: Terms, statistics: &[TokenStatistics]) -> Slopes {
        let mut slopes = Slopes::default();
        for (readout, token) in self.readouts.iter().zip(statistics) {
            let mut slope = 0.0;
            if terms != Terms::Rest {
                slope += self.policy(readout, token).slope;
            }
            if terms != Terms::Policy && self.loss.objective.needs_reference() {
                let kl = Objective::kl(token.log_prob, readout.reference);
                slope += self.loss.objective.kl_coefficient * kl.slope;
            }
            let entropy = if terms == Terms::Policy { 0.0 } else { -self.loss.entropy_coefficient };
            slopes.log_probs.push(slope * readout.weight);
            slopes.entropies.push(entropy * readout.weight);
        }
        slopes
    }

    fn policy(&self, readout: &Weighing, token: &TokenStatistics) -> Term {
        self.loss.objective.policy(readout.advantage, token.log_prob, readout.sampled)
    }

    /// The unit's report, its loss numerator that of the chosen terms.
    pub(crate) fn report(&self, terms: Terms, statistics: &[TokenStatistics]) -> UnitReport {
        let UnitTotals { rows, tokens, .. } = self.totals;
        let mut report = UnitReport { rows, tokens, ..UnitReport::default() };
        let kl_coefficient = f64::from(self.loss.objective.kl_coefficient);
        for (token, readout) in statistics.iter().zip(&self.readouts) {
            let policy = self.policy(readout, token);
            let needed = self.loss.objective.needs_reference();
            let kl = if needed { Objective::kl(token.log_prob, readout.reference).loss } else { 0.0 };
            let entropy = f64::from(token.entropy);
            let mut loss = 0.0;
            if terms != Terms::Rest {
                loss += f64::from(policy.loss);
            }
            if terms != Terms::Policy {
                loss += kl_coefficient * f64::from(kl) - f64::from(self.loss.entropy_coefficient) * entropy;
            }
            report.loss_numerator += f64::from(readout.weight) * loss;
            report.mean_log_prob += f64::from(token.log_prob);
            report.mean_entropy += entropy;
            report.mean_kl += f64::from(kl);
            report.clipped_tokens += u64::from(policy.bounded || readout.is_truncated);
        }
        let count = statistics.len().max(1) as f64;
        for mean in [&mut report.mean_log_prob, &mut report.mean_entropy, &mut report.mean_kl] {
            *mean /= count;
        }
        report
    }
}
