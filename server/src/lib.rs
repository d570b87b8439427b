//! A store seen over HTTP and Arrow Flight SQL: health, metrics, and SQL that only reads.
//!
//! Start with [`Server`]. It serves a store that lives in this process, from threads of its own, so that a synchronous
//! trainer can be looked into while it runs.
//!
//! | request | answer |
//! | --- | --- |
//! | `GET /health` | 200 as long as the server answers |
//! | `GET /ready` | 200 while the store accepts calls, 503 once it is closed |
//! | `GET /metrics` | the Prometheus text format |
//! | `POST /sql` | the body is one SELECT; `Accept: application/json` (default), `text/csv`, `text/plain`, `application/vnd.apache.arrow.stream` or `application/vnd.apache.parquet` |
//!
//! What fails answers `{"kind": …, "message": …}`; a kind says what to do next and does not change between releases.
//!
//! [`Builder::flight`] serves Arrow Flight SQL beside it, for ADBC and JDBC drivers: statements, prepared statements with
//! values, catalogs, schemas and tables, cancellation. [`Builder::refresh`] is for a store that another process writes.
//!
//! Whoever can reach the server can read the whole store. So without a [`Token`] only loopback addresses are served, unless
//! [`Builder::allow_remote`] says otherwise; with one ([`Builder::token`]), whoever shows it is let in.

mod builder;
mod error;
mod failure;
mod flight;
mod guard;
mod metrics;
mod queries;
mod routes;
mod server;
mod sql;
mod token;

pub use builder::Builder;
pub use error::{Error, Result};
pub use server::{Server, Stopper};
pub use token::Token;
