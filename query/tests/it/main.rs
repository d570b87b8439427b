//! SQL over stores as people use it. One binary: each that links DataFusion is large.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop where it stands")]

mod archive;
mod bounded;
mod by_number;
mod chosen;
mod deep;
mod deleting;

mod differential;
mod documented;
mod ended;
mod episodes;
mod fixture;
mod floats;
mod freshness;
mod functions;
mod grouped;
mod instant;
mod late;
mod limits;
mod narrowed;
mod prepared;
mod pushdown;
mod reading;
mod refused;
mod retrieved;
mod system;
mod travel;
