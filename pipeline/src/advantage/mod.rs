//! Advantages: what a reward is worth beside the rewards of its group.
//!
//! Each estimator is a pure function in a file of its own, with golden numbers.

mod grpo;

pub use grpo::{Grpo, Scale};
