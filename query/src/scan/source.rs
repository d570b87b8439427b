//! The rows of one partition of a scan, some at a time.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_schema::SchemaRef;
use datafusion::error::Result as PlanResult;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder};
use forebay_store::{Part, ScanColumn, TableSnapshot};

use super::columns::is_heavy;
use super::pace::Pace;
use super::remaining::Remaining;
use super::sieve::Sieve;
use crate::compact::lean;
use crate::ending::Ending;
use crate::error::from_store;
use crate::floats::canonical;

/// The most rows in a batch that carries values from extents: one cell may hold kilobytes.
pub(crate) const VALUE_BATCH_ROWS: usize = 1024;

/// What a partition is to give.
pub(super) struct Work {
    pub(super) table: TableSnapshot,
    pub(super) parts: Vec<Part>,
    pub(super) filters: Vec<Arc<dyn PhysicalExpr>>,
    pub(super) columns: Vec<ScanColumn>,
    /// Whether the number of each row follows.
    pub(super) numbered: bool,
    pub(super) schema: SchemaRef,
    pub(super) rows_max: usize,
    pub(super) batch_rows: usize,
    pub(super) ending: Ending,
}

pub(super) struct RowSource {
    work: Work,
    /// Made with the first rows: what the filters say by then counts, also of those that a plan above makes as it runs.
    begun: Option<Begun>,
    /// Rows that were let through and not yet read.
    pending: Vec<u32>,
    rows_left: usize,
    /// The most rows of a batch.
    batch_rows: usize,
    /// Whether a batch carries values.
    heavy: bool,
    counts: Counts,
}

struct Begun {
    parts: Remaining,
    /// Rows of the part under way.
    part: Vec<u32>,
    /// How many of them have been tried.
    tried: usize,
    sieve: Sieve,
    pace: Pace,
}

/// What `EXPLAIN ANALYZE` shows beside rows and time.
struct Counts {
    parts_pruned: Count,
    parts_scanned: Count,
    rows_filtered: Count,
}

impl RowSource {
    pub(super) fn new(work: Work, metrics: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        let counter = |name: &'static str| MetricBuilder::new(metrics).counter(name, partition);
        let heavy = work.columns.iter().any(|column| is_heavy(*column, &work.table));
        RowSource {
            begun: None,
            heavy,
            batch_rows: work.batch_rows.min(if heavy { VALUE_BATCH_ROWS } else { usize::MAX }).max(1),
            pending: Vec::new(),
            rows_left: work.rows_max,
            counts: Counts {
                parts_pruned: counter("parts_pruned"),
                parts_scanned: counter("parts_scanned"),
                rows_filtered: counter("rows_filtered"),
            },
            work,
        }
    }

    fn begin(&mut self) -> PlanResult<()> {
        if self.begun.is_none() {
            let Work { table, parts, filters, .. } = &mut self.work;
            let parts = std::mem::take(parts);
            let all = parts.len();
            let parts = Remaining::of(table, parts, filters.clone())?;
            self.counts.parts_pruned.add(all - parts.len());
            let sieve = Sieve::of(filters, table)?;
            let values = if sieve.reads_values() { VALUE_BATCH_ROWS } else { usize::MAX };
            let pace = Pace::new(self.batch_rows, values, sieve.is_advised(), self.heavy);
            self.begun = Some(Begun { parts, part: Vec::new(), tried: 0, sieve, pace });
        }
        Ok(())
    }

    /// Rows for one batch are waiting, or all that there are.
    fn fill(&mut self) -> PlanResult<()> {
        let Some(Begun { parts, part, tried, sieve, pace }) = &mut self.begun else { return Ok(()) };
        while self.pending.len() < pace.enough().min(self.rows_left) {
            if part.len() == *tried {
                let (next, pruned) = parts.next(&self.work.table);
                self.counts.parts_pruned.add(pruned);
                let Some(next) = next else { return Ok(()) };
                self.counts.parts_scanned.add(1);
                (*part, *tried) = (self.work.table.rows_of(&next), 0);
            }
            self.work.ending.check()?; // few rows may come of many
            let piece = part[*tried..].iter().take(pace.piece_rows()).copied().collect::<Vec<u32>>();
            *tried += piece.len();
            let before = piece.len();
            let mut rows = sieve.let_through(&self.work.table, piece)?;
            pace.tried(before, rows.len());
            self.counts.rows_filtered.add(before - rows.len());
            self.pending.append(&mut rows);
        }
        Ok(())
    }

    /// Takes at most so many rows off those that wait.
    fn take(&mut self, rows_max: usize) -> Vec<u32> {
        let count = self.pending.len().min(rows_max).min(self.rows_left);
        let rest = self.pending.split_off(count);
        self.rows_left -= count;
        std::mem::replace(&mut self.pending, rest)
    }

    /// The next rows that are let through, in place of what they hold; none when there are no more.
    pub(super) fn next_rows(&mut self, rows_max: usize) -> PlanResult<Vec<u32>> {
        self.begin()?;
        let mut rows = Vec::new();
        while rows.len() < rows_max {
            self.fill()?;
            let more = self.take(rows_max - rows.len());
            if more.is_empty() {
                break;
            }
            rows.extend(more);
        }
        Ok(rows)
    }

    /// The table that is read.
    pub(super) fn table(&self) -> &TableSnapshot {
        &self.work.table
    }

    /// What the next of them hold, as the scan gives it; `None` when there are no more.
    pub(super) fn next_batch(&mut self) -> PlanResult<Option<RecordBatch>> {
        self.begin()?;
        self.fill()?;
        let rows = self.take(self.batch_rows);
        let count = rows.len();
        if count == 0 {
            return Ok(None);
        }
        let read = self.work.table.read(&rows, &self.work.columns);
        let batch = read.map_err(from_store)?;
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let mut columns: Vec<ArrayRef> = batch.into_parts().1.into_iter().map(lean).map(canonical).collect();
        columns.extend(self.work.numbered.then(|| Arc::new(UInt32Array::from(rows)) as ArrayRef));
        Ok(Some(RecordBatch::try_new_with_options(self.work.schema.clone(), columns, &options)?))
    }
}
