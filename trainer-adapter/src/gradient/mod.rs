//! What a unit adds to a step: its rows, its gradient, and the cache that keeps the sum.
//!
//! A *unit* is one closed group: the rows that are computed together. Its gradient is an unnormalised numerator and
//! depends on that unit and the weights alone. The step's denominator is applied once, when the update is made.
//!
//! A group that is still open can be trained trajectory by trajectory: [`OpenGroup`] and [`Trajectory`].

mod cache;
mod group;
mod log_probs;
mod loss;
mod objective;
mod plan;
mod row;
mod trajectory;
mod unit;

pub use cache::UnitTotals;
pub(crate) use cache::{GradientCache, Nodes};
pub(crate) use group::{Arrival, GroupSums, Member};
pub(crate) use loss::Loss;
pub use loss::LossForm;
pub use objective::{Objective, PolicyTerm};
pub(crate) use plan::{Plan, Slopes, Terms};
pub use row::Row;
pub use trajectory::{Admission, EarlyOptions, OpenGroup, RewardValues, Trajectory};
pub use unit::{Sequence, Unit, UnitReport};
