//! Reads the rows of a table's snapshot, a batch each time it is polled.
//!
//! Invariants
//! - Nothing is read before the first poll, and no more than the batch that was asked for.
//! - Values of columns outside of the projection are not touched (FX-23).
//! - Rows come in the order of their arrival; one partition.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Schema, SchemaRef};
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Statistics, internal_err};
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use forebay_store::{ScanOrder, TableSnapshot};
use futures_core::Stream;

/// The most rows in a batch that carries values from extents: one cell may hold kilobytes.
const VALUE_BATCH_ROWS: usize = 1024;

/// The plan to scan one table.
#[derive(Clone, Debug)]
pub(crate) struct Scan {
    table: TableSnapshot,
    projection: Option<Vec<usize>>,
    fetch: Option<usize>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl Scan {
    /// Plans to read the columns at the positions of `projection` (all where it is `None`), and at most `fetch` rows.
    pub(crate) fn new(
        table: TableSnapshot,
        projection: Option<Vec<usize>>,
        fetch: Option<usize>,
    ) -> PlanResult<Self> {
        let schema = match &projection {
            Some(positions) => Arc::new(table.arrow_schema().project(positions)?),
            None => table.arrow_schema(),
        };
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        let (properties, metrics) = (Arc::new(properties), ExecutionPlanMetricsSet::new());
        Ok(Scan { table, projection, fetch, properties, metrics })
    }

    fn row_count(&self) -> usize {
        self.fetch.unwrap_or(usize::MAX).min(self.table.row_count())
    }

    fn batch_rows(&self, wanted: usize) -> usize {
        let in_extents = |data_type: &DataType| {
            data_type.is_nested() || matches!(data_type, DataType::Utf8View | DataType::BinaryView)
        };
        let heavy = self.schema().fields().iter().any(|field| in_extents(field.data_type()));
        let cap = if heavy { VALUE_BATCH_ROWS } else { wanted };
        wanted.min(cap).min(self.row_count().max(1))
    }
}

/// What is known of so many rows before they are read.
pub(crate) fn statistics(rows: usize, schema: &Schema) -> Statistics {
    Statistics { num_rows: Precision::Exact(rows), ..Statistics::new_unknown(schema) }
}

impl DisplayAs for Scan {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns: Vec<String> = self.schema().fields().iter().map(|field| field.name().clone()).collect();
        write!(f, "Scan: table={}, columns=[{}]", self.table.name(), columns.join(", "))?;
        self.fetch.map_or(Ok(()), |fetch| write!(f, ", fetch={fetch}"))
    }
}

impl ExecutionPlan for Scan {
    fn name(&self) -> &'static str {
        "Scan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> PlanResult<TreeNodeRecursion>,
    ) -> PlanResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        if children.is_empty() { Ok(self) } else { internal_err!("a scan has no inputs") }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> PlanResult<SendableRecordBatchStream> {
        let batch_rows = self.batch_rows(context.session_config().batch_size());
        let opened = Source::Planned(self.clone(), batch_rows);
        let stream = ScanStream {
            schema: self.schema(),
            source: opened,
            rows_left: self.row_count(),
            metrics: BaselineMetrics::new(&self.metrics, partition),
        };
        Ok(Box::pin(cooperative(stream)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        _inputs: &[Arc<Statistics>],
        _arguments: &StatisticsArgs,
    ) -> PlanResult<Arc<Statistics>> {
        Ok(Arc::new(statistics(self.row_count(), &self.schema())))
    }

    fn supports_limit_pushdown(&self) -> bool {
        false // that is for plans with inputs; a scan takes the limit itself
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        Some(Arc::new(Scan { fetch: limit, ..self.clone() }))
    }

    fn fetch(&self) -> Option<usize> {
        self.fetch
    }
}

type Batches = Box<dyn Iterator<Item = forebay_store::Result<RecordBatch>> + Send>;

/// Where batches come from: opened by the first poll.
enum Source {
    Planned(Scan, usize),
    Open(Batches),
}

struct ScanStream {
    schema: SchemaRef,
    source: Source,
    rows_left: usize,
    metrics: BaselineMetrics,
}

impl ScanStream {
    fn next_batch(&mut self) -> Option<PlanResult<RecordBatch>> {
        if self.rows_left == 0 {
            return None;
        }
        let outside = |error| DataFusionError::External(Box::new(error));
        if let Source::Planned(Scan { table, projection, .. }, batch_rows) = &self.source {
            match table.scan(projection.as_deref(), ScanOrder::Arrival, *batch_rows) {
                Ok(batches) => self.source = Source::Open(Box::new(batches)),
                Err(error) => return Some(Err(outside(error))),
            }
        }
        let Source::Open(batches) = &mut self.source else { return None };
        let batch = match batches.next()? {
            Ok(batch) => batch.slice(0, batch.num_rows().min(self.rows_left)),
            Err(error) => return Some(Err(outside(error))),
        };
        self.rows_left -= batch.num_rows();
        Some(Ok(batch))
    }
}

impl Stream for ScanStream {
    type Item = PlanResult<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let time = self.metrics.elapsed_compute().clone();
        let timer = time.timer();
        let batch = self.next_batch();
        drop(timer);
        self.metrics.record_poll(Poll::Ready(batch))
    }
}

impl RecordBatchStream for ScanStream {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}
