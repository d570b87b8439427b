//! The rules of the pipeline over a real store.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;
mod trigger;
mod versions;
