//! The reasoning environment of the main job: real problems, exactly checkable answers.
//!
//! - [`problem`]: what the data files hold.
//! - [`vocabulary`]: text to tokens and back.
//! - [`environment`]: prompts and rewards of solver and checker.
//! - [`examples`]: what the supervised warm-up shows.
//! - [`evaluation`]: how good a policy is on problems that nobody trains on.

pub mod environment;
pub mod evaluation;
pub mod examples;
pub mod problem;
pub mod vocabulary;
