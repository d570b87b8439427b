//! The Python module `forebay._forebay`: a thin binding over `forebay::client`, which is the same over a store that this
//! process has opened and over a server's.
//!
//! What Python sees is documented in `python/forebay/_forebay.pyi`; a program to begin with is in `docs/python.md`.
//!
//! # Rules
//! - *Who owns the store.* One `handle` an opened store, or a connection. Tables, rows, consumers are names; claims and steps lie in slots
//!   that the handle knows. So closing a store ends everything that came of it, whatever Python variables are left.
//! - *Bytes out.* Arrays and Arrow buffers point into the mapped extents, read-only. Whoever holds one keeps the extent, and
//!   with it the store's lock: opening the store again elsewhere is refused for as long, so what is seen never changes. Of
//!   a server's store that is so for its neighbours; else what came lies where it came.
//! - *Bytes in.* What Python may change while its lock is not held (arrays) is copied first, with it held; what it cannot
//!   change (`str`, `bytes`) is read where it lies.
//! - *The interpreter's lock* is let go around every call of the store that may wait or copy, and nothing takes it while it
//!   holds a lock of this module. A wait comes back every tenth of a second to ask for signals, so Ctrl-C ends it.
//! - *Errors*: the classes of `forebay.errors`, one for each thing that a caller can do next.
//!
//! # Layout
//! `handle` and `slot` (who owns what), `failure`, `arguments`, `lacking` (why nothing is ready), `store`, `options`, `connection`, `questions`
//! (SQL), `table` with `table_name`, `schema`, `rows` and `begun` (new rows), `changes` (what calls say that change something, at once or together),
//! `history` (what became of rows), `input` (Python values on their way in), `consumer` with `declaration` and `subscription`, `wait`, `batch` with
//! `output` with `arrays`, `cells` and `view` (values on their way out), `packages` (numpy, pyarrow), `step` with `micro_batches`, `plan` and `metrics`, `answer`
//! and `arrow`; `objects`; `snapshot`; `pending` and `bell` (waits of an event loop); `admin` with `watching` (callables that are told how far
//! something is); `within` (which calls a thread is in).
#![allow(clippy::needless_pass_by_value, reason = "arguments of Python methods are owned")]

use pyo3::prelude::*;

mod admin;
mod answer;
mod arguments;
mod arrays;
mod arrow;
mod asking;
mod batch;
mod begun;
mod bell;
mod cells;
mod changes;
mod connection;
mod consumer;
mod declaration;
mod failure;
mod handle;
mod history;
mod input;
mod lacking;
mod metrics;
mod micro_batches;
mod objects;
mod options;
mod output;
mod packages;
mod pending;
mod plan;
mod questions;
mod rows;
mod schema;
mod slot;
mod snapshot;
mod step;
mod store;
mod subscription;
mod table;
mod table_name;
mod update;
mod view;
mod wait;
mod watching;
mod within;

/// The compiled half of the package `forebay`.
#[pymodule]
mod _forebay {
    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "Python's name for it")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
    #[pymodule_export]
    use super::admin::Admin;
    #[pymodule_export]
    use super::answer::Answer;
    #[pymodule_export]
    use super::arrow::RecordBatch;
    #[pymodule_export]
    use super::batch::Batch;
    #[pymodule_export]
    use super::bell::Bell;
    #[pymodule_export]
    use super::changes::Changes;
    #[pymodule_export]
    use super::consumer::Consumer;
    #[pymodule_export]
    use super::micro_batches::MicroBatches;
    #[pymodule_export]
    use super::objects::{HeldObject, LeasedView, ObjectCalls, ObjectFilling};
    #[pymodule_export]
    use super::pending::Pending;
    #[pymodule_export]
    use super::rows::Rows;
    #[pymodule_export]
    use super::snapshot::{Snapshot, SnapshotReader, SnapshotTable};
    #[pymodule_export]
    use super::step::Step;
    #[pymodule_export]
    use super::store::{Store, connect, open};
    #[pymodule_export]
    use super::subscription::Subscription;
    #[pymodule_export]
    use super::table::Table;
    #[pymodule_export]
    use super::view::View;
}
