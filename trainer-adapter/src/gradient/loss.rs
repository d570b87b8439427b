//! What the losses of tokens are divided by.

/// How a step's loss is normalised. The three forms differ in how long responses weigh against short ones.
///
/// With `l` the loss of a token (`-advantage . log p - entropy_coefficient . H`):
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LossForm {
    /// `sum of l over all tokens / number of tokens`: every token weighs the same (DAPO). The default.
    #[default]
    TokenMean,
    /// `mean over rows of (mean of l over the row's tokens)`: every row weighs the same (GRPO as published).
    SampleMean,
    /// `sum of l over all tokens / (rows . n)`: a constant length n, so that no length is favoured (Dr. GRPO).
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

    /// The step's denominator, from the rows and tokens of all its units.
    pub fn denominator(self, rows: u64, tokens: u64) -> f64 {
        match self {
            Self::TokenMean => tokens as f64,
            Self::SampleMean => rows as f64,
            Self::ConstantLength(length) => rows as f64 * f64::from(length),
        }
    }
}
