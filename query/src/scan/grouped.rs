//! Groups the rows of a table by kind, in place of giving them.
//!
//! Stands where a scan fed the first half of a grouping: [`crate::groups`] says when. Rows are chosen as the scan chooses
//! them, told apart by the store ([`TableSnapshot::kinds`]), and shown by the first of each kind. Functions are those of the
//! planner, which are handed the kind of each row in place of a place in a hash table. It gives what the first half would have
//! given, the same kind again for each run of [`GROUPED_ROWS`]; the second half puts them together.

use std::cell::LazyCell;
use std::fmt;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::SchemaRef;
use datafusion::common::internal_err;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result as PlanResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::EmitTo;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::metrics::{BaselineMetrics, MetricsSet};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use forebay_store::{Kinds, ScanColumn, TableSnapshot};

use super::Scan;
use super::function::Function;
use super::inputs::{Inputs, shown};
use super::source::RowSource;
use crate::batches::batches;
use crate::compact::lean;
use crate::error::from_store;

/// How many rows are grouped at a time.
const GROUPED_ROWS: usize = 1 << 15;
/// How many rows functions are handed at a time.
const HANDED_ROWS: usize = 8_192;

/// The plan to group the rows of one table.
#[derive(Clone, Debug)]
pub(crate) struct GroupedScan {
    scan: Scan,
    keys: Vec<ScanColumn>,
    functions: Arc<[Function]>,
    inputs: Inputs,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
}

impl GroupedScan {
    /// Groups what `outputs` are of the rows of `scan`. Gives `schema`: the outputs at the places of `keys`, then the state of
    /// each function. `None` where the store does not tell rows apart by these, functions ask for more than a group of numbers,
    /// or the scan does not give all rows that its filters let through.
    pub(crate) fn of(
        scan: &Scan,
        outputs: &ProjectionExprs,
        keys: &[usize],
        functions: &[Arc<AggregateFunctionExpr>],
        schema: SchemaRef,
    ) -> PlanResult<Option<Self>> {
        let keys = keys.iter().map(|key| shown(outputs, *key).and_then(|at| scan.column(at)));
        let keys: Option<Vec<ScanColumn>> = keys.collect();
        let keys = keys.filter(|keys| !keys.is_empty() && scan.fetch.is_none() && scan.table.has_kinds(keys));
        let mut wanted = Vec::new();
        let functions = functions.iter().map(|function| Function::of(function, &mut wanted));
        let functions = functions.collect::<PlanResult<Option<Vec<_>>>>()?;
        let inputs = Inputs::of(scan, outputs, &wanted)?;
        let (Some(keys), Some(functions), Some(inputs)) = (keys, functions, inputs) else { return Ok(None) };
        let properties = PlanProperties::clone(&scan.properties);
        let properties = properties.with_eq_properties(EquivalenceProperties::new(schema.clone()));
        let (scan, functions) = (scan.clone(), functions.into());
        Ok(Some(GroupedScan { scan, keys, functions, inputs, schema, properties: Arc::new(properties) }))
    }
}

impl DisplayAs for GroupedScan {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = &self.schema.fields()[..self.keys.len()];
        let names: Vec<&str> = names.iter().map(|field| field.name().as_str()).collect();
        let functions: Vec<&str> = self.functions.iter().map(Function::name).collect();
        write!(f, "GroupedScan: by=[{}], aggr=[{}], ", names.join(", "), functions.join(", "))?;
        self.scan.fmt_as(format, f)
    }
}

impl ExecutionPlan for GroupedScan {
    fn name(&self) -> &'static str {
        "GroupedScan"
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
        self.scan.apply_expressions(visit)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        if children.is_empty() { Ok(self) } else { internal_err!("a scan has no inputs") }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> PlanResult<SendableRecordBatchStream> {
        let mut rows = self.scan.rows(partition, &context)?;
        let metrics = BaselineMetrics::new(&self.scan.metrics, partition);
        let plan = self.clone();
        Ok(batches(self.schema.clone(), metrics, move || plan.next_batch(&mut rows)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.scan.metrics()
    }
}

impl GroupedScan {
    /// The kinds of the next rows, and the states of all functions; `None` when there are no more.
    fn next_batch(&self, rows: &mut RowSource) -> PlanResult<Option<RecordBatch>> {
        let next = rows.next_rows(GROUPED_ROWS)?;
        if next.is_empty() {
            return Ok(None);
        }
        let table = rows.table();
        let kinds = table.kinds(&next, &self.keys).map_err(from_store)?;
        let firsts = table.read(kinds.firsts(), &self.keys).map_err(from_store)?;
        let mut columns: Vec<ArrayRef> = firsts.into_parts().1.into_iter().map(lean).collect();
        columns.extend(self.states(table, &next, &kinds)?);
        Ok(Some(RecordBatch::try_new(self.schema.clone(), columns)?))
    }

    /// The states of all functions, a row a kind.
    fn states(&self, table: &TableSnapshot, rows: &[u32], kinds: &Kinds) -> PlanResult<Vec<ArrayRef>> {
        let groups = kinds.firsts().len();
        let made = self.functions.iter().map(Function::accumulator);
        let mut accumulators = made.collect::<PlanResult<Vec<_>>>()?;
        if accumulators.iter().any(Option::is_some) {
            let of_rows = kinds.of_rows();
            for (rows, of_rows) in rows.chunks(HANDED_ROWS).zip(of_rows.chunks(HANDED_ROWS)) {
                let batch = self.inputs.read(table, rows)?;
                for (function, accumulator) in self.functions.iter().zip(&mut accumulators) {
                    let Some(accumulator) = accumulator else { continue };
                    accumulator.update_batch(&function.arguments(&batch)?, of_rows, None, groups)?;
                }
            }
        }
        let counts = LazyCell::new(|| counts(kinds));
        let mut states = Vec::new();
        for accumulator in accumulators {
            match accumulator {
                Some(mut accumulator) => states.extend(accumulator.state(EmitTo::All)?),
                None => states.push(counts.clone()),
            }
        }
        Ok(states)
    }
}

/// How many rows each kind has, as the planner counts.
fn counts(kinds: &Kinds) -> ArrayRef {
    let counts = kinds.counts().into_iter().map(|count| i64::try_from(count).unwrap_or(i64::MAX));
    Arc::new(Int64Array::from_iter_values(counts))
}
