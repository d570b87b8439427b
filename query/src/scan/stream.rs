//! The rows of one partition of a scan, a batch each time it is polled.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::execution::RecordBatchStream;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::metrics::{BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder};
use forebay_store::{Part, ScanColumn, TableSnapshot};
use futures_core::Stream;

use super::columns::{is_heavy, wide_schema};
use super::pace::Pace;
use super::pruning;
use super::sieve::Sieve;
use crate::compact::lean;

/// The most rows in a batch that carries values from extents: one cell may hold kilobytes.
const VALUE_BATCH_ROWS: usize = 1024;

/// What a partition is to give.
pub(super) struct Work {
    pub(super) table: TableSnapshot,
    pub(super) parts: Vec<Part>,
    pub(super) filters: Vec<Arc<dyn PhysicalExpr>>,
    pub(super) columns: Vec<ScanColumn>,
    pub(super) schema: SchemaRef,
    pub(super) rows_max: usize,
    pub(super) batch_rows: usize,
}

pub(super) struct ScanStream {
    work: Work,
    /// Made by the first poll: what the filters say by then counts, also of those that a plan above makes as it runs.
    begun: Option<Begun>,
    /// Rows that were let through and not yet read.
    pending: Vec<u32>,
    rows_left: usize,
    /// The most rows of a batch.
    batch_rows: usize,
    /// Whether a batch carries values.
    heavy: bool,
    metrics: BaselineMetrics,
    counts: Counts,
}

struct Begun {
    parts: std::vec::IntoIter<Part>,
    /// Rows of the part under way that no filter has seen yet.
    untried: std::vec::IntoIter<u32>,
    sieve: Sieve,
    pace: Pace,
}

/// What `EXPLAIN ANALYZE` shows beside rows and time.
struct Counts {
    parts_pruned: Count,
    parts_scanned: Count,
    rows_filtered: Count,
}

impl ScanStream {
    pub(super) fn new(work: Work, metrics: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        let counter = |name: &'static str| MetricBuilder::new(metrics).counter(name, partition);
        let heavy = work.columns.iter().any(|column| is_heavy(*column, &work.table));
        ScanStream {
            begun: None,
            heavy,
            batch_rows: work.batch_rows.min(if heavy { VALUE_BATCH_ROWS } else { usize::MAX }).max(1),
            pending: Vec::new(),
            rows_left: work.rows_max,
            metrics: BaselineMetrics::new(metrics, partition),
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
            let kept = pruning::kept(table, parts, filters, &wide_schema(&table.arrow_schema()));
            self.counts.parts_pruned.add(all - kept.len());
            let sieve = Sieve::of(filters, table)?;
            let values = if sieve.reads_values() { VALUE_BATCH_ROWS } else { usize::MAX };
            let pace = Pace::new(self.batch_rows, values, sieve.is_advised(), self.heavy);
            self.begun =
                Some(Begun { parts: kept.into_iter(), untried: Vec::new().into_iter(), sieve, pace });
        }
        Ok(())
    }

    /// Rows for one batch are waiting, or all that there are.
    fn fill(&mut self) -> PlanResult<()> {
        let Some(Begun { parts, untried, sieve, pace }) = &mut self.begun else { return Ok(()) };
        while self.pending.len() < pace.enough().min(self.rows_left) {
            if untried.len() == 0 {
                let Some(part) = parts.next() else { return Ok(()) };
                self.counts.parts_scanned.add(1);
                *untried = self.work.table.rows_of(&part).into_iter();
            }
            let piece: Vec<u32> = untried.take(pace.piece_rows()).collect();
            let before = piece.len();
            let mut rows = sieve.let_through(&self.work.table, piece)?;
            pace.tried(before, rows.len());
            self.counts.rows_filtered.add(before - rows.len());
            self.pending.append(&mut rows);
        }
        Ok(())
    }

    fn next_batch(&mut self) -> PlanResult<Option<RecordBatch>> {
        self.begin()?;
        self.fill()?;
        let count = self.pending.len().min(self.batch_rows).min(self.rows_left);
        if count == 0 {
            return Ok(None);
        }
        let rest = self.pending.split_off(count);
        let rows = std::mem::replace(&mut self.pending, rest);
        self.rows_left -= count;
        let read = self.work.table.read(&rows, &self.work.columns);
        let batch = read.map_err(|error| DataFusionError::External(Box::new(error)))?;
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let columns = batch.into_parts().1.into_iter().map(lean).collect();
        Ok(Some(RecordBatch::try_new_with_options(self.work.schema.clone(), columns, &options)?))
    }
}

impl Stream for ScanStream {
    type Item = PlanResult<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let time = self.metrics.elapsed_compute().clone();
        let timer = time.timer();
        let batch = self.next_batch().transpose();
        drop(timer);
        self.metrics.record_poll(Poll::Ready(batch))
    }
}

impl RecordBatchStream for ScanStream {
    fn schema(&self) -> SchemaRef {
        self.work.schema.clone()
    }
}
