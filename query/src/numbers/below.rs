//! Plans that give the number of a text where they gave the text.
//!
//! Columns keep their names and places, so every expression that names one stays as it is; what changes is the type of one
//! column, from the scan up. A plan whose work with the column is more than to hand it on, or to ask whether two of it are
//! equal, is left as it is: so is all that is not known here.

use std::sync::Arc;

use datafusion::common::{JoinSide, JoinType};
use datafusion::error::Result as PlanResult;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateInputMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};

use super::{Plan, table_below};
use crate::scan::Scan;

/// The plan with the number in place of the text in a column, and nothing else changed; `None` where that cannot be.
pub(super) fn numbered(plan: &Plan, column: usize) -> PlanResult<Option<Plan>> {
    let by_number = with_number(plan, column)?;
    // A join gives both of the columns that it compares.
    Ok(by_number.filter(|by_number| {
        let (now, then) = (by_number.schema(), plan.schema());
        let mut columns = now.fields().iter().zip(then.fields()).enumerate();
        columns.all(|(at, (now, then))| at == column || now.data_type() == then.data_type())
    }))
}

fn with_number(plan: &Plan, column: usize) -> PlanResult<Option<Plan>> {
    if let Some(scan) = plan.downcast_ref::<Scan>() {
        return Ok(scan.with_number(column).map(|scan| Arc::new(scan) as Plan));
    }
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        return of_groups(aggregate, column);
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        return of_projection(projection, column);
    }
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        return of_join(plan, join, column);
    }
    match plan.downcast_ref::<CoalescePartitionsExec>() {
        Some(all) => numbered(all.input(), column)?.map(|input| over(plan, vec![input])),
        None => None,
    }
    .transpose()
}

/// The join with numbers in place of the texts that one of its keys compares.
pub(super) fn numbered_key(plan: &Plan, key: usize) -> PlanResult<Option<Plan>> {
    let Some(join) = plan.downcast_ref::<HashJoinExec>() else { return Ok(None) };
    let Some((left, right)) = join.on().get(key) else { return Ok(None) };
    let (Some(left), Some(right)) = (named(left), named(right)) else { return Ok(None) };
    if uses(join, JoinSide::Left, left) != 1 || uses(join, JoinSide::Right, right) != 1 {
        return Ok(None);
    }
    let (Some(left), Some(right)) = (numbered(&join.left, left)?, numbered(&join.right, right)?) else {
        return Ok(None);
    };
    match (table_below(&left), table_below(&right)) {
        (Some(one), Some(other)) if one.shares_texts(&other) => over(plan, vec![left, right]).map(Some),
        _ => Ok(None),
    }
}

/// The same plan over inputs of which a column has another type.
fn over(plan: &Plan, inputs: Vec<Plan>) -> PlanResult<Plan> {
    plan.clone().replace_children(inputs, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
}

/// The column that an expression is.
fn named(expression: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    expression.downcast_ref::<Column>().map(Column::index)
}

fn reads(expression: &Arc<dyn PhysicalExpr>, column: usize) -> bool {
    collect_columns(expression).iter().any(|read| read.index() == column)
}

/// A group's key by number: what is aggregated must not read it, nor any other key.
fn of_groups(aggregate: &AggregateExec, column: usize) -> PlanResult<Option<Plan>> {
    let keys = aggregate.group_expr();
    let key = keys.expr().get(column).and_then(|(key, _)| named(key));
    let Some(key) = key.filter(|_| keys.is_single() && aggregate.limit_options().is_none()) else {
        return Ok(None);
    };
    let others = keys.expr().iter().enumerate().filter(|(at, _)| *at != column);
    let raw = aggregate.mode().input_mode() == AggregateInputMode::Raw;
    // What is merged is named by place, not by expression.
    let merged = aggregate.aggr_expr().iter().filter(|_| raw).flat_map(|function| {
        let used = function.all_expressions();
        used.args.into_iter().chain(used.order_by_exprs)
    });
    let used = others.map(|(_, (key, _))| key.clone()).chain(merged);
    if used.chain(aggregate.filter_expr().iter().flatten().cloned()).any(|used| reads(&used, key)) {
        return Ok(None);
    }
    let Some(input) = numbered(aggregate.input(), key)? else { return Ok(None) };
    let raw_schema = if raw { input.schema() } else { aggregate.input_schema() };
    let by_number = AggregateExec::try_new(
        *aggregate.mode(),
        keys.clone(),
        aggregate.aggr_expr().to_vec(),
        aggregate.filter_expr().to_vec(),
        input,
        raw_schema,
    )?;
    Ok(Some(Arc::new(by_number)))
}

/// A column that is handed on, and read by nothing else.
fn of_projection(projection: &ProjectionExec, column: usize) -> PlanResult<Option<Plan>> {
    let Some(given) = projection.expr().get(column).and_then(|given| named(&given.expr)) else {
        return Ok(None);
    };
    let mut others = projection.expr().iter().enumerate().filter(|(at, _)| *at != column);
    if others.any(|(_, other)| reads(&other.expr, given)) {
        return Ok(None);
    }
    let Some(input) = numbered(projection.input(), given)? else { return Ok(None) };
    Ok(Some(Arc::new(ProjectionExec::try_new(projection.expr().to_vec(), input)?)))
}

/// A column of one side; where it is a key, the one that it is compared with goes along.
fn of_join(plan: &Plan, join: &HashJoinExec, column: usize) -> PlanResult<Option<Plan>> {
    let column = match &join.projection {
        Some(projection) => projection.get(column).copied(),
        None => Some(column),
    };
    let Some((side, column)) = column.and_then(|column| origin(join, column)) else { return Ok(None) };
    let is_key =
        |(left, right): &(_, _)| named(if side == JoinSide::Left { left } else { right }) == Some(column);
    if let Some(key) = join.on().iter().position(is_key) {
        return numbered_key(plan, key);
    }
    if uses(join, side, column) > 0 {
        return Ok(None);
    }
    let children = match side {
        JoinSide::Left => numbered(&join.left, column)?.map(|left| vec![left, join.right.clone()]),
        _ => numbered(&join.right, column)?.map(|right| vec![join.left.clone(), right]),
    };
    children.map(|children| over(plan, children)).transpose()
}

/// The side and the place there of a column that a join makes, before its projection.
fn origin(join: &HashJoinExec, column: usize) -> Option<(JoinSide, usize)> {
    use JoinType as T;
    let (left, right) = (join.left.schema().fields().len(), join.right.schema().fields().len());
    match join.join_type {
        T::Inner | T::Left | T::Right | T::Full if column >= left => Some((JoinSide::Right, column - left)),
        T::RightSemi | T::RightAnti | T::RightMark => (column < right).then_some((JoinSide::Right, column)),
        _ => (column < left).then_some((JoinSide::Left, column)),
    }
}

/// How often a join looks at a column of one side.
fn uses(join: &HashJoinExec, side: JoinSide, column: usize) -> usize {
    let keys = join.on().iter().map(|(left, right)| if side == JoinSide::Left { left } else { right });
    let of_filter = join.filter().map_or(&[][..], |filter| filter.column_indices());
    keys.filter(|key| reads(key, column)).count()
        + of_filter.iter().filter(|used| (used.side, used.index) == (side, column)).count()
}
