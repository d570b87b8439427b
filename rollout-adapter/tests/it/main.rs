//! Rollout workers over a real store, with a generator and an environment that can be looked into.

#![allow(clippy::unwrap_used, reason = "tests")]

mod lineage;
mod reward_stage;
mod support;
mod workers;
