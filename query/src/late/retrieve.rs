//! Gives rows their values.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use arrow_array::{Array, RecordBatch};
use arrow_schema::{Fields, Schema, SchemaRef};
use datafusion::common::internal_err;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result as PlanResult;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use forebay_store::{ScanColumn, TableSnapshot};
use futures_core::Stream;

use crate::compact::lean;
use crate::error::from_store;
use crate::scan::VALUE_BATCH_ROWS;

/// The plan to append columns of a table to what names its rows.
#[derive(Clone, Debug)]
pub(super) struct Retrieve {
    input: Arc<dyn ExecutionPlan>,
    table: TableSnapshot,
    /// Which column of the input has the numbers of the rows.
    rows: usize,
    columns: Vec<ScanColumn>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl Retrieve {
    /// Appends `columns` of `table`. Column `rows` of the input has numbers of rows of the table, as a scan gives them.
    pub(super) fn new(
        input: Arc<dyn ExecutionPlan>,
        table: TableSnapshot,
        rows: usize,
        columns: Vec<ScanColumn>,
    ) -> PlanResult<Self> {
        let read = table.schema_of(&columns).map_err(from_store)?;
        let fields: Fields = input.schema().fields().iter().chain(read.fields()).cloned().collect();
        let ordering = input.output_ordering().cloned();
        let known = EquivalenceProperties::new_with_orderings(Arc::new(Schema::new(fields)), ordering);
        let properties = PlanProperties::new(
            known,
            input.output_partitioning().clone(),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        let metrics = ExecutionPlanMetricsSet::new();
        Ok(Retrieve { input, table, rows, columns, properties: Arc::new(properties), metrics })
    }

    /// How many columns come before those that it appends.
    pub(super) fn input_columns(&self) -> usize {
        self.input.schema().fields().len()
    }
}

impl DisplayAs for Retrieve {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.table.arrow_schema();
        let names: Vec<&str> =
            self.columns.iter().map(|column| schema.field(column.position()).name().as_str()).collect();
        write!(f, "Retrieve: table={}, columns=[{}]", self.table.name(), names.join(", "))
    }
}

impl ExecutionPlan for Retrieve {
    fn name(&self) -> &'static str {
        "Retrieve"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false] // few rows come
    }

    fn apply_expressions(
        &self,
        _visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> PlanResult<TreeNodeRecursion>,
    ) -> PlanResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        match children.pop() {
            Some(input) if children.is_empty() => {
                Ok(Arc::new(Retrieve::new(input, self.table.clone(), self.rows, self.columns.clone())?))
            }
            _ => internal_err!("values are given to the rows of one input"),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> PlanResult<SendableRecordBatchStream> {
        Ok(Box::pin(RetrieveStream {
            input: self.input.execute(partition, context)?,
            table: self.table.clone(),
            rows: self.rows,
            columns: self.columns.clone(),
            schema: self.schema(),
            waiting: None,
            metrics: BaselineMetrics::new(&self.metrics, partition),
        }))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

struct RetrieveStream {
    input: SendableRecordBatchStream,
    table: TableSnapshot,
    rows: usize,
    columns: Vec<ScanColumn>,
    schema: SchemaRef,
    /// What is left of the last batch of the input.
    waiting: Option<RecordBatch>,
    metrics: BaselineMetrics,
}

impl RetrieveStream {
    /// The next rows of a batch with their values; what is left of it waits.
    fn with_values(&mut self, batch: &RecordBatch) -> PlanResult<RecordBatch> {
        let count = batch.num_rows().min(VALUE_BATCH_ROWS);
        if count < batch.num_rows() {
            self.waiting = Some(batch.slice(count, batch.num_rows() - count));
        }
        let batch = batch.slice(0, count);
        let Some(rows) = batch.column(self.rows).as_primitive_opt::<UInt32Type>() else {
            return internal_err!("rows are named by {}", batch.column(self.rows).data_type());
        };
        let read = self.table.read(rows.values(), &self.columns);
        let read = read.map_err(from_store)?;
        let values = read.into_parts().1.into_iter().map(lean);
        let columns = batch.columns().iter().cloned().chain(values).collect();
        Ok(RecordBatch::try_new(self.schema.clone(), columns)?)
    }
}

impl Stream for RetrieveStream {
    type Item = PlanResult<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let batch = match self.waiting.take() {
            Some(batch) => Some(Ok(batch)),
            None => ready!(Pin::new(&mut self.input).poll_next(context)),
        };
        let time = self.metrics.elapsed_compute().clone();
        let timer = time.timer();
        let batch = batch.map(|batch| batch.and_then(|batch| self.with_values(&batch)));
        drop(timer);
        self.metrics.record_poll(Poll::Ready(batch))
    }
}

impl RecordBatchStream for RetrieveStream {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}
