//! The `forebay` command from the outside: real processes, real data, real kills.

#![allow(clippy::unwrap_used, reason = "tests")]

mod admin;
mod archive;
mod asked;
mod bad_input;
mod device_gpu;
mod device_host_memory;
mod device_lanes;
mod device_pinned;
mod device_tier;
mod device_verified;
mod documents;
mod doors;
mod early;
mod early_groups;
mod guarded;
mod nearest;
mod objectives;
mod process_groups;
mod ranks;
mod repeatable;
mod rewound;
mod run_groups;
mod secrets;
mod signalled;
mod sql;
mod stored;
mod support;
mod survives;
