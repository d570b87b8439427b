//! What goes into a gradient and what is reported of it.

use super::row::Row;

/// One row: a prompt, the response that was sampled for it, and how good it was.
///
/// What a plain on-policy loss needs. [`Row`] adds a mask, a weight and recorded log-probabilities.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sequence<'a> {
    /// Tokens that are given. Not empty.
    pub prompt: &'a [u32],
    /// Tokens whose log-probability is trained, the stop token included where it was sampled. An empty response adds a
    /// row and no tokens.
    pub response: &'a [u32],
    /// What each token's log-probability is multiplied by. 1 trains as supervised learning does (cross-entropy).
    pub advantage: f32,
}

/// A closed group: rows computed together, at a planned place in the step.
///
/// The order of the rows is part of the unit: another order gives the same gradient up to rounding, not bit for bit.
/// Callers give rows in sample-id order. Rows with equal prompts share the prompt's computation. The rows are
/// [`Sequence`]s or [`Row`]s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Unit<'a, R = Sequence<'a>> {
    /// The unit's planned place in the step, from 0. It decides where in the sum the unit's gradient stands.
    pub position: usize,
    /// Name of the policy that the rows were sampled from.
    pub policy: &'a str,
    /// Version of the policy that the rows were sampled from.
    pub version: u64,
    /// The rows.
    pub rows: &'a [R],
}

impl<'a, R: Copy + Into<Row<'a>>> Unit<'a, R> {
    /// The rows with everything that a loss may ask for.
    pub(crate) fn full_rows(&self) -> Vec<Row<'a>> {
        self.rows.iter().map(|&row| row.into()).collect()
    }
}

/// What a unit looked like under the current weights. Rows of weight 0 and masked tokens are in none of the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct UnitReport {
    /// Rows.
    pub rows: u64,
    /// Trained tokens.
    pub tokens: u64,
    /// The unit's loss before it is divided by the step's denominator.
    pub loss_numerator: f64,
    /// Mean log-probability of a trained token, in nats; 0 without tokens.
    pub mean_log_prob: f64,
    /// Mean entropy at a trained token, in nats; 0 without tokens.
    pub mean_entropy: f64,
    /// Mean of the KL estimate at a trained token, in nats; 0 without tokens or without a KL term.
    pub mean_kl: f64,
    /// Tokens whose policy term was clipped or truncated.
    pub clipped_tokens: u64,
}
