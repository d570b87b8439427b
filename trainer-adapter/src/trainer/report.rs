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
    /// Groups that are trained early and not closed yet, by position. Their rows and tokens are not counted above.
    pub open_groups: Vec<OpenGroupReport>,
    /// Memory of their sums, in bytes.
    pub open_bytes: u64,
}

/// How far an open group is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenGroupReport {
    /// Its planned place in the step.
    pub position: usize,
    /// Members planned.
    pub members: usize,
    /// Members that have come.
    pub arrived: usize,
    /// Members that are still to come; what is neither is excluded.
    pub missing: usize,
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
