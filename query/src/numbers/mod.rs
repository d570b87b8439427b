//! Texts are grouped and joined by their numbers.
//!
//! The store names each text that rows repeat by a number, and within one snapshot numbers are equal where texts are. So a
//! plan that groups by input, or joins two agents on it, need not make, hash and compare a text a row: the scans give
//! numbers ([`below`]), the plan above them stays as it is, and what comes out of it is turned back into texts ([`text`]),
//! one a group in place of one a row.
//!
//! Invariants
//! - Above the plan that was rewritten nothing changes: its columns keep their names and types.
//! - A column is read by number only where every use of it below is one that equality decides.

mod below;
mod text;

use std::sync::Arc;

use arrow_schema::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result as PlanResult;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateOutputMode};
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use forebay_store::TableSnapshot;

use self::below::{numbered, numbered_key};
use self::text::TextOf;
use crate::scan::Scan;

type Plan = Arc<dyn ExecutionPlan>;

/// The rule of the planner.
#[derive(Debug)]
pub(crate) struct TextsByNumber;

impl PhysicalOptimizerRule for TextsByNumber {
    fn optimize(&self, plan: Plan, _config: &ConfigOptions) -> PlanResult<Plan> {
        // From the top down: a join takes the groups below it along.
        plan.transform_down(rewritten).data()
    }

    fn name(&self) -> &'static str {
        "TextsByNumber"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// A grouping or a join by number where it was one by text.
fn rewritten(plan: Plan) -> PlanResult<Transformed<Plan>> {
    let mut by_number = plan.clone();
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>()
        && aggregate.mode().output_mode() == AggregateOutputMode::Final
    {
        for key in 0..aggregate.group_expr().expr().len() {
            by_number = numbered(&by_number, key)?.unwrap_or(by_number);
        }
    } else if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        for key in 0..join.on().len() {
            by_number = numbered_key(&by_number, key)?.unwrap_or(by_number);
        }
    }
    if Arc::ptr_eq(&by_number, &plan) {
        return Ok(Transformed::no(plan));
    }
    with_texts(by_number, &plan).map(Transformed::yes)
}

/// The plan with texts in place of the numbers that stand where `before` had texts.
fn with_texts(plan: Plan, before: &Plan) -> PlanResult<Plan> {
    let (schema, wanted) = (plan.schema(), before.schema());
    if schema.fields().iter().zip(wanted.fields()).all(|(now, then)| now.data_type() == then.data_type()) {
        return Ok(plan);
    }
    let Some(table) = table_below(&plan) else { return Ok(before.clone()) };
    let columns = schema.fields().iter().zip(wanted.fields()).enumerate();
    let columns = columns.map(|(at, (now, then))| {
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(now.name(), at));
        let is_number = (now.data_type(), then.data_type()) == (&DataType::UInt32, &DataType::Utf8View);
        let expr = if is_number { Arc::new(TextOf::new(column, table.clone())) as _ } else { column };
        ProjectionExpr { expr, alias: then.name().clone() }
    });
    Ok(Arc::new(ProjectionExec::try_new(columns.collect::<Vec<_>>(), plan)?))
}

/// A table that a plan reads. All that it reads by number share their texts.
fn table_below(plan: &Plan) -> Option<TableSnapshot> {
    match plan.downcast_ref::<Scan>() {
        Some(scan) => Some(scan.table().clone()),
        None => plan.children().into_iter().find_map(table_below),
    }
}
