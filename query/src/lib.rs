//! SQL over a store, by DataFusion: for people who look at a run, while it goes on and after it has ended.
//!
//! Start with [`Session`]. The words:
//!
//! - A [`Session`] answers SELECTs over one open store. It never writes: statements that would are refused with the
//!   library call that does the same ([`Kind::ReadOnly`]).
//! - Every query sees a *moment*: one snapshot of all tables, taken when the query is planned. Two tables that are
//!   joined show the same instant, however busily others write.
//! - A [`RowStream`] gives what comes out batch by batch, within the limits of the session's [`Options`]; a [`Prepared`]
//!   statement is asked again and again, with other values.
//! - An [`Answer`] is the schema and the batches that came out, and renders itself as a table, JSON, CSV, Parquet or Arrow
//!   ([`Format`]).
//!
//! # What can be asked
//! The tables of agents are `forebay.public.NAME` (so `SELECT * FROM solver` works), and what the engine knows of itself
//! is in `forebay.system`: `tables`, `columns`, `consumers`, `claims`, `episodes`, `instances`, `steps`, `policies`,
//! `objects`, `extents`, `pins`, `settings`, `stats`. The past is `as_of('solver', step => 12)`, ancestry
//! `lineage('solver/q1_0_0')`. `information_schema` is there too. `docs/sql.md` lists the columns, with examples that a test
//! runs.
//!
//! # Layout
//! In reading order: [`session`](Session), `depth`, `repeats`, `relations` and `room` (how deep and how large a statement may be, and the stack for it),
//! `statement` and `precedence` (what is refused, and how conditions are read), `plan` and `merged` (what runs, and what does where memory is short), [`stream`](RowStream), `runtime` and `memory` (the
//! limits), [`prepared`](Prepared) and `placeholder`, `catalog` (names to tables), `table` and `scan` (how rows come out of a
//! snapshot), `archive` (versions that left the store), `functions` (of the field), `history` (when steps were committed),
//! `travel` (the past, ancestry), `system` (a file a table), `answer` and `render`.
//!
//! This crate knows DataFusion, and nobody else does: its types do not appear in the interface. Arrow's do.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

mod answer;
mod archive;
mod batches;
mod blocking;
mod catalog;
mod compact;
mod depth;
mod ending;
mod error;
mod expressions;
mod firsts;
mod floats;
mod functions;
mod groups;
mod history;
mod late;
mod listing;
mod memory;
mod merged;
mod missing;
mod numbers;
mod options;
mod placeholder;
mod plan;
mod precedence;
mod prepared;
mod relations;
mod render;
mod repeats;
mod room;
mod rules;
mod runtime;
mod scan;
mod seen;
mod session;
mod statement;
mod stream;
mod system;
mod table;
mod threads;
mod travel;

pub use answer::Answer;
pub use archive::{Archive, ArchiveFault, ArchiveRule, Archiver, Cleaned, Due, Moved};
pub use error::{Cause, Error, Kind, Result};
pub use listing::{TableInfo, TableKind};
pub use options::Options;
pub use prepared::Prepared;
pub use render::{Format, Renderer, UnknownFormat};
pub use session::Session;
pub use stream::RowStream;
pub use threads::QueryThreads;
