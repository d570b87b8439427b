//! What only the emulation can show, or shows faster.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod agreement;
mod copies;
mod failures;
mod host_memory;
mod launches;
mod refused;
mod sharing;
