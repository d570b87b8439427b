//! The main job: rollouts stream into the store, micro-batches leave it while the rest of the batch is still being
//! generated, and every step moves every policy.
//!
//! # Threads
//! - Rollout workers live as long as the run. They take tasks from the store and know nothing of steps.
//! - In each step every policy has a trainer thread of its own, which takes that policy's micro-batches as they become
//!   ready. When all are done, the main thread updates, stores and commits, and publishes the new weights.
//! - The main thread plans, waits, commits and reports.
//!
//! Trainers are in this process, or in processes of their own (`groups`).
//!
//! # What makes a run repeatable
//! Membership is planned from the seed; samples are drawn from a generator keyed by seed, version, sample and attempt;
//! a policy's gradient is a sum over groups in planned order. So arrival, number of threads and a crash in between
//! change nothing: a run that is resumed finds the rows of its last, unfinished step in their places and goes on.

mod devices;
mod early;
mod ending;
mod feed;
mod generator;
mod groups;
mod job;
mod local;
mod overlap;
mod policies;
mod progress;
mod report;
mod serving;
mod setup;
mod step;
mod trainer;
mod warm_up;

pub use groups::serve_rank;
pub use job::{RunOptions, run};
pub use overlap::Overlap;
pub use report::{Found, GroupReport, MicroBatches, PolicyReport, SampleReport, Summary};
pub use warm_up::warm_up;
