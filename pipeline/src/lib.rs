//! The rules of reinforcement-learning data flow, on top of the store.
//!
//! - [`plan`]: which inputs and how many trajectories make a step, decided before its rollouts start.
//! - [`trigger`]: a stream that yields a claim the moment enough is ready.
//! - [`version`]: one version of each policy in a step.
//! - [`advantage`]: what a reward is worth beside the rewards of its group.
//! - [`route`]: agents to policies and tables, and a trajectory from one agent to the next.
//!
//! This crate knows what a step, a group and a version are. It knows no model, no transport and no SQL, and starts no
//! thread.

pub mod advantage;
mod error;
pub mod plan;
pub mod route;
pub mod trigger;
pub mod version;

pub use error::{Cause, Error, Kind, Result};
