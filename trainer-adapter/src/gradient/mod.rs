//! What a unit adds to a step: its rows, its gradient, and the cache that keeps the sum.
//!
//! A *unit* is one closed group: the rows that are computed together. Its gradient is an unnormalised numerator and
//! depends on that unit and the weights alone. The step's denominator is applied once, when the update is made.

mod cache;
mod loss;
mod objective;
mod plan;
mod row;
mod unit;

pub(crate) use cache::GradientCache;
pub use cache::UnitTotals;
pub(crate) use loss::Loss;
pub use loss::LossForm;
pub use objective::{Objective, PolicyTerm};
pub(crate) use plan::{Plan, Slopes, Terms};
pub use row::Row;
pub use unit::{Sequence, Unit, UnitReport};
