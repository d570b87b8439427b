//! A table in parts, for whoever decides row by row what he reads.
//!
//! A query engine looks at cheap columns first, and at values only of the rows that are left. So a table tells what its
//! [`Part`]s have in common without a look at their rows, gives the numbers of their rows, and reads columns of just the
//! rows that are asked for.

use std::ops::RangeInclusive;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::TableSnapshot;
use super::columns::ColumnSet;
use super::gather::gather;
use crate::consumer::GroupBy;
use crate::error::{Cause, Result};
use crate::origin::EXTERNAL_VERSION;
use crate::sample_id::SampleId;
use crate::table::{CHUNK_ROWS, RowMeta};

/// Up to [`CHUNK_ROWS`] rows that arrived one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    number: usize,
    rows: usize,
    versions: Option<RangeInclusive<u64>>,
    whole: bool,
}

impl Part {
    /// How many rows it has: at least one.
    pub fn row_count(&self) -> usize {
        self.rows
    }

    /// Bounds of the policy versions of its rows; `None` where rows of peers are among them, whose versions are not
    /// bounded by anything.
    pub fn versions(&self) -> Option<RangeInclusive<u64>> {
        self.versions.clone()
    }

    /// Whether no row of it was removed. Then both bounds of its versions are versions of rows that are there.
    pub fn is_whole(&self) -> bool {
        self.whole
    }
}

/// What is read of a row: a column by its position in [`TableSnapshot::arrow_schema`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScanColumn {
    /// Its value.
    Value(usize),
    /// How many elements its list has, as a uint64 column `NAME_length`: known without reading the list.
    Length(usize),
    /// The number of its text, as a uint32 column `NAME_number`, where [`TableSnapshot::has_numbers`] says so. Within one
    /// snapshot numbers are equal where their texts are, in all tables; [`TableSnapshot::texts`] gives the texts back.
    Number(usize),
}

impl ScanColumn {
    /// The column's position.
    pub fn position(self) -> usize {
        match self {
            ScanColumn::Value(position) | ScanColumn::Length(position) | ScanColumn::Number(position) => {
                position
            }
        }
    }
}

impl TableSnapshot {
    /// The parts that have rows, in the order of arrival.
    pub fn parts(&self) -> impl Iterator<Item = Part> {
        self.chunks.iter().enumerate().filter_map(|(number, chunk)| {
            let summary = chunk.summary;
            let rows = chunk.len() - summary.removed as usize;
            let bounded = summary.version_max != EXTERNAL_VERSION;
            let versions = bounded.then_some(summary.version_min..=summary.version_max);
            (rows > 0).then_some(Part { number, rows, versions, whole: summary.removed == 0 })
        })
    }

    /// The numbers of a part's rows, in the order of arrival.
    pub fn rows_of(&self, part: &Part) -> Vec<u32> {
        let Some(chunk) = self.chunks.get(part.number) else { return Vec::new() };
        let first = (part.number * CHUNK_ROWS) as u32;
        let all = (0..chunk.len() as u32).map(|at| first + at);
        match chunk.summary.removed {
            0 => all.collect(),
            _ => all.filter(|row| !chunk.is_removed((row - first) as usize)).collect(),
        }
    }

    /// Whether a row of one of these samples is in a part. Looks at numbers first and at texts of few rows, so it takes a
    /// fraction of what reading the ids does.
    pub fn holds_any(&self, part: &Part, samples: &[SampleId]) -> bool {
        let Some(chunk) = self.chunks.get(part.number) else { return false };
        let wanted = |meta: &RowMeta| {
            let numbers =
                |sample: &&SampleId| (sample.turn(), sample.trajectory()) == (meta.turn, meta.trajectory);
            samples.iter().filter(numbers).any(|sample| sample.input() == self.texts.get(meta.input))
        };
        let metas: &[RowMeta] = &chunk.meta;
        metas.iter().enumerate().any(|(at, meta)| wanted(meta) && !chunk.is_removed(at))
    }

    /// Whether a row of one of these inputs is in a part. Rows of an input lie together, so few texts are looked at.
    pub fn holds_any_input(&self, part: &Part, inputs: &[&str]) -> bool {
        self.holds(part, |meta| meta.input, |meta| inputs.contains(&self.texts.get(meta.input)))
    }

    /// Whether a row whose `group_key` is one of these is in a part.
    pub fn holds_any_group(&self, part: &Part, keys: &[&str]) -> bool {
        let by = self.group_by.unwrap_or(GroupBy::Input);
        let named = |meta: &RowMeta| (meta.input, meta.turn, meta.agent, meta.parent);
        let text = |meta: &RowMeta| {
            by.text(meta.sample(&self.texts), self.texts.get(meta.agent), self.texts.get(meta.parent))
        };
        self.holds(part, named, |meta| keys.contains(&&*text(meta)))
    }

    /// Whether a row of a part is `wanted`, of which only the first of several in succession with the same `key` is asked.
    fn holds<K: PartialEq>(
        &self,
        part: &Part,
        key: impl Fn(&RowMeta) -> K,
        wanted: impl Fn(&RowMeta) -> bool,
    ) -> bool {
        let Some(chunk) = self.chunks.get(part.number) else { return false };
        let metas: &[RowMeta] = &chunk.meta;
        let there = metas.iter().enumerate().filter(|(at, _)| !chunk.is_removed(*at)).map(|(_, meta)| meta);
        let mut last = None;
        let mut first = there.filter(|meta| {
            let own = Some(key(meta));
            let is_new = own != last;
            last = own;
            is_new
        });
        first.any(wanted)
    }

    /// Columns of rows, which [`rows_of`](Self::rows_of) named, in the order given. Values of other columns are not
    /// touched.
    ///
    /// # Errors
    /// `input` for a column that is not there, a length of what is no list, a number of what has none, a row that the table
    /// never had; `corrupt` when a value's place cannot be read; `state` when the snapshot is older than it may be.
    pub fn read(&self, rows: &[u32], columns: &[ScanColumn]) -> Result<RecordBatch> {
        self.check_numbers(rows)?;
        let _reading = self.pin.read()?;
        gather(&self.source(), rows, self.picked(columns)?).into_batch(&self.extents)
    }

    /// Refuses numbers of rows that the table never had.
    pub(super) fn check_numbers(&self, rows: &[u32]) -> Result<()> {
        let end = self.chunks.iter().map(|chunk| chunk.len()).sum::<usize>();
        let Some(row) = rows.iter().find(|row| **row as usize >= end) else { return Ok(()) };
        let reason = format!("there is no row {row}; the table has had {end}");
        Err(Cause::Argument { what: "row", reason }.into())
    }

    /// The schema of what [`read`](Self::read) gives.
    ///
    /// # Errors
    /// As there.
    pub fn schema_of(&self, columns: &[ScanColumn]) -> Result<SchemaRef> {
        self.picked(columns).map(|columns| columns.arrow_schema())
    }

    fn picked(&self, columns: &[ScanColumn]) -> Result<ColumnSet> {
        let unnumbered = |column: &&ScanColumn| matches!(column, ScanColumn::Number(position) if !self.has_numbers(*position));
        if let Some(column) = columns.iter().find(unnumbered) {
            let reason = format!("the texts of column {} have no numbers", column.position());
            return Err(Cause::Argument { what: "number", reason }.into());
        }
        ColumnSet::all(&self.schema, &self.arrow_schema).picked(&self.schema, columns.iter().copied())
    }
}
