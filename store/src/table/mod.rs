//! Tables: the rows of one agent.
//!
//! Read in this order: [`page`] holds what a row is made of, [`chunk`] packs 4,096 rows into shared pages, [`state`]
//! is the table itself (rows, index, counts), [`handle`] is what callers hold.

mod chunk;
mod handle;
mod page;
mod state;

pub use chunk::CHUNK_ROWS;
pub(crate) use chunk::Chunk;
pub use handle::{Cell, Row, Table};
pub use page::Purpose;
pub(crate) use page::{Progress, RowMeta, RowStatus};
pub use state::TableCounts;
pub(crate) use state::TableState;
