//! A table as the engine holds it: rows in chunks, the index by identity, the counts.

mod reopen;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use arrow_schema::SchemaRef;

use super::chunk::{CHUNK_ROWS, Chunk};
use super::page::{ConsumerWord, Progress, Purpose, RowMeta, RowStatus};
use crate::clock::Timestamp;
use crate::consumer::GroupBy;
use crate::extent::View;
use crate::log::record::{CellRecord, StoredValue};
use crate::sample_id::SampleId;
use crate::schema::Schema;
use crate::snapshot::ColumnSet;

/// How many train rows a table has, by what became of them. `written = consumed + excluded + open`, always.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableCounts {
    /// Rows inserted, every attempt counted.
    pub written: u64,
    /// Rows that a committed step trained on.
    pub consumed: u64,
    /// Rows left out, by reason.
    pub excluded: BTreeMap<String, u64>,
}

impl TableCounts {
    /// Rows that may still be trained on.
    pub fn open(&self) -> u64 {
        self.written - self.consumed - self.excluded.values().sum::<u64>()
    }
}

/// One table.
#[derive(Debug)]
pub(crate) struct TableState {
    pub(crate) id: u32,
    pub(crate) name: Arc<str>,
    pub(crate) schema: Arc<Schema>,
    /// The same for readers of Arrow.
    pub(crate) arrow_schema: SchemaRef,
    pub(crate) policy: usize,
    /// The consumers of this table, in the order of their words in the chunks.
    pub(crate) consumers: Vec<usize>,
    /// Which of `consumers` is the trainer.
    pub(crate) trainer: Option<usize>,
    /// How the trainer's groups are named.
    pub(crate) group_by: Option<GroupBy>,
    pub(crate) counts: TableCounts,
    pub(crate) chunks: Vec<Chunk>,
    rows: u32,
    index: HashMap<(u64, SampleId), u32>,
    /// Fragments of partial cells, in order.
    partials: HashMap<(u32, u16), Vec<View>>,
    /// Train rows that are neither consumed nor excluded, by version.
    open: BTreeMap<u64, BTreeSet<u32>>,
}

impl TableState {
    pub(crate) fn new(id: u32, name: Arc<str>, schema: Schema, policy: usize) -> Self {
        TableState {
            id,
            name,
            arrow_schema: ColumnSet::all(&schema).arrow_schema(&schema),
            schema: Arc::new(schema),
            policy,
            consumers: Vec::new(),
            trainer: None,
            group_by: None,
            counts: TableCounts::default(),
            chunks: Vec::new(),
            rows: 0,
            index: HashMap::new(),
            partials: HashMap::new(),
            open: BTreeMap::new(),
        }
    }

    pub(crate) fn row_count(&self) -> u32 {
        self.rows
    }

    pub(crate) fn find(&self, version: u64, sample: &SampleId) -> Option<u32> {
        self.index.get(&(version, sample.clone())).copied()
    }

    pub(crate) fn meta(&self, row: u32) -> &RowMeta {
        self.chunk(row).meta(at(row))
    }

    pub(crate) fn status(&self, row: u32) -> &RowStatus {
        self.chunk(row).status(at(row))
    }

    fn status_mut(&mut self, row: u32) -> &mut RowStatus {
        self.chunk_mut(row).status_mut(at(row))
    }

    pub(crate) fn word(&self, slot: usize, row: u32) -> ConsumerWord {
        self.chunk(row).word(slot, at(row))
    }

    pub(crate) fn set_word(&mut self, slot: usize, row: u32, progress: Progress, ticket_or_claim: u64) {
        self.chunk_mut(row).set_word(slot, at(row), progress, ticket_or_claim);
    }

    pub(crate) fn cell(&self, column: usize, row: u32) -> Option<StoredValue> {
        self.chunk(row).cell(column, at(row))
    }

    pub(crate) fn chunk(&self, row: u32) -> &Chunk {
        &self.chunks[row as usize / CHUNK_ROWS]
    }

    fn chunk_mut(&mut self, row: u32) -> &mut Chunk {
        &mut self.chunks[row as usize / CHUNK_ROWS]
    }

    /// The fragments of a partial cell.
    pub(crate) fn fragments(&self, row: u32, column: u16) -> &[View] {
        self.partials.get(&(row, column)).map_or(&[], Vec::as_slice)
    }

    /// Adds a row at the end. The caller has checked that its identity is free or superseded.
    pub(crate) fn insert(&mut self, meta: RowMeta) -> u32 {
        let row = self.rows;
        if (row as usize).is_multiple_of(CHUNK_ROWS) {
            self.chunks.push(Chunk::new(&self.schema, self.consumers.len()));
        }
        self.index.insert((meta.policy_version, meta.sample.clone()), row);
        if meta.purpose == Purpose::Train {
            self.open.entry(meta.policy_version).or_default().insert(row);
            self.counts.written += 1;
        }
        self.rows += 1;
        self.chunk_mut(row).push(meta);
        row
    }

    /// Turns cells of a row final.
    pub(crate) fn write(&mut self, row: u32, cells: &[CellRecord], now: Timestamp) -> Result<(), String> {
        if row >= self.rows {
            return Err(format!("row {row} of table {:?} does not exist", self.name));
        }
        let after = now.since(self.meta(row).created_at).as_millis();
        let after_ms = u32::try_from(after).unwrap_or(u32::MAX);
        for cell in cells {
            self.chunk_mut(row).set(cell.column as usize, at(row), cell.value, after_ms)?;
            self.partials.remove(&(row, cell.column));
        }
        Ok(())
    }

    /// Adds a fragment to a partial cell.
    pub(crate) fn append(&mut self, row: u32, column: u16, view: View) {
        self.partials.entry((row, column)).or_default().push(view);
        self.chunk_mut(row).status_mut(at(row)).partials |= 1 << column;
    }

    /// Marks a row as left out. False when it was already, or was consumed.
    pub(crate) fn exclude(&mut self, row: u32, reason: &Arc<str>) -> bool {
        let status = self.status(row);
        if status.excluded.is_some() || status.step != 0 {
            return false;
        }
        self.chunk_mut(row).status_mut(at(row)).excluded = Some(reason.clone());
        if self.close(row) {
            *self.counts.excluded.entry(reason.to_string()).or_default() += 1;
        }
        true
    }

    /// Marks a row as trained on in `step`.
    pub(crate) fn consume(&mut self, row: u32, step: u64) {
        self.chunk_mut(row).status_mut(at(row)).step = step;
        if self.close(row) {
            self.counts.consumed += 1;
        }
    }

    /// Train rows of a version, or of one before it, that are neither consumed nor excluded.
    pub(crate) fn open_rows_up_to(&self, version: u64) -> Vec<u32> {
        self.open.range(..=version).flat_map(|(_, rows)| rows).copied().collect()
    }

    fn close(&mut self, row: u32) -> bool {
        let version = self.meta(row).policy_version;
        let Some(rows) = self.open.get_mut(&version) else { return false };
        let was_open = rows.remove(&row);
        if rows.is_empty() {
            self.open.remove(&version);
        }
        was_open
    }

    pub(crate) fn add_consumer(&mut self, consumer: usize, trainer: bool) -> usize {
        let slot = self.consumers.len();
        self.consumers.push(consumer);
        if trainer {
            self.trainer = Some(slot);
        }
        self.chunks.iter_mut().for_each(Chunk::add_consumer);
        slot
    }
}

fn at(row: u32) -> usize {
    row as usize % CHUNK_ROWS
}
