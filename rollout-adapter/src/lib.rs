//! The rollout side: workers that sample, writers that stage, rewards that are verified.
//!
//! A rollout worker is a consumer of two tasks. *generate* gives it groups of rows that have a prompt and no response;
//! *reward* gives it rows that have a response and no reward. What it finds out it writes back as each claim's result,
//! so everything that is known of a rollout is in the store the moment it is known, and a worker that dies leaves
//! nothing but leases that end.
//!
//! - [`columns`]: the columns that rollouts write.
//! - [`generator`] and [`environment`]: the two foreign worlds that a worker meets, as traits.
//! - [`writer`]: the first rows of a step, prompts only.
//! - [`worker`]: the loop.
//!
//! This crate knows no model: whoever links it brings a [`Generator`](generator::Generator).

pub mod columns;
pub mod environment;
mod error;
pub mod generator;
pub mod worker;
pub mod writer;

pub use error::{Cause, Error, Failure, Result};
