//! Tables: the rows of one agent.
//!
//! Read in this order: [`record`] holds what a row is made of, [`word`] where it stands with a consumer, [`mod@column`] a
//! data column of a chunk, [`chunk`] packs 4,096 rows into shared pages, [`state`] is the table itself (rows, index,
//! counts), [`rare`] what few rows have,
//! [`freshness`] which of them may be trained on now, [`handle`] and [`row`] are what callers hold.

mod agent;
mod chunk;
mod column;
mod delete;
mod deleted;
mod freshness;
mod handle;
mod info;
mod named;
mod over;
mod rare;
mod record;
mod row;
mod state;
mod tally;
mod word;

pub use chunk::CHUNK_ROWS;
pub(crate) use chunk::{CHUNKS_MAX, Chunk, Summary, chunk_of};
pub(crate) use column::ColumnPage;
pub use delete::{Delete, Deleted};
pub use handle::{Cell, Table};
pub use info::RowInfo;
pub use rare::VersionSpan;
pub(crate) use rare::{Rare, RarePages, RareRecord, holds};
pub use record::Purpose;
pub(crate) use record::{ATTEMPT_MAX, RowMeta, RowStatus, WideRowMeta};
pub use row::Row;
pub use state::TableCounts;
pub(crate) use state::{Identity, TableState};
pub(crate) use tally::{Tally, TallyImage};
pub(crate) use word::Progress;
