//! What the losses of tokens are divided by.

use super::cache::UnitTotals;

/// How a step's loss is normalised. The three forms differ in how long responses weigh against short ones.
///
/// With `l` the loss of a trained token (the terms of [`super::Objective`], and `- entropy_coefficient . H`) and `w` the
/// weight of its row:
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LossForm {
    /// `sum of w l over all tokens / sum of w over all tokens`: every token weighs the same (DAPO, Yu et al. 2025). The
    /// default.
    #[default]
    TokenMean,
    /// `sum over rows of w (mean of l over the row's tokens) / sum of w over rows`: every row weighs the same (GRPO as
    /// published, Shao et al. 2024).
    SampleMean,
    /// `sum of w l over all tokens / (n . sum of w over rows)`: a constant length n, so that no length is favoured
    /// (Dr. GRPO, Liu et al. 2025).
    ConstantLength(u32),
}

impl LossForm {
    /// What a row's tokens are weighted by in the numerator.
    pub(crate) fn row_weight(self, tokens: usize) -> f32 {
        match self {
            Self::SampleMean if tokens > 0 => 1.0 / tokens as f32,
            _ => 1.0,
        }
    }

    /// The step's denominator, from the totals of all its units.
    pub fn denominator(self, totals: &UnitTotals) -> f64 {
        match self {
            Self::TokenMean => totals.token_weight,
            Self::SampleMean => totals.row_weight,
            Self::ConstantLength(length) => totals.row_weight * f64::from(length),
        }
    }
}

/// Everything that decides a unit's loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Loss {
    pub(crate) form: LossForm,
    pub(crate) entropy_coefficient: f32,
    pub(crate) objective: super::Objective,
}
