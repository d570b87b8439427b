//! A store seen over HTTP: health, metrics, and SQL that only reads.
//!
//! Start with [`Server`]. It serves a store that lives in this process, from threads of its own, so that a synchronous
//! trainer can be looked into while it runs.
//!
//! | request | answer |
//! | --- | --- |
//! | `GET /health` | 200 as long as the server answers |
//! | `GET /ready` | 200 while the store accepts calls, 503 once it is closed |
//! | `GET /metrics` | the Prometheus text format |
//! | `POST /sql` | the body is one SELECT; `Accept: application/json` (default), `text/csv` or `text/plain` |
//!
//! What fails answers `{"kind": …, "message": …}`; a kind says what to do next and does not change between releases.
//!
//! Whoever can reach the server can read the whole store: there is no authentication yet, so only loopback addresses are
//! served unless [`Builder::allow_remote`] says otherwise.

mod builder;
mod error;
mod failure;
mod guard;
mod metrics;
mod routes;
mod server;
mod sql;

pub use builder::Builder;
pub use error::{Error, Result};
pub use server::{Server, Stopper};
