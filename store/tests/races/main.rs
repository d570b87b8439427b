//! Races: whole stores, on the simulated disk, under orders of their threads that a machine would seldom choose.
//!
//! Built with the feature `shuttle`, the store blocks on and races for nothing but shuttle's models ([`explore`]), so a
//! test says which step of which thread comes next, and finds it again by its seed. A wake-up that is lost is a deadlock
//! that shuttle reports. Time is simulated: a wait with a deadline ends at once, one without blocks until it is woken.
//!
//! `cargo test -p forebay-store --features shuttle --test races` tries as many schedules of each test as one can wait for;
//! `FOREBAY_SCHEDULES=20000` is the long form.
#![allow(clippy::unwrap_used, reason = "tests")]

mod explore;
#[allow(dead_code, reason = "shared with the other test binary, which uses more of it")]
#[path = "../it/support.rs"]
mod support;

mod group_commit;
mod leases;
mod puts;
mod ready_queue;
mod recycling;
mod snapshots;
