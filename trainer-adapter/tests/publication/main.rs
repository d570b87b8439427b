//! Publish and get from device to device, on the stand-in: in one process, between processes, and with processes that are killed.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod barrier;
mod faults;
mod kills;
mod program;
mod random;
mod rotation;
mod state;
mod transfer;
