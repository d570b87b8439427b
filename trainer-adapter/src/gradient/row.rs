//! A row with everything that a loss may ask for, and what is refused in one.

use super::objective::Objective;
use super::unit::Sequence;
use crate::error::Error;
use crate::policy::PolicyConfig;

/// A sequence with its mask, its weight and the log-probabilities that were recorded for it.
///
/// ```
/// use forebay_trainer_adapter::{Row, Sequence};
/// let row = Row { loss_mask: Some(&[true, false, true]), ..Row::new(&[5, 6], &[7, 8, 9]) };
/// assert_eq!((row.advantage, row.weight), (1.0, 1.0));
/// let sequence = Sequence { prompt: &[5, 6], response: &[7, 8, 9], advantage: -0.5 };
/// assert_eq!(Row::from(sequence).advantage, -0.5);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row<'a> {
    /// Tokens that are given. Not empty.
    pub prompt: &'a [u32],
    /// Tokens that follow. An empty response adds a row and no tokens.
    pub response: &'a [u32],
    /// What the policy term of each token is multiplied by. Default 1.
    pub advantage: f32,
    /// Which tokens of the response are trained; default all. A token that is not (the words of a tool or of an
    /// environment) is read by the tokens behind it and counts nowhere: not in the numerator, not in a denominator.
    pub loss_mask: Option<&'a [bool]>,
    /// Log-probability of each token of the response under the policy that sampled it, in nats. What stands at masked
    /// tokens is not looked at.
    pub behaviour_log_probs: Option<&'a [f32]>,
    /// Log-probability of each token of the response under the weights that the update begins with, as the trainer computes it, in
    /// nats: for [`PolicyTerm::ClippedTruncated`](super::PolicyTerm::ClippedTruncated). What stands at masked tokens is not looked at.
    pub proximal_log_probs: Option<&'a [f32]>,
    /// Log-probability of each token of the response under the reference policy, in nats. What stands at masked tokens
    /// is not looked at.
    pub reference_log_probs: Option<&'a [f32]>,
    /// How much the row weighs, in numerator and denominator alike: a row of weight 2 is the row twice, a row of weight 0
    /// (padding) is not computed and counts nowhere. 0 or more; default 1.
    pub weight: f32,
}

impl<'a> Row<'a> {
    /// A row of advantage 1 and weight 1, with neither mask nor recorded log-probabilities.
    pub fn new(prompt: &'a [u32], response: &'a [u32]) -> Self {
        Self {
            prompt,
            response,
            advantage: 1.0,
            loss_mask: None,
            behaviour_log_probs: None,
            proximal_log_probs: None,
            reference_log_probs: None,
            weight: 1.0,
        }
    }

    /// Whether the token at `index` of the response is trained.
    pub(crate) fn is_trained(&self, index: usize) -> bool {
        self.loss_mask.is_none_or(|mask| mask[index])
    }

    /// Number of trained tokens.
    pub(crate) fn trained(&self) -> usize {
        (0..self.response.len()).filter(|&index| self.is_trained(index)).count()
    }

    /// Response tokens up to and with the last trained one: what comes behind it influences nothing.
    pub(crate) fn reach(&self) -> usize {
        (0..self.response.len()).rfind(|&index| self.is_trained(index)).map_or(0, |last| last + 1)
    }

    /// Refuses what cannot be computed. `index` is the row's place in its unit.
    pub(crate) fn check(
        &self,
        index: usize,
        config: &PolicyConfig,
        objective: &Objective,
    ) -> Result<(), Error> {
        if self.prompt.is_empty() {
            return Err(Error::EmptyPrompt { row: index });
        }
        if !self.advantage.is_finite() {
            return Err(Error::Advantage { row: index, advantage: self.advantage });
        }
        if !(self.weight.is_finite() && self.weight >= 0.0) {
            return Err(Error::Weight { row: index, weight: self.weight });
        }
        self.check_tokens(index, config)?;
        self.check_mask(index)?;
        self.check_column(
            index,
            "behaviour_log_probs",
            self.behaviour_log_probs,
            objective.needs_behaviour(),
        )?;
        self.check_column(index, "proximal_log_probs", self.proximal_log_probs, objective.needs_proximal())?;
        self.check_column(index, "reference_log_probs", self.reference_log_probs, objective.needs_reference())
    }

    fn check_tokens(&self, row: usize, config: &PolicyConfig) -> Result<(), Error> {
        let length = self.prompt.len() + self.response.len();
        let limit = config.max_position_embeddings;
        if length > limit {
            return Err(Error::TooLong { row, length, limit });
        }
        let vocab_size = config.vocab_size;
        match self.prompt.iter().chain(self.response).find(|&&token| token as usize >= vocab_size) {
            Some(&token) => Err(Error::Token { row, token, vocab_size }),
            None => Ok(()),
        }
    }

    fn check_mask(&self, row: usize) -> Result<(), Error> {
        let Some(mask) = self.loss_mask else { return Ok(()) };
        let (length, expected) = (mask.len(), self.response.len());
        if length != expected {
            return Err(Error::ColumnLength { row, column: "loss_mask", length, expected });
        }
        if expected > 0 && !mask.contains(&true) {
            return Err(Error::EmptyMask { row, tokens: expected });
        }
        Ok(())
    }

    fn check_column(
        &self,
        row: usize,
        column: &'static str,
        values: Option<&[f32]>,
        needed: bool,
    ) -> Result<(), Error> {
        let Some(values) = values else {
            return if needed { Err(Error::MissingColumn { row, column }) } else { Ok(()) };
        };
        let (length, expected) = (values.len(), self.response.len());
        if length != expected {
            return Err(Error::ColumnLength { row, column, length, expected });
        }
        let bad = |&(token, value): &(usize, &f32)| self.is_trained(token) && !value.is_finite();
        match values.iter().enumerate().find(bad) {
            Some((token, &value)) => Err(Error::LogProb { row, column, token, value }),
            None => Ok(()),
        }
    }
}

impl<'a> From<Sequence<'a>> for Row<'a> {
    fn from(sequence: Sequence<'a>) -> Self {
        Self { advantage: sequence.advantage, ..Self::new(sequence.prompt, sequence.response) }
    }
}
