//! What a unit adds to a step: its rows, its gradient, and the cache that keeps the sum.
//!
//! A *unit* is one closed group: the rows that are computed together. Its gradient is an unnormalised numerator and
//! depends on that unit and the weights alone. The step's denominator is applied once, when the update is made.

mod cache;
mod loss;
mod plan;
mod unit;

pub(crate) use cache::GradientCache;
pub use cache::UnitTotals;
pub use loss::LossForm;
pub(crate) use plan::Plan;
pub use unit::{Sequence, Unit, UnitReport};
