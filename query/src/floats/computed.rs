//! Floats that a query computes, made canonical where they are compared, sorted, grouped or joined.
//!
//! `-reward * 0` is a negative zero, and 0/0 is a NaN with a sign on x86, as is the mean of two infinities. What a query
//! shows stays as it was computed. What comes of the store or an archive is canonical already, and is left alone.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, DFSchema, JoinType};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::expr::{BinaryExpr, GroupingSet, InList};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Between, Distinct, Expr, ExprSchemable, Join, LogicalPlan, LogicalPlanBuilder,
};
use datafusion::optimizer::AnalyzerRule;

use super::Canonical;
use super::canonical;
use super::literals::compares;

/// The rule of the planner. It goes when all types are known.
#[derive(Debug)]
pub(crate) struct ComputedFloats;

impl AnalyzerRule for ComputedFloats {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> PlanResult<LogicalPlan> {
        plan.transform_up_with_subqueries(of_plan).data()
    }

    fn name(&self) -> &'static str {
        "ComputedFloats"
    }
}

fn of_plan(plan: LogicalPlan) -> PlanResult<Transformed<LogicalPlan>> {
    if let LogicalPlan::Distinct(Distinct::All(input)) = &plan {
        let made = outputs(input)?.map(|input| LogicalPlanBuilder::from(input).distinct()?.build());
        return Ok(made.transpose()?.map_or_else(|| Transformed::no(plan.clone()), Transformed::yes));
    }
    let inputs: Vec<LogicalPlan> = plan.inputs().into_iter().cloned().collect();
    let all: Vec<&LogicalPlan> = inputs.iter().collect();
    let seen = Seen { schema: merge_schema(&all), inputs: &inputs };
    let names = NamePreserver::new_for_projection();
    let are_keys = matches!(plan, LogicalPlan::Sort(_) | LogicalPlan::Join(_));
    let groups = if let LogicalPlan::Aggregate(aggregate) = &plan { aggregate.group_expr.len() } else { 0 };
    let keeps_names = !matches!(plan, LogicalPlan::Sort(_) | LogicalPlan::Join(_) | LogicalPlan::Filter(_));
    let mut at = 0;
    let changed = plan.map_expressions(|expression| {
        let name = names.save(&expression);
        at += 1;
        let changed = expression.transform_up(|node| seen.of_comparison(node))?;
        let changed = match are_keys || at <= groups {
            true => changed.transform_data(|key| Ok(seen.made_canonical(key)))?,
            false => changed,
        };
        Ok(match changed.transformed && keeps_names {
            true => changed.update_data(|expression| name.restore(expression)),
            false => changed,
        })
    })?;
    changed.map_data(LogicalPlan::recompute_schema)
}

/// What the expressions of a plan are over.
struct Seen<'a> {
    schema: DFSchema,
    inputs: &'a [LogicalPlan],
}

impl Seen<'_> {
    /// What is compared with something, made canonical; so is what windows are told apart and sorted by, and what is counted once.
    fn of_comparison(&self, mut node: Expr) -> PlanResult<Transformed<Expr>> {
        let mut is_changed = false;
        let mut mend = |one: &mut Expr| {
            let made = self.made_canonical(std::mem::take(one));
            is_changed |= made.transformed;
            *one = made.data;
        };
        match &mut node {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if compares(*op) => {
                mend(left);
                mend(right);
            }
            Expr::InList(InList { expr, list, .. }) => {
                mend(expr);
                list.iter_mut().for_each(mend);
            }
            Expr::Between(Between { expr, low, high, .. }) => {
                [expr, low, high].into_iter().for_each(|one| mend(one));
            }
            Expr::Case(case) if case.expr.is_some() => {
                let whens = case.when_then_expr.iter_mut().map(|(when, _)| when);
                case.expr.iter_mut().chain(whens).for_each(|one| mend(one));
            }
            Expr::GroupingSet(set) => {
                let names = NamePreserver::new_for_projection();
                // Others know a key by its name, as they know one that stands alone.
                let mend_key = |key: &mut Expr| {
                    let name = names.save(key);
                    mend(key);
                    *key = name.restore(std::mem::take(key));
                };
                match set {
                    GroupingSet::Rollup(keys) | GroupingSet::Cube(keys) => keys.iter_mut().for_each(mend_key),
                    GroupingSet::GroupingSets(sets) => sets.iter_mut().flatten().for_each(mend_key),
                }
            }
            Expr::InSubquery(within) => {
                mend(&mut within.expr);
                if let Some(plan) = outputs(&within.subquery.subquery)? {
                    (within.subquery.subquery, is_changed) = (Arc::new(plan), true);
                }
            }
            Expr::AggregateFunction(function) => {
                let counted = function.params.args.iter_mut().filter(|_| function.params.distinct);
                counted.for_each(&mut mend);
                function.params.order_by.iter_mut().for_each(|key| mend(&mut key.expr));
            }
            Expr::WindowFunction(function) => {
                function.params.partition_by.iter_mut().for_each(&mut mend);
                function.params.order_by.iter_mut().for_each(|key| mend(&mut key.expr));
            }
            _ => {}
        }
        Ok(Transformed::new_transformed(node, is_changed))
    }

    /// A float that may not be canonical, made so.
    fn made_canonical(&self, expression: Expr) -> Transformed<Expr> {
        let is_float = expression.get_type(&self.schema).is_ok_and(|of| of.is_floating());
        match is_float && !is_canonical(&expression, self.inputs) {
            true => Transformed::yes(Canonical::over(expression)),
            false => Transformed::no(expression),
        }
    }
}

/// The plan with canonical floats in what it gives; `None` where they are.
fn outputs(plan: &LogicalPlan) -> PlanResult<Option<LogicalPlan>> {
    let inputs = std::slice::from_ref(plan);
    let seen = Seen { schema: plan.schema().as_ref().clone(), inputs };
    let columns = plan.schema().iter().map(|(table, field)| Column::new(table.cloned(), field.name()));
    let columns: Vec<Transformed<Expr>> =
        columns.map(|column| seen.made_canonical(Expr::Column(column))).collect();
    if !columns.iter().any(|column| column.transformed) {
        return Ok(None);
    }
    let names = plan.schema().iter().map(|(table, field)| (table.cloned(), field.name().clone()));
    let columns = columns.into_iter().zip(names).map(|(column, (table, name))| match column.transformed {
        true => column.data.alias_qualified(table, name),
        false => column.data,
    });
    LogicalPlanBuilder::from(plan.clone()).project(columns)?.build().map(Some)
}

/// Whether an expression over what plans give is known to be canonical where it is a float.
fn is_canonical(expression: &Expr, inputs: &[LogicalPlan]) -> bool {
    match expression {
        Expr::Column(column) => {
            let given =
                inputs.iter().find_map(|input| Some((input, input.schema().maybe_index_of_column(column)?)));
            given.is_some_and(|(input, at)| gives_canonical(input, at))
        }
        Expr::Case(case) => {
            let thens = case.when_then_expr.iter().map(|(_, then)| then).chain(&case.else_expr);
            thens.into_iter().all(|then| is_canonical(then, inputs))
        }
        Expr::Alias(alias) => is_canonical(&alias.expr, inputs),
        // Of the rows around a subquery: another place for it would keep the engine from making a join of it.
        Expr::OuterReferenceColumn(..) => true,
        Expr::Cast(cast) => is_cast_canonical(&cast.expr, inputs),
        Expr::Literal(value, _) => match value.to_array() {
            Ok(number) => Arc::ptr_eq(&canonical(number.clone()), &number),
            Err(_) => false,
        },
        Expr::ScalarFunction(function) => function.func.inner().is::<Canonical>(),
        Expr::AggregateFunction(function) => ["min", "max"].contains(&function.func.name()),
        _ => false,
    }
}

/// Whether what is cast is a whole number, or a float that is canonical.
fn is_cast_canonical(of: &Expr, inputs: &[LogicalPlan]) -> bool {
    let inputs_of: Vec<&LogicalPlan> = inputs.iter().collect();
    match of.get_type(&merge_schema(&inputs_of)) {
        Ok(from) if from.is_floating() => is_canonical(of, inputs),
        Ok(from) => from.is_integer(),
        Err(_) => false,
    }
}

/// The same of a column that a plan gives, by its place.
fn gives_canonical(plan: &LogicalPlan, at: usize) -> bool {
    match plan {
        LogicalPlan::TableScan(_) => true,
        LogicalPlan::Projection(projection) => projection
            .expr
            .get(at)
            .is_some_and(|one| is_canonical(one, std::slice::from_ref(&*projection.input))),
        LogicalPlan::Aggregate(of) if !matches!(of.group_expr.as_slice(), [Expr::GroupingSet(_)]) => {
            let given = of.group_expr.iter().chain(&of.aggr_expr).nth(at);
            given.is_some_and(|one| is_canonical(one, std::slice::from_ref(&*of.input)))
        }
        LogicalPlan::SubqueryAlias(alias) => gives_canonical(&alias.input, at),
        LogicalPlan::Filter(filter) => gives_canonical(&filter.input, at),
        LogicalPlan::Sort(sort) => gives_canonical(&sort.input, at),
        LogicalPlan::Limit(limit) => gives_canonical(&limit.input, at),
        LogicalPlan::Distinct(Distinct::All(input)) => gives_canonical(input, at),
        LogicalPlan::Window(window) => {
            at < window.input.schema().fields().len() && gives_canonical(&window.input, at)
        }
        LogicalPlan::Union(union) => union.inputs.iter().all(|input| gives_canonical(input, at)),
        LogicalPlan::Join(join) => join_gives_canonical(join, at),
        _ => false,
    }
}

fn join_gives_canonical(join: &Join, at: usize) -> bool {
    let left = join.left.schema().fields().len();
    match join.join_type {
        JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => gives_canonical(&join.right, at),
        _ if at < left => gives_canonical(&join.left, at),
        _ => at - left < join.right.schema().fields().len() && gives_canonical(&join.right, at - left),
    }
}
