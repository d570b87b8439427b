//! A table as the engine holds it: rows in chunks, the index by identity, the counts.

mod removal;
mod reopen;

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use arrow_schema::SchemaRef;
use xxhash_rust::xxh3::xxh3_64;

use super::chunk::{CHUNK_ROWS, Chunk};
use super::freshness::Freshness;
use super::rare::Rare;
use super::record::{Purpose, RowMeta, RowStatus};
use super::tally::{Tallies, Tally};
use super::word::{ConsumerWord, Progress};
use crate::clock::Timestamp;
use crate::consumer::GroupBy;
use crate::extent::View;
use crate::heap::HeapBytes;
use crate::index::IdIndex;
use crate::log::record::{CellRecord, StoredValue};
use crate::maps::FastMap;
use crate::page::CowArc;
use crate::schema::Schema;
use crate::snapshot::arrow_schema;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::texts::{TextId, Texts};

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
        let excluded = self.excluded.values().fold(0, |sum: u64, rows| sum.saturating_add(*rows));
        self.written.saturating_sub(self.consumed).saturating_sub(excluded)
    }
}

/// One table.
#[derive(Debug)]
pub(crate) struct TableState {
    pub(crate) id: u32,
    pub(crate) name: Arc<str>,
    pub(crate) schema: Arc<Schema>,
    /// The schema's version, for handles to see without the lock that theirs is an older one.
    pub(crate) schema_version: Arc<AtomicU32>,
    /// The same for readers of Arrow.
    pub(crate) arrow_schema: SchemaRef,
    pub(crate) policy: usize,
    /// As of when its rows are fresh.
    pub(crate) freshness: Freshness,
    /// The consumers of this table, in the order of their words in the chunks.
    pub(crate) consumers: Vec<usize>,
    /// Which of `consumers` is the trainer.
    pub(crate) trainer: Option<usize>,
    /// How the trainer's groups are named.
    pub(crate) group_by: Option<GroupBy>,
    pub(crate) counts: TableCounts,
    pub(crate) chunks: Vec<CowArc<Chunk>>,
    /// What few rows have.
    pub(crate) rare: Rare,
    rows: u32,
    pub(crate) index: IdIndex,
    /// Fragments of partial cells, in order.
    pub(crate) partials: FastMap<(u32, u16), Vec<View>>,
    /// The rows of consumers that have a rate limiter.
    pub(crate) tallies: Tallies,
    /// What every chunk is whose rows are all removed.
    gone: CowArc<Chunk>,
    /// All chunks before this one are gone.
    first_chunk: usize,
}

/// What names a row in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    pub(crate) policy_version: u64,
    pub(crate) input: TextId,
    pub(crate) turn: u32,
    pub(crate) trajectory: u32,
}

impl Identity {
    pub(crate) fn of(meta: &RowMeta) -> Self {
        let RowMeta { policy_version, input, turn, trajectory, .. } = *meta;
        Identity { policy_version, input, turn, trajectory }
    }

    pub(crate) fn hash(&self) -> u64 {
        let mut bytes = [0; 20];
        bytes[..8].copy_from_slice(&self.policy_version.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.input.0.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.turn.to_le_bytes());
        bytes[16..].copy_from_slice(&self.trajectory.to_le_bytes());
        xxh3_64(&bytes)
    }
}

impl TableState {
    pub(crate) fn new(id: u32, name: Arc<str>, schema: Schema, policy: usize) -> Self {
        TableState {
            id,
            name,
            arrow_schema: arrow_schema(&schema),
            schema_version: Arc::new(AtomicU32::new(schema.version())),
            schema: Arc::new(schema),
            policy,
            freshness: Freshness::default(),
            consumers: Vec::new(),
            trainer: None,
            group_by: None,
            counts: TableCounts::default(),
            chunks: Vec::new(),
            rare: Rare::default(),
            rows: 0,
            index: IdIndex::default(),
            partials: FastMap::default(),
            tallies: Tallies::default(),
            gone: CowArc::new(Chunk::gone()),
            first_chunk: 0,
        }
    }

    /// Puts another version of the schema in the place of the one before.
    pub(crate) fn set_schema(&mut self, schema: Schema) {
        self.arrow_schema = arrow_schema(&schema);
        self.schema_version.store(schema.version(), Ordering::Release);
        self.schema = Arc::new(schema);
    }

    pub(crate) fn row_count(&self) -> u32 {
        self.rows
    }

    /// The latest attempt at a sample.
    pub(crate) fn find(&self, identity: Identity) -> Option<u32> {
        let is_it = |row| !self.is_removed(row) && Identity::of(&self.meta(row)) == identity;
        self.index.find(identity.hash(), is_it)
    }

    /// As if so many rows had been inserted already.
    #[cfg(test)]
    pub(crate) fn pretend_rows(&mut self, rows: u32) {
        self.rows = rows;
    }

    /// As if every row of the last chunk had been begun anew so often.
    #[cfg(test)]
    pub(crate) fn pretend_attempts(&mut self, attempt: u32) {
        let last = self.row_count() - 1;
        let metas = crate::page::Page::edit(&mut self.chunk_mut(last).meta).to_mut();
        metas.iter_mut().for_each(|meta| meta.set_attempt(attempt, meta.purpose()));
    }

    pub(crate) fn meta(&self, row: u32) -> RowMeta {
        self.chunk(row).meta(at(row))
    }

    pub(crate) fn status(&self, row: u32) -> RowStatus {
        self.chunk(row).status(at(row))
    }

    /// Whether the row was removed: it has its number and nothing else.
    pub(crate) fn is_removed(&self, row: u32) -> bool {
        self.chunk(row).is_removed(at(row))
    }

    /// Whether a cell has grown and is not final.
    pub(crate) fn is_partial(&self, row: u32, column: u16) -> bool {
        self.partials.contains_key(&(row, column))
    }

    /// A consumer's word of a row; a row that is not there, which only a damaged page can name, has none.
    pub(crate) fn word(&self, slot: usize, row: u32) -> ConsumerWord {
        let chunk = self.chunks.get(row as usize / CHUNK_ROWS);
        chunk.map(|chunk| chunk.word(slot, at(row))).unwrap_or_default()
    }

    pub(crate) fn set_word(&mut self, slot: usize, row: u32, progress: Progress, ticket_or_claim: u64) {
        if self.tallies.counts(slot) && !self.is_removed(row) {
            let (version, from) = (self.meta(row).lane(), self.word(slot, row).progress);
            self.tallies.moved(slot, version, from, progress);
        }
        self.chunk_mut(row).set_word(slot, at(row), progress, ticket_or_claim);
    }

    /// The rows of a consumer of versions from `version` on; of one whose rows are not counted, none.
    pub(crate) fn tally_since(&self, slot: usize, version: u64) -> Tally {
        self.tallies.since(slot, version)
    }

    /// Versions were deleted for good.
    pub(crate) fn forget_tallies(&mut self, (first, last): (u64, u64)) {
        self.tallies.forget(first..=last);
    }

    pub(crate) fn cell(&self, column: usize, row: u32) -> Option<StoredValue> {
        self.chunk(row).cell(column, self.width(column), at(row))
    }

    pub(crate) fn chunk(&self, row: u32) -> &Chunk {
        &self.chunks[row as usize / CHUNK_ROWS]
    }

    fn chunk_mut(&mut self, row: u32) -> &mut Chunk {
        CowArc::make_mut(&mut self.chunks[row as usize / CHUNK_ROWS])
    }

    /// Bytes that a cell of a column takes in its page.
    fn width(&self, column: usize) -> usize {
        self.schema.data_columns().get(column).map_or(0, |column| column.data_type.width_bytes())
    }

    /// The fragments of a partial cell.
    pub(crate) fn fragments(&self, row: u32, column: u16) -> &[View] {
        self.partials.get(&(row, column)).map_or(&[], Vec::as_slice)
    }

    /// The fragments of the partial cells of a chunk.
    pub(crate) fn fragments_of_chunk(&self, number: u32) -> Vec<((u32, u16), Vec<View>)> {
        let rows = self.rows_of_chunk(number);
        let of_chunk = self.partials.iter().filter(|((row, _), _)| rows.contains(row));
        of_chunk.map(|(cell, views)| (*cell, views.clone())).collect()
    }

    /// Takes in chunks and an index that were stored. Rows that no run covers are indexed now.
    pub(crate) fn restore(&mut self, chunks: Vec<CowArc<Chunk>>, index: IdIndex) {
        self.rows = chunks.iter().map(|chunk| chunk.len() as u32).sum();
        (self.chunks, self.index) = (chunks, index);
        for chunk in self.chunks.iter_mut().filter(|chunk| chunk.is_gone()) {
            *chunk = self.gone.clone();
        }
        self.pass_gone();
        for row in self.index.runs_end()..self.rows {
            if !self.is_removed(row) {
                self.index.insert(Identity::of(&self.meta(row)).hash(), row);
            }
        }
    }

    /// Adds a row at the end. The caller has checked that its identity is free or superseded.
    pub(crate) fn insert(&mut self, meta: RowMeta) -> u32 {
        let row = self.rows;
        if (row as usize).is_multiple_of(CHUNK_ROWS) {
            self.chunks.push(CowArc::new(Chunk::new(self.consumers.len())));
        }
        self.index.insert(Identity::of(&meta).hash(), row);
        self.counts.written += u64::from(meta.purpose() == Purpose::Train);
        self.rows += 1;
        self.tallies.row_came(meta.lane());
        self.chunk_mut(row).push(meta);
        row
    }

    /// Turns cells of a row final.
    pub(crate) fn write(&mut self, row: u32, cells: &[CellRecord], now: Timestamp) -> Result<(), String> {
        if row >= self.rows {
            return Err(format!("row {row} of table {:?} does not exist", self.name));
        }
        let after_ms = now.since(self.meta(row).created_at()).as_millis() as u64;
        let columns = self.schema.data_columns();
        if let Some(cell) = cells.iter().find(|cell| usize::from(cell.column) >= columns.len()) {
            return Err(format!("no column {}", cell.column));
        }
        let placed = cells.iter().map(|cell| {
            let column = usize::from(cell.column);
            (column, columns[column].data_type.width_bytes(), cell.value)
        });
        let chunk = CowArc::make_mut(&mut self.chunks[row as usize / CHUNK_ROWS]);
        chunk.set(at(row), placed, after_ms)?;
        if !self.partials.is_empty() {
            cells.iter().for_each(|cell| _ = self.partials.remove(&(row, cell.column)));
        }
        Ok(())
    }

    /// Adds a fragment to a partial cell.
    pub(crate) fn append(&mut self, row: u32, column: u16, view: View) {
        self.partials.entry((row, column)).or_default().push(view);
    }

    /// Puts another view of the same bytes into a final cell, or in the place of a fragment counted from 1.
    pub(crate) fn replace_view(
        &mut self,
        row: u32,
        column: u16,
        fragment: u32,
        view: View,
    ) -> Result<(), String> {
        let Some(index) = fragment.checked_sub(1) else {
            self.chunk_mut(row).replace(column as usize, at(row), view.0);
            return Ok(());
        };
        let fragments = self.partials.get_mut(&(row, column));
        let slot = fragments.and_then(|fragments| fragments.get_mut(index as usize));
        *slot.ok_or_else(|| format!("row {row} has no fragment {fragment} of cell {column}"))? = view;
        Ok(())
    }

    /// Marks a row as left out. False when it was already, or was consumed.
    pub(crate) fn exclude(&mut self, row: u32, reason: TextId, texts: &Texts) -> bool {
        if !self.status(row).is_open() {
            return false;
        }
        self.chunk_mut(row).change_status(at(row), |status| status.excluded = reason);
        if self.meta(row).purpose() == Purpose::Train {
            *self.counts.excluded.entry(texts.get(reason).to_owned()).or_default() += 1;
        }
        true
    }

    /// Marks a row as trained on in `step`. False when it has been removed since: it stays counted as what it was.
    pub(crate) fn consume(&mut self, row: u32, step: u32) -> bool {
        if self.is_removed(row) {
            return false;
        }
        let counts = self.status(row).is_open() && self.meta(row).purpose() == Purpose::Train;
        self.chunk_mut(row).change_status(at(row), |status| status.step = step);
        self.counts.consumed += u64::from(counts);
        true
    }

    /// Train rows of a version, or of one before it, that are neither consumed nor excluded.
    pub(crate) fn open_rows_up_to(&self, version: u64) -> Vec<u32> {
        let rows =
            self.rows_where(move |chunk| chunk.summary.open > 0 && chunk.summary.version_min <= version);
        rows.filter(|row| self.is_open(*row) && self.meta(*row).lane() <= version).collect()
    }

    /// The rows of the chunks that may have what is looked for, in the order of their insertion, removed ones too.
    pub(crate) fn rows_where(&self, may_have: impl Fn(&Chunk) -> bool) -> impl Iterator<Item = u32> {
        self.chunks_where(may_have).flat_map(|number| self.rows_of_chunk(number))
    }

    /// The same chunks, by their number.
    pub(crate) fn chunks_where(&self, may_have: impl Fn(&Chunk) -> bool) -> impl Iterator<Item = u32> {
        let chunks = self.chunks.iter().enumerate().skip(self.first_chunk);
        let chunks = chunks.filter(move |(_, chunk)| !chunk.is_gone() && may_have(chunk));
        chunks.map(|(number, _)| number as u32)
    }

    /// The rows of a chunk, removed ones too.
    pub(crate) fn rows_of_chunk(&self, number: u32) -> Range<u32> {
        let first = number * CHUNK_ROWS as u32;
        first..self.rows.min(first.saturating_add(CHUNK_ROWS as u32))
    }

    /// The rows of these versions that are not removed, in the order of their insertion.
    pub(crate) fn rows_of(&self, versions: RangeInclusive<u64>) -> impl Iterator<Item = u32> {
        let of = versions.clone();
        let chunks = self.chunks_where(move |chunk| chunk.may_hold(&of));
        chunks.flat_map(move |number| {
            let (chunk, versions) = (&self.chunks[number as usize], versions.clone());
            let all = chunk.only_version().is_some_and(|version| versions.contains(&version));
            let is_of = move |at: usize| all || versions.contains(&chunk.meta(at).policy_version);
            self.rows_of_chunk(number).filter(move |&row| !chunk.is_removed(at(row)) && is_of(at(row)))
        })
    }

    /// Whether a train row is neither consumed nor excluded nor removed.
    pub(crate) fn is_open(&self, row: u32) -> bool {
        self.status(row).is_open() && !self.is_removed(row) && self.meta(row).purpose() == Purpose::Train
    }

    /// Bytes of memory, other than mapped files'.
    pub(crate) fn heap_bytes(&self) -> usize {
        let there = self.chunks.iter().filter(|chunk| !chunk.is_gone());
        let chunks = self.chunks.heap_bytes() + there.map(|chunk| chunk.heap_bytes()).sum::<usize>();
        let fragments = self.partials.values().map(HeapBytes::heap_bytes).sum::<usize>();
        chunks + self.index.heap_bytes() + self.partials.heap_bytes() + fragments + self.rare.heap_bytes()
    }

    /// Bytes of memory of the pages of full chunks, other than mapped files'.
    pub(crate) fn full_chunk_bytes(&self) -> usize {
        let full = self.chunks.len().saturating_sub(1);
        let there = self.chunks[..full].iter().filter(|chunk| !chunk.is_gone());
        there.flat_map(|chunk| chunk.heap_pages()).map(|(_, bytes)| bytes).sum()
    }

    /// Takes in a consumer; `limited` says that its rows are counted.
    pub(crate) fn add_consumer(&mut self, consumer: usize, trainer: bool, limited: bool) -> usize {
        let slot = self.consumers.len();
        let there = self.rows_where(|_| true).filter(|row| !self.is_removed(*row));
        let there = there.map(|row| self.meta(row).lane());
        let mut tallies = self.tallies.clone();
        tallies.add(slot, limited.then_some(there));
        self.tallies = tallies;
        self.consumers.push(consumer);
        if trainer {
            self.trainer = Some(slot);
        }
        let there = self.chunks.iter_mut().filter(|chunk| !chunk.is_gone());
        there.for_each(|chunk| CowArc::make_mut(chunk).add_consumer());
        slot
    }
}

fn at(row: u32) -> usize {
    row as usize % CHUNK_ROWS
}
