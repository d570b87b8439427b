//! Values of the few rows that a query shows, in place of those that it sorts.
//!
//! A query for the twenty lowest rewards with their prompts would carry the prompt of every row that was among the twenty for
//! a while, and each may cost a page of a file. So the scan below such a sort gives numbers of rows in place of values, and
//! what is left is given its values by a [`Retrieve`] above the sort.
//!
//! Invariants
//! - Above the sort nothing changes: its columns keep their names, types and places.
//! - A sort whose keys depend on values, or that keeps all rows, stays as it is.

mod retrieve;

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result as PlanResult;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::projection::ProjectionExpr;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;

use self::retrieve::Retrieve;
use crate::expressions::{Expression, moved, replaced};
use crate::scan::Scan;

type Plan = Arc<dyn ExecutionPlan>;

/// The rule of the planner.
#[derive(Debug)]
pub(crate) struct ValuesLate;

impl PhysicalOptimizerRule for ValuesLate {
    fn optimize(&self, plan: Plan, _config: &ConfigOptions) -> PlanResult<Plan> {
        let replace = |plan: Plan| {
            let late = plan.downcast_ref::<SortExec>().map(late).transpose()?.flatten();
            Ok(late.map_or_else(|| Transformed::no(plan), Transformed::yes))
        };
        plan.transform_up(replace).data()
    }

    fn name(&self) -> &'static str {
        "ValuesLate"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The same as a sort gives, with values read above it; `None` where that is not to be had or saves nothing.
fn late(sort: &SortExec) -> PlanResult<Option<Plan>> {
    let Some((scan, given)) = sort.fetch().and_then(|_| below(sort.input())) else { return Ok(None) };
    let Some((light, values)) = scan.without_values() else { return Ok(None) };
    let needs_values = given.iter().any(|given| reads(&given.expr, &values));
    if !needs_values || given.iter().any(|given| is_volatile(&given.expr)) {
        return Ok(None);
    }
    let mut keys = Vec::new();
    for key in sort.expr() {
        let expr = replaced(&key.expr, &|column| given.get(column.index()).map(|given| given.expr.clone()))?;
        if reads(&expr, &values) {
            return Ok(None);
        }
        keys.push(PhysicalSortExpr {
            expr: moved(&expr, &|at| place_of(at, &values, light.columns()))?,
            options: key.options,
        });
    }
    let Some(keys) = LexOrdering::new(keys) else { return Ok(None) };
    let (rows, table) = (light.columns() - 1, light.table().clone());
    let columns = values.iter().filter_map(|at| scan.column(*at)).collect();
    let sorted = SortExec::new(keys, Arc::new(light))
        .with_fetch(sort.fetch())
        .with_preserve_partitioning(sort.preserve_partitioning());
    let with_values = Arc::new(Retrieve::new(Arc::new(sorted), table, rows, columns)?);
    let places = with_values.input_columns();
    let given = given.into_iter().map(|ProjectionExpr { expr, alias }| {
        Ok(ProjectionExpr { expr: moved(&expr, &|at| place_of(at, &values, places))?, alias })
    });
    Ok(Some(Arc::new(ProjectionExec::try_new(given.collect::<PlanResult<Vec<_>>>()?, with_values)?)))
}

/// The scan below a sort, and what the sort is given of its columns.
fn below(input: &Plan) -> Option<(&Scan, Vec<ProjectionExpr>)> {
    if let Some(projection) = input.downcast_ref::<ProjectionExec>() {
        let scan = projection.input().downcast_ref::<Scan>()?;
        return Some((scan, projection.expr().to_vec()));
    }
    let scan = input.downcast_ref::<Scan>()?;
    let fields = input.schema();
    let same = fields.fields().iter().enumerate().map(|(at, field)| ProjectionExpr {
        expr: Arc::new(Column::new(field.name(), at)),
        alias: field.name().clone(),
    });
    Some((scan, same.collect()))
}

fn reads(expression: &Expression, columns: &[usize]) -> bool {
    collect_columns(expression).iter().any(|read| columns.contains(&read.index()))
}

/// The place of a column of a scan once those of `values` are appended from `place` on.
fn place_of(at: usize, values: &[usize], place: usize) -> usize {
    match values.iter().position(|value| *value == at) {
        Some(value) => place + value,
        None => at - values.iter().filter(|value| **value < at).count(),
    }
}
