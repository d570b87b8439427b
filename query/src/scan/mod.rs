//! Reads the rows of a table's snapshot, those and that of them which a query needs.
//!
//! A scan takes over projections, filters, limits and the lengths of lists. It leaves out parts of the table by what is
//! known of them ([`pruning`]), then looks at the columns that filters name, those without values first ([`sieve`]), and
//! reads its outputs only of the rows that are left. Filters that a plan above makes while it runs are tried piece by
//! piece, where they pay ([`advice`]).
//!
//! Invariants
//! - Nothing is read before the first poll, and no more than the batch that was asked for.
//! - Values of columns that are neither given nor looked at are not touched (FX-23), nor are lists for their lengths.
//! - Every filter of the query that was accepted is applied exactly. Each partition gives its rows in the order of their arrival.

mod advice;
mod columns;
mod function;
mod grouped;
mod inputs;
mod order;
mod pace;
mod pruning;
mod remaining;
mod sieve;
mod source;
mod stage;
mod statistics;

use std::fmt;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{ColumnStatistics, Statistics, internal_err};
use datafusion::error::Result as PlanResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterPushdownPhase, FilterPushdownPropagation, PushedDown,
};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, SortOrderPushdownResult,
};
use forebay_store::{Part, ScanColumn, TableSnapshot};

use self::columns::{Output, widened, with_lengths};
pub(crate) use self::grouped::GroupedScan;
use self::order::VersionOrder;
pub(crate) use self::source::VALUE_BATCH_ROWS;
use self::source::{RowSource, Work};
use crate::batches::batches;

/// A partition has at least this many parts, so that small tables are not spread over threads.
const PARTS_PER_PARTITION_MIN: usize = 4;

/// What the column of rows' numbers is called.
const ROW_NUMBER: &str = "row number";

/// The plan to scan one table.
#[derive(Clone, Debug)]
pub(crate) struct Scan {
    table: TableSnapshot,
    outputs: Vec<Output>,
    /// Whether the number of each row follows its outputs.
    numbered: bool,
    /// Over the wide schema ([`columns`]).
    filters: Vec<Arc<dyn PhysicalExpr>>,
    partitions: Vec<Vec<Part>>,
    fetch: Option<usize>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl Scan {
    /// Plans to read the columns at the positions of `projection` (all where it is `None`), in at most `partitions`
    /// streams.
    pub(crate) fn new(table: TableSnapshot, projection: Option<&Vec<usize>>, partitions: usize) -> Self {
        let schema = table.arrow_schema();
        let all: Vec<usize> = (0..schema.fields().len()).collect();
        let positions = projection.unwrap_or(&all);
        let outputs: Vec<Output> = positions.iter().map(|at| Output::column(&schema, *at)).collect();
        let parts: Vec<Part> = table.parts().collect();
        let share = parts.len().div_ceil(partitions.max(1)).max(PARTS_PER_PARTITION_MIN);
        let mut partitions: Vec<Vec<Part>> = parts.chunks(share).map(<[Part]>::to_vec).collect();
        partitions.resize(partitions.len().max(1), Vec::new());
        let properties = properties(&outputs, false, partitions.len());
        let metrics = ExecutionPlanMetricsSet::new();
        let (filters, numbered, fetch) = (Vec::new(), false, None);
        Scan { table, outputs, numbered, filters, partitions, fetch, properties, metrics }
    }

    /// Applies filters over the whole table's schema as well.
    pub(crate) fn with_filters(mut self, filters: Vec<Arc<dyn PhysicalExpr>>) -> PlanResult<Self> {
        let schema = self.table.arrow_schema();
        let all: Vec<Output> = (0..schema.fields().len()).map(|at| Output::column(&schema, at)).collect();
        for filter in filters {
            self.filters.push(widened(filter, &all, &schema)?);
        }
        Ok(self)
    }

    /// Gives at most so many rows of each partition.
    pub(crate) fn with_rows_max(self, fetch: Option<usize>) -> Self {
        Scan { fetch, ..self }
    }

    fn with_outputs(self, outputs: Vec<Output>) -> Self {
        let properties = properties(&outputs, self.numbered, self.partitions.len());
        Scan { outputs, properties, ..self }
    }

    /// The same with the numbers of the rows, at the end, in place of the outputs whose values lie in extents, and the
    /// places of these; `None` where there are none.
    pub(crate) fn without_values(&self) -> Option<(Self, Vec<usize>)> {
        let has_values = |at: &usize| columns::is_heavy(self.outputs[*at].column, &self.table);
        let (values, light): (Vec<usize>, Vec<usize>) = (0..self.outputs.len()).partition(has_values);
        let outputs = light.into_iter().map(|at| self.outputs[at].clone()).collect();
        let numbered = Scan { numbered: true, ..self.clone() }.with_outputs(outputs);
        (!values.is_empty() && !self.numbered).then_some((numbered, values))
    }

    /// How many columns it gives.
    pub(crate) fn columns(&self) -> usize {
        self.outputs.len() + usize::from(self.numbered)
    }

    /// What it reads for an output.
    pub(crate) fn column(&self, output: usize) -> Option<ScanColumn> {
        self.outputs.get(output).map(|output| output.column)
    }

    /// The same with the number of a text in place of the text at one output, under its name; `None` where it has none.
    pub(crate) fn with_number(&self, at: usize) -> Option<Self> {
        let mut outputs = self.outputs.clone();
        outputs[at] = outputs.get(at)?.number(&self.table)?;
        Some(self.clone().with_outputs(outputs))
    }

    /// The table that is read.
    pub(crate) fn table(&self) -> &TableSnapshot {
        &self.table
    }

    /// The rows of one partition.
    fn rows(&self, partition: usize, context: &TaskContext) -> PlanResult<RowSource> {
        let Some(parts) = self.partitions.get(partition) else {
            return internal_err!(
                "a scan of {} partitions has no partition {partition}",
                self.partitions.len()
            );
        };
        let work = Work {
            table: self.table.clone(),
            parts: parts.clone(),
            filters: self.filters.clone(),
            columns: self.outputs.iter().map(|output| output.column).collect(),
            numbered: self.numbered,
            schema: self.schema(),
            rows_max: self.fetch.unwrap_or(usize::MAX),
            batch_rows: context.session_config().batch_size(),
        };
        Ok(RowSource::new(work, &self.metrics, partition))
    }

    /// What is known of the rows of one partition, or of all: bounds, where filters or a limit leave some out.
    fn statistics(&self, partition: Option<usize>) -> PlanResult<Statistics> {
        let partitions = match partition {
            Some(partition) => self.partitions.get(partition..=partition).unwrap_or_default(),
            None => &self.partitions,
        };
        let mut known = statistics::of_parts(&self.table, &self.outputs, partitions.iter().flatten());
        known.column_statistics.resize_with(self.columns(), ColumnStatistics::new_unknown);
        let known = known.with_fetch(self.fetch, 0, partitions.len())?;
        // A limit is one of each partition, and some may have less.
        let sure = self.filters.is_empty() && (self.fetch.is_none() || partitions.len() == 1);
        Ok(if sure { known } else { known.to_inexact() })
    }
}

fn properties(outputs: &[Output], numbered: bool, partitions: usize) -> Arc<PlanProperties> {
    let number = numbered.then(|| Arc::new(Field::new(ROW_NUMBER, DataType::UInt32, false)));
    let fields: Fields = outputs.iter().map(|output| output.field.clone()).chain(number).collect();
    let properties = PlanProperties::new(
        EquivalenceProperties::new(Arc::new(Schema::new(fields))),
        Partitioning::UnknownPartitioning(partitions),
        EmissionType::Incremental,
        Boundedness::Bounded,
    );
    Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative))
}

/// What is known of a table before it is read.
pub(crate) fn table_statistics(table: &TableSnapshot) -> Statistics {
    let schema = table.arrow_schema();
    let outputs: Vec<Output> = (0..schema.fields().len()).map(|at| Output::column(&schema, at)).collect();
    let parts: Vec<Part> = table.parts().collect();
    statistics::of_parts(table, &outputs, parts.iter())
}

impl DisplayAs for Scan {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |output: &Output| match output.column {
            ScanColumn::Number(_) => format!("{} by number", output.field.name()),
            _ => output.field.name().clone(),
        };
        let number = self.numbered.then(|| ROW_NUMBER.to_owned());
        let columns: Vec<String> = self.outputs.iter().map(named).chain(number).collect();
        let parts: usize = self.partitions.iter().map(Vec::len).sum();
        write!(f, "Scan: table={}, columns=[{}], parts={parts}", self.table.name(), columns.join(", "))?;
        if !self.filters.is_empty() {
            let filters: Vec<String> = self.filters.iter().map(ToString::to_string).collect();
            write!(f, ", filters=[{}]", filters.join(", "))?;
        }
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
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> PlanResult<TreeNodeRecursion>,
    ) -> PlanResult<TreeNodeRecursion> {
        for filter in &self.filters {
            if visit(filter)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        if children.is_empty() { Ok(self) } else { internal_err!("a scan has no inputs") }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> PlanResult<SendableRecordBatchStream> {
        let mut rows = self.rows(partition, &context)?;
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        Ok(batches(self.schema(), metrics, move || rows.next_batch()))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        _inputs: &[Arc<Statistics>],
        arguments: &StatisticsArgs,
    ) -> PlanResult<Arc<Statistics>> {
        self.statistics(arguments.partition()).map(Arc::new)
    }

    fn supports_limit_pushdown(&self) -> bool {
        false // that is for plans with inputs; a scan takes the limit itself
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        Some(Arc::new(self.clone().with_rows_max(limit)))
    }

    fn fetch(&self) -> Option<usize> {
        self.fetch
    }

    fn try_swapping_with_projection(
        &self,
        projection: &ProjectionExec,
    ) -> PlanResult<Option<Arc<dyn ExecutionPlan>>> {
        if self.numbered {
            return Ok(None); // what is above wants the numbers where they are
        }
        let wanted = projection.expr();
        let outputs = wanted.iter().map(|wanted| Output::of(&self.outputs, &wanted.expr, &wanted.alias));
        if let Some(outputs) = outputs.collect::<Option<Vec<Output>>>() {
            return Ok(Some(Arc::new(self.clone().with_outputs(outputs))));
        }
        let Some((outputs, rest)) = with_lengths(&self.outputs, wanted)? else { return Ok(None) };
        let scan = Arc::new(self.clone().with_outputs(outputs));
        Ok(Some(Arc::new(ProjectionExec::try_new(rest, scan)?)))
    }

    fn try_pushdown_sort(
        &self,
        order: &[PhysicalSortExpr],
    ) -> PlanResult<SortOrderPushdownResult<Arc<dyn ExecutionPlan>>> {
        // With a limit of its own any rows will do, and those that come first are the cheapest.
        Ok(match VersionOrder::of(self, order).filter(|_| self.fetch.is_none()) {
            Some(order) => {
                let partitions = order.dealt(&self.partitions);
                SortOrderPushdownResult::Inexact { inner: Arc::new(Scan { partitions, ..self.clone() }) }
            }
            None => SortOrderPushdownResult::Unsupported,
        })
    }

    fn handle_child_pushdown_result(
        &self,
        _phase: FilterPushdownPhase,
        pushed: ChildPushdownResult,
        _config: &ConfigOptions,
    ) -> PlanResult<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        let schema = self.table.arrow_schema();
        let (mut scan, mut answers) = (self.clone(), Vec::new());
        for parent in pushed.parent_filters {
            // Rows are counted before a later filter is known, so a limit keeps filters out.
            if self.fetch.is_some() || is_volatile(&parent.filter) {
                answers.push(PushedDown::No);
                continue;
            }
            scan.filters.push(widened(parent.filter, &self.outputs, &schema)?);
            answers.push(PushedDown::Yes);
        }
        Ok(FilterPushdownPropagation::with_parent_pushdown_result(answers).with_updated_node(Arc::new(scan)))
    }
}
