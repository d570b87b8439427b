//! A store for other processes: over HTTP and Arrow Flight SQL health, metrics and SQL that only reads, over gRPC everything.
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
//! [`Builder::grpc`] and [`Builder::grpc_socket`] let processes in that write, claim and train: `forebay_client::Client` has for
//! them what a store that is open in their own process has. Its protocol is `client/proto/forebay/v1/store.proto`.
//!
//! Whoever can reach the server can read the whole store. So without a [`Token`] only loopback addresses are served, unless
//! [`Builder::allow_remote`] says otherwise; with one ([`Builder::token`]), whoever shows it is let in. A [`Grant`] says what the
//! holder of a token may do, over gRPC and everywhere else; [`Builder::tls`] encrypts every address.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

mod access;
mod asked;
mod builder;
mod connections;
mod copies;
mod doors;
mod error;
mod failure;
mod flight;
mod gathered;
mod grpc;
mod guard;
mod handle;
mod metrics;
mod opening;
mod queries;
mod readers;
mod routes;
mod server;
mod sql;
mod tls;
mod token;

pub use access::{Grant, Scope};
pub use asked::Asked;
pub use builder::Builder;
pub use connections::raise_handles;
pub use error::{Error, Result};
pub use server::{Server, Stopper};
pub use token::Token;
