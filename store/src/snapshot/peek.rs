//! A look at a few rows of a table, which claims none of them.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use arrow_array::RecordBatch;

use super::columns::ColumnSet;
use super::gather::gather;
use super::{Snapshot, TableSnapshot};
use crate::error::{Cause, Result};
use crate::extent::View;
use crate::log::record::StoredValue;
use crate::origin::EXTERNAL_VERSION;
use crate::state::unknown;
use crate::store::Store;
use crate::table::{CHUNK_ROWS, Chunk, Progress};

/// How many rows one look shows at most.
const ROWS_MOST: usize = 1000;
/// With how many bytes of values a look is over, whichever columns it shows: one row is always shown.
const VALUE_BYTES_MOST: usize = 16 << 20;

/// Which rows a look shows, and what of them. Default: the ten that came first, with every column that is not
/// [lazy](crate::Schema::lazy).
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a look shows nothing before a store is asked"]
pub struct Peek {
    /// The columns, by name; none for all that are not lazy.
    pub columns: Option<Vec<String>>,
    /// How many rows at most: 1 to 1000, and fewer where their values have more than 16 MiB. For more there is SQL.
    pub rows_max: usize,
    /// The rows that came last, the last one first, instead of those that came first.
    pub newest: bool,
    /// Only rows that have all that this consumer waits for, at versions that it takes now, and that nobody holds for it. Of one
    /// that takes groups they are shown before their group is whole.
    pub ready_for: Option<String>,
}

impl Default for Peek {
    fn default() -> Self {
        Peek { columns: None, rows_max: 10, newest: false, ready_for: None }
    }
}

impl Peek {
    /// The default.
    pub fn new() -> Self {
        Self::default()
    }

    /// These columns.
    pub fn columns<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Self {
        Peek { columns: Some(names.into_iter().map(str::to_owned).collect()), ..self }
    }

    /// So many rows at most.
    pub fn rows_max(self, rows: usize) -> Self {
        Peek { rows_max: rows, ..self }
    }

    /// The rows that came last.
    pub fn newest(self) -> Self {
        Peek { newest: true, ..self }
    }

    /// Rows that are ready for a consumer.
    pub fn ready_for(self, consumer: &str) -> Self {
        Peek { ready_for: Some(consumer.to_owned()), ..self }
    }
}

/// Where a row has to stand to be shown.
struct Ready {
    /// Which of the table's consumers it is.
    slot: usize,
    versions: RangeInclusive<u64>,
}

impl Ready {
    fn is(&self, chunk: &Chunk, at: usize) -> bool {
        let lane = chunk.meta(at).lane();
        let fresh = lane == EXTERNAL_VERSION || self.versions.contains(&lane);
        fresh && chunk.word(self.slot, at).progress == Progress::Ready
    }
}

impl Store {
    /// Looks at rows of a table, whoever holds them: nothing is claimed and nothing changes.
    ///
    /// ```
    /// use forebay_store::{Consumer, DataType, Options, Peek, Schema, Store};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let store = Store::open(dir.path().join("store"), Options::default())?;
    /// let solver = store.create_table("solver", Schema::new().data("prompt", DataType::Utf8))?;
    /// store.create_consumer("generate", Consumer::task(["solver"]).ready(["prompt"]))?;
    /// solver.insert(0, "q17_0_0", [("prompt", "2 + 2 =".into())])?;
    /// solver.insert(0, "q18_0_0", [])?;
    /// let ready = store.peek("solver", &Peek::new().ready_for("generate").columns(["sample_id", "prompt"]))?;
    /// assert_eq!((ready.num_rows(), ready.num_columns()), (1, 2));
    /// # Ok::<(), forebay_store::Error>(())
    /// ```
    ///
    /// # Errors
    /// `input` for a table, column or consumer that is not there, a consumer of other tables, or a number of rows that one look
    /// does not show.
    pub fn peek(&self, table: &str, peek: &Peek) -> Result<RecordBatch> {
        if !(1..=ROWS_MOST).contains(&peek.rows_max) {
            let reason = format!(
                "{} is not in 1 to {ROWS_MOST}; one look shows a few rows, ask for more with SQL",
                peek.rows_max
            );
            return Err(Cause::Argument { what: "rows_max", reason }.into());
        }
        if let Some(column) = peek.columns.as_deref().and_then(repeated) {
            let reason = format!("{column:?} is named twice");
            return Err(Cause::Argument { what: "columns", reason }.into());
        }
        self.0.check_process()?;
        // A consumer's place in a table never changes, and no version of its table's policy is behind what is asked here.
        let ready = peek.ready_for.as_deref().map(|consumer| self.ready_of(table, consumer)).transpose()?;
        let snapshot: Snapshot = self.snapshot_for("peek");
        let table = snapshot.table(table)?;
        let columns = match &peek.columns {
            Some(names) => {
                ColumnSet::named(&table.schema, &table.arrow_schema, names.iter().map(String::as_str))?
            }
            None => ColumnSet::eager(&table.schema, &table.arrow_schema),
        };
        let rows = table.first_rows(peek, ready.as_ref());
        gather(&table.source(), &rows, columns).into_batch(&table.extents)
    }

    fn ready_of(&self, table: &str, consumer: &str) -> Result<Ready> {
        let state = self.0.state.lock();
        let index = state.consumer_named(consumer).ok_or_else(|| {
            unknown("consumer", consumer, state.consumers.iter().map(|consumer| &*consumer.name))
        })?;
        let of = state
            .table_named(table)
            .ok_or_else(|| unknown("table", table, state.tables.iter().map(|table| &*table.name)))?;
        let consumed = state.consumers[index].tables.iter().find(|consumed| consumed.table as usize == of);
        let slot = consumed.map(|consumed| consumed.slot).ok_or_else(|| {
            let reason = format!("consumer {consumer:?} takes no rows of table {table:?}");
            Cause::Argument { what: "ready_for", reason }
        })?;
        Ok(Ready { slot, versions: state.claimable_versions(index, of as u32) })
    }
}

impl TableSnapshot {
    /// The rows that a look shows, in its order.
    fn first_rows(&self, peek: &Peek, ready: Option<&Ready>) -> Vec<u32> {
        let is_shown =
            |chunk: &Chunk, at: usize| !chunk.is_removed(at) && ready.is_none_or(|ready| ready.is(chunk, at));
        let (mut rows, mut bytes) = (Vec::new(), 0);
        let chunks = self.chunks.len();
        for step in 0..chunks {
            let number = if peek.newest { chunks - 1 - step } else { step };
            let chunk = &self.chunks[number];
            for step in 0..chunk.len() {
                let at = if peek.newest { chunk.len() - 1 - step } else { step };
                if !is_shown(chunk, at) {
                    continue;
                }
                bytes += self.value_bytes(chunk, at);
                if bytes > VALUE_BYTES_MOST && !rows.is_empty() {
                    return rows;
                }
                rows.push((number * CHUNK_ROWS + at) as u32);
                if rows.len() == peek.rows_max {
                    return rows;
                }
            }
        }
        rows
    }

    /// How many bytes the texts, lists and tensors of a row have.
    fn value_bytes(&self, chunk: &Chunk, at: usize) -> usize {
        let columns = self.schema.live_columns();
        let bytes = columns.map(|(index, column)| match column.data_type.width_bytes() {
            VIEW_BYTES => chunk.cell(index, VIEW_BYTES, at).map_or(0, |value| match value {
                StoredValue::View(view) => View(view).length(),
                _ => 0,
            }),
            _ => 0,
        });
        bytes.sum()
    }
}

/// Bytes of a cell that stands for a value.
const VIEW_BYTES: usize = size_of::<View>();

/// The first name that stands in a list before.
fn repeated(names: &[String]) -> Option<&String> {
    let mut seen = HashSet::new();
    names.iter().find(|name| !seen.insert(name.as_str()))
}
