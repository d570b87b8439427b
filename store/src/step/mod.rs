//! Steps: one commit of a global batch and of the updates it makes.
//!
//! A step is atomic over tables and policies: one record marks its rows consumed, raises the versions of the policies
//! that it updates and names the objects that hold their new state, or none of it happens. Membership is planned: which
//! groups make a step is said when it begins, not decided by who arrives first.
//!
//! [`plan`] is what a user says, [`state`] what the engine knows, [`handle`] what the trainer holds.

mod handle;
mod plan;
mod state;

pub use handle::{CommittedStep, PolicyUpdate, Step};
pub use plan::StepPlan;
pub(crate) use state::{Planned, StepState};
pub use state::{StepInfo, StepProgress};
