//! From the rows of a unit to the rows that the model works on.
//!
//! Rows with equal prompts become one family: the prompt runs through the model once and the responses branch off. The
//! last prompt row predicts the first token of every response; a response's last token predicts nothing and is left out.
//! Families stand in the order in which their prompts first appear, branches in the order of their rows, so the shapes
//! depend on the unit alone.

use super::loss::LossForm;
use super::unit::{Sequence, Unit, UnitReport};
use crate::device::{Branch, Family, SharedAttention};
use crate::error::Error;
use crate::policy::{Batch, PolicyConfig, TokenStatistics};

/// A checked unit, ready to be computed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    pub(crate) batch: Batch,
    /// Weight of each readout's log-probability in the loss numerator.
    pub(crate) log_prob_weights: Vec<f32>,
    /// Weight of each readout's entropy in the loss numerator.
    pub(crate) entropy_weights: Vec<f32>,
    rows: usize,
}

impl Plan {
    pub(crate) fn new(
        unit: &Unit<'_>,
        config: &PolicyConfig,
        form: LossForm,
        entropy_coefficient: f32,
    ) -> Result<Self, Error> {
        if unit.rows.is_empty() {
            return Err(Error::EmptyUnit { position: unit.position });
        }
        for (row, sequence) in unit.rows.iter().enumerate() {
            check(row, sequence, config)?;
        }
        let attention = SharedAttention { heads: config.heads(), families: Vec::new() };
        let (tokens, positions, readouts, targets) = Default::default();
        let mut plan = Self {
            batch: Batch { tokens, positions, attention, readouts, targets },
            log_prob_weights: Vec::new(),
            entropy_weights: Vec::new(),
            rows: unit.rows.len(),
        };
        for (index, sequence) in unit.rows.iter().enumerate() {
            let seen = unit.rows[..index].iter().any(|earlier| earlier.prompt == sequence.prompt);
            if !seen {
                let members = unit.rows[index..].iter().filter(|row| row.prompt == sequence.prompt);
                plan.push_family(sequence.prompt, members, form, entropy_coefficient);
            }
        }
        Ok(plan)
    }

    fn push_family<'a>(
        &mut self,
        prompt: &[u32],
        members: impl Iterator<Item = &'a Sequence<'a>>,
        form: LossForm,
        entropy_coefficient: f32,
    ) {
        let first = self.batch.tokens.len();
        self.push_rows(prompt, 0);
        let mut branches = Vec::new();
        for member in members {
            let fed = member.response.len().saturating_sub(1);
            let branch = Branch { first: self.batch.tokens.len() - first, rows: fed };
            self.push_rows(&member.response[..fed], prompt.len());
            self.push_readouts(
                member,
                first + prompt.len() - 1,
                first + branch.first,
                form,
                entropy_coefficient,
            );
            branches.push(branch);
        }
        self.batch.attention.families.push(Family { first, prompt: prompt.len(), branches });
    }

    fn push_rows(&mut self, tokens: &[u32], position: usize) {
        self.batch.tokens.extend_from_slice(tokens);
        self.batch.positions.extend((position..position + tokens.len()).map(|position| position as u32));
    }

    fn push_readouts(
        &mut self,
        sequence: &Sequence<'_>,
        prompt_end: usize,
        branch: usize,
        form: LossForm,
        entropy_coefficient: f32,
    ) {
        let weight = form.row_weight(sequence.response.len());
        for (index, &target) in sequence.response.iter().enumerate() {
            let row = if index == 0 { prompt_end } else { branch + index - 1 };
            self.batch.readouts.push(row as u32);
            self.batch.targets.push(target);
            self.log_prob_weights.push(-sequence.advantage * weight);
            self.entropy_weights.push(-entropy_coefficient * weight);
        }
    }

    /// Whether the unit's gradient is zero by its weights alone: a group without spread, no entropy bonus.
    pub(crate) fn is_flat(&self) -> bool {
        self.log_prob_weights.iter().chain(&self.entropy_weights).all(|&weight| weight == 0.0)
    }

    pub(crate) fn report(&self, statistics: &[TokenStatistics]) -> UnitReport {
        let tokens = statistics.len();
        let mut report =
            UnitReport { rows: self.rows as u64, tokens: tokens as u64, ..UnitReport::default() };
        let weights = self.log_prob_weights.iter().zip(&self.entropy_weights);
        for (token, (&log_prob_weight, &entropy_weight)) in statistics.iter().zip(weights) {
            let (log_prob, entropy) = (f64::from(token.log_prob), f64::from(token.entropy));
            report.loss_numerator +=
                f64::from(log_prob_weight) * log_prob + f64::from(entropy_weight) * entropy;
            report.mean_log_prob += log_prob;
            report.mean_entropy += entropy;
        }
        report.mean_log_prob /= tokens.max(1) as f64;
        report.mean_entropy /= tokens.max(1) as f64;
        report
    }
}

fn check(row: usize, sequence: &Sequence<'_>, config: &PolicyConfig) -> Result<(), Error> {
    if sequence.prompt.is_empty() {
        return Err(Error::EmptyPrompt { row });
    }
    if !sequence.advantage.is_finite() {
        return Err(Error::Advantage { row, advantage: sequence.advantage });
    }
    let length = sequence.prompt.len() + sequence.response.len();
    let limit = config.max_position_embeddings;
    if length > limit {
        return Err(Error::TooLong { row, length, limit });
    }
    let vocab_size = config.vocab_size;
    match sequence.prompt.iter().chain(sequence.response).find(|&&token| token as usize >= vocab_size) {
        Some(&token) => Err(Error::Token { row, token, vocab_size }),
        None => Ok(()),
    }
}
