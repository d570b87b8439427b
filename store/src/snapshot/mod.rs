//! Snapshots: one instant of all tables.
//!
//! A snapshot holds references to the pages of every chunk, taken under the state's lock in one go. Writers that come
//! later copy a page before they change it, so what a snapshot shows never moves, and taking one blocks nobody for longer
//! than it takes to clone the references.
//!
//! A snapshot that is older than it may be gives no values any more. What was read before, batches and arrays, holds what it is
//! made of itself, and stays; so do the pages, which say how many rows there were.
//!
//! Values on the way out: bools and numbers are gathered; text and binary become Arrow view arrays over windows of the
//! mapped extents, not copied; lists and tensors are gathered into one buffer a batch.

mod array;
mod columns;
mod compact;
mod gather;
mod held;
mod kinds;
mod numbers;
mod parts;
mod peek;
mod picked;
mod text_array;
mod versions;
mod windows;

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

pub use array::Lists;
pub(crate) use array::data_array;
pub(crate) use columns::{ColumnSet, arrow_schema};
pub use compact::{compact, compact_to_copy};
pub(crate) use gather::{GatheredColumn, gather_rows};
use gather::{Source, gather};
pub(crate) use held::{HeldBytes, HeldChunks, Holdings};
pub use kinds::Kinds;
pub use parts::{Part, ScanColumn};
pub use peek::Peek;
pub use versions::VersionRows;

use crate::consumer::GroupBy;
use crate::error::{Cause, Result};
use crate::extent::{Extents, Pin};
use crate::page::CowArc;
use crate::schema::{Schema, nearest};
use crate::state::State;
use crate::table::{CHUNK_ROWS, Chunk, RarePages, TableState, VersionSpan};
use crate::texts::TextPages;

/// One instant of all tables. Clones share everything.
#[derive(Clone, Debug)]
pub struct Snapshot {
    commit: u64,
    /// Holds back recycling for as long as the snapshot, or a table of it, is held.
    _pin: Arc<Pin>,
    tables: Arc<Vec<TableSnapshot>>,
}

impl Snapshot {
    pub(crate) fn new(extents: Arc<Extents>, pin: Arc<Pin>, state: &State, holdings: &Holdings) -> Self {
        let texts = Arc::new(state.texts.pages().clone());
        let of =
            |table| TableSnapshot::new(extents.clone(), pin.clone(), texts.clone(), state, table, holdings);
        let tables = Arc::new(state.tables.iter().map(of).collect());
        Snapshot { commit: state.commits, _pin: pin, tables }
    }

    /// How many records made what the snapshot shows.
    pub fn commit(&self) -> u64 {
        self.commit
    }

    /// Every table, in the order of their creation.
    pub fn tables(&self) -> &[TableSnapshot] {
        &self.tables
    }

    /// The table of that name.
    pub fn table(&self, name: &str) -> Result<&TableSnapshot> {
        self.tables.iter().find(|table| table.name() == name).ok_or_else(|| {
            let close = nearest(name, self.tables.iter().map(TableSnapshot::name));
            Cause::Unknown { what: "table", name: name.to_owned(), close }.into()
        })
    }
}

/// In which order a scan gives its rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScanOrder {
    /// By policy version, input, turn, trajectory and attempt, numerically: the same content gives the same scan, in
    /// whatever order it was written.
    #[default]
    SampleId,
    /// In the order in which the rows were inserted; costs no sorting.
    Arrival,
}

/// One table at the instant of its snapshot.
#[derive(Clone, Debug)]
pub struct TableSnapshot {
    name: Arc<str>,
    policy: Arc<str>,
    current_version: u64,
    schema: Arc<Schema>,
    arrow_schema: SchemaRef,
    /// Goes before the pin does.
    chunks: Arc<HeldChunks>,
    texts: Arc<TextPages>,
    trainer: Option<usize>,
    group_by: Option<GroupBy>,
    spans: RarePages<VersionSpan>,
    moved_out: CowArc<Vec<(u64, u64)>>,
    extents: Arc<Extents>,
    pin: Arc<Pin>,
}

impl TableSnapshot {
    fn new(
        extents: Arc<Extents>,
        pin: Arc<Pin>,
        texts: Arc<TextPages>,
        state: &State,
        table: &TableState,
        holdings: &Holdings,
    ) -> Self {
        let policy = &state.policies[table.policy];
        TableSnapshot {
            name: table.name.clone(),
            policy: policy.name.clone(),
            current_version: policy.version,
            schema: table.schema.clone(),
            arrow_schema: table.arrow_schema.clone(),
            chunks: holdings.give(pin.id(), table.id as usize, table.chunks.clone()),
            texts,
            trainer: table.trainer,
            group_by: table.group_by,
            spans: table.rare.spans().clone(),
            moved_out: table.rare.moved_out().clone(),
            extents,
            pin,
        }
    }

    /// The table's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The policy whose versions its rows carry.
    pub fn policy(&self) -> &str {
        &self.policy
    }

    /// The policy's version at the instant of the snapshot: what a fresh row has.
    pub fn current_version(&self) -> u64 {
        self.current_version
    }

    /// The table's declaration.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Its columns as Arrow fields: meta, data, status. Field metadata `class` tells them apart.
    pub fn arrow_schema(&self) -> SchemaRef {
        self.arrow_schema.clone()
    }

    /// How many rows it has, excluded and superseded ones too.
    pub fn row_count(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.len() - chunk.summary.removed as usize).sum()
    }

    /// Its rows, in batches of at most `batch_rows`. `projection` picks columns by their position in
    /// [`arrow_schema`](Self::arrow_schema); values of columns that are not picked are not touched. `None` picks all that
    /// are not [lazy](Schema::lazy).
    ///
    /// # Errors
    /// Per batch: `corrupt` when a value's place cannot be read, `state` when the snapshot is older than it may be
    /// ([`Options::snapshot_age_max`](crate::Options::snapshot_age_max)). `input` at once when a position does not exist.
    pub fn scan(
        &self,
        projection: Option<&[usize]>,
        order: ScanOrder,
        batch_rows: usize,
    ) -> Result<impl Iterator<Item = Result<RecordBatch>> + Send + use<>> {
        let all = ColumnSet::all(&self.schema, &self.arrow_schema);
        let columns = match projection {
            Some(positions) => all.picked(&self.schema, positions.iter().copied().map(ScanColumn::Value))?,
            None => ColumnSet::eager(&self.schema, &self.arrow_schema),
        };
        let rows = self.ordered_rows(order);
        let (table, batch_rows) = (self.clone(), batch_rows.max(1));
        let starts = (0..rows.len()).step_by(batch_rows);
        Ok(starts.map(move |start| {
            let part = &rows[start..rows.len().min(start + batch_rows)];
            let _reading = table.pin.read()?;
            gather(&table.source(), part, columns.clone()).into_batch(&table.extents)
        }))
    }

    fn ordered_rows(&self, order: ScanOrder) -> Vec<u32> {
        let in_chunk = |(number, chunk): (usize, &CowArc<Chunk>)| {
            let (first, chunk) = (number * CHUNK_ROWS, chunk.clone());
            let there = (0..chunk.len()).filter(move |at| !chunk.is_removed(*at));
            there.map(move |at| (first + at) as u32)
        };
        let mut rows: Vec<u32> = self.chunks.iter().enumerate().flat_map(in_chunk).collect();
        if order == ScanOrder::SampleId {
            rows.sort_by_cached_key(|&row| {
                let meta = self.chunks[row as usize / CHUNK_ROWS].meta(row as usize % CHUNK_ROWS);
                (meta.policy_version, meta.sample(&self.texts), meta.attempt())
            });
        }
        rows
    }

    fn source(&self) -> Source<'_> {
        let TableSnapshot { schema, chunks, trainer, group_by, spans, texts, .. } = self;
        Source { schema, chunks, texts, trainer: *trainer, group_by: *group_by, spans }
    }
}
