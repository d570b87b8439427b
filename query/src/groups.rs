//! Groups by what the store knows of rows without a look at a value.
//!
//! A grouping by versions, status columns, numbers of texts and the like need not hash a row: the store tells which rows are
//! of one kind. So its first half is replaced by a [`GroupedScan`], and its second half stays as it is.
//!
//! Invariants
//! - What stands in place of the first half gives its columns, by name and type.
//! - Groupings that are limited, or have sets of keys, filters, or functions of values, of an order or of what is distinct,
//!   stay as they are.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result as PlanResult;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};

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
    let scan = grouping.input().downcast_ref::<Scan>().filter(|_| is_plain);
    let columns = keys.expr().iter().map(|(key, _)| key.downcast_ref::<Column>().map(Column::index));
    match scan.zip(columns.collect::<Option<Vec<_>>>()) {
        Some((scan, keys)) => GroupedScan::of(scan, keys, grouping.aggr_expr(), grouping.schema()),
        None => Ok(None),
    }
}
