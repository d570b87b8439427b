//! Steps: one commit of a global batch and of the updates it makes.
//!
//! A step is atomic over tables and policies: one record marks its rows consumed, raises the versions of the policies
//! that it updates and names the objects that hold their new state, or none of it happens. Membership is planned: which
//! groups make a step is said when it begins, not decided by who arrives first.
//!
//! [`plan`] is what a user says, [`state`] what the engine knows, [`handle`] what the trainer holds,
//! [`begun`] which of the steps of a number, [`relied`] how it learns that a cache was dropped. [`rewind`] takes
//! a run back to a step, [`gradient`] names gradients so that each counts once, [`replay`] gives a step's micro-batches
//! again, [`objects`] says which objects all this needs, [`forget`] what is no longer needed.

mod begun;
mod forget;
mod gang;
mod gradient;
mod handle;
mod membership;
mod objects;
mod plan;
mod relied;
mod replay;
mod retiring;
mod rewind;
mod state;

pub(crate) use begun::Begun;
pub(crate) use gang::Share;
pub use gang::{Gang, GangMember, Split};
pub use gradient::{GradientId, GradientInfo};
pub use handle::{CommittedStep, PolicyUpdate, Step};
pub(crate) use membership::{Membership, Planned, StepBatch};
pub use plan::StepPlan;
pub(crate) use relied::ReliedCaches;
pub use replay::ReplayedBatch;
pub(crate) use retiring::{Over, Retirement, Retiring};
pub(crate) use rewind::Undoing;
pub use rewind::{Rewind, RewoundTo};
pub use state::{StepInfo, StepProgress};
pub(crate) use state::{StepState, StepUpdate};
