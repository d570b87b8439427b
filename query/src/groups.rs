//! Groups by what the store knows of rows without a look at a value.
//!
//! A grouping by versions, status columns, numbers of texts and the like need not hash a row: the store tells which rows are
//! of one kind. So its first half is replaced by a [`GroupedScan`], and its second half stays as it is. What the planner makes of
//! the columns in between, once for several functions, is made by the scan.
//!
//! Invariants
//! - What stands in place of the first half gives its columns, by name and type.
//! - Groupings that are limited, or have sets of keys, filters, or functions of values, of an order or of what is distinct,
//!   stay as they are.

use std::borrow::Cow;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result as PlanResult;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::projection::ProjectionExec;

use crate::scan::{GroupedScan, Scan};

/// The rule of the planner.
#[derive(Debug)]
pub(crate) struct GroupsByKind;

impl PhysicalOptimizerRule for GroupsByKind {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let replace = |plan: Arc<dyn ExecutionPlan>| {
            let grouped = plan.downcast_ref::<AggregateExec>().map(grouped).transpose()?.flatten();
            Ok(match grouped {
                Some(grouped) => Transformed::yes(Arc::new(grouped) as Arc<dyn ExecutionPlan>),
                None => Transformed::no(plan),
            })
        };
        plan.transform_up(replace).data()
    }

    fn name(&self) -> &'static str {
        "GroupsByKind"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// What gives the same as the first half of a grouping.
fn grouped(grouping: &AggregateExec) -> PlanResult<Option<GroupedScan>> {
    let keys = grouping.group_expr();
    let is_plain = *grouping.mode() == AggregateMode::Partial
        && keys.is_single()
        && grouping.limit_options().is_none()
        && grouping.filter_expr().iter().all(Option::is_none);
    let columns = keys.expr().iter().map(|(key, _)| key.downcast_ref::<Column>().map(Column::index));
    match (outputs(grouping.input()), columns.collect::<Option<Vec<_>>>()) {
        (Some((scan, outputs)), Some(keys)) if is_plain => {
            GroupedScan::of(scan, &outputs, &keys, grouping.aggr_expr(), grouping.schema())
        }
        _ => Ok(None),
    }
}

/// What a plan gives of the rows of a scan: its outputs, or what a projection makes of them.
fn outputs(plan: &Arc<dyn ExecutionPlan>) -> Option<(&Scan, Cow<'_, ProjectionExprs>)> {
    if let Some(scan) = plan.downcast_ref::<Scan>() {
        let all: Vec<usize> = (0..scan.columns()).collect();
        return Some((scan, Cow::Owned(ProjectionExprs::from_indices(&all, &scan.schema()))));
    }
    let projection = plan.downcast_ref::<ProjectionExec>()?;
    let scan = projection.input().downcast_ref::<Scan>()?;
    Some((scan, Cow::Borrowed(projection.projection_expr())))
}
