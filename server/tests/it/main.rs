//! The server over real sockets. One binary: each that links DataFusion is large.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop where it stands")]

mod adbc;
mod archived;
mod client;
mod conformance;
mod dawdling;
mod deep;
mod doors;
mod ended;
mod flight;
mod killed;
mod life;
mod observed;
mod queried;
mod remote;
mod secured;
