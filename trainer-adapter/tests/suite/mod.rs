//! What holds on every device. A test binary that includes this says which device in `TestDevice` and `device`.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

pub(crate) mod common;

mod early;
mod generation;
mod golden;
mod gradients;
mod learning;
mod losses;
pub(crate) mod parallel;
mod passes;
mod payloads;
mod refusals;
mod suspend;
mod training;
