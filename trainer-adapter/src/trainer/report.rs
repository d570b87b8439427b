//! What a trainer says about itself.

/// What is in the gradient cache.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CacheReport {
    /// Planned positions of the units, ascending.
    pub positions: Vec<usize>,
    /// Rows of all units.
    pub rows: u64,
    /// Response tokens of all units.
    pub tokens: u64,
    /// Memory of the gradients, in bytes.
    pub bytes: u64,
}

/// What an update did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepReport {
    /// Norm of the step's gradient over all parameters, before clipping.
    pub gradient_norm: f64,
    /// Whether it was longer than `clip_norm`.
    pub clipped: bool,
    /// Units of the step.
    pub units: u64,
    /// Rows of the step.
    pub rows: u64,
    /// Response tokens of the step.
    pub tokens: u64,
    /// What the summed numerators were divided by.
    pub denominator: f64,
    /// The policy's version after the update.
    pub version: u64,
}
