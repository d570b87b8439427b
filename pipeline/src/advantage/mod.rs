//! Advantages: what a reward is worth beside the rewards of its group.
//!
//! Each estimator is a pure function in a file of its own, with golden numbers.

mod episode;
mod grpo;
mod mixed;

pub use episode::Episodes;
pub use grpo::{Grpo, Scale, Single};
pub use mixed::Mixed;
