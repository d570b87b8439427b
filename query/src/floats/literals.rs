//! Numbers in a statement that are compared with float32 and float16.
//!
//! `reward = 0.1` asks for the rewards that were written as 0.1, and a float32 holds another number than a float64 for it. So a
//! number that is written in the statement means one of the type that it is compared with, as in DuckDB. `CAST(0.1 AS DOUBLE)` is
//! what it says.

use arrow_schema::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::expr::{BinaryExpr, Case, InList};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Operator};
use datafusion::optimizer::AnalyzerRule;

use super::canonical;

/// The rule of the planner. It goes before types are made equal.
#[derive(Debug)]
pub(crate) struct FloatLiterals;

impl AnalyzerRule for FloatLiterals {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> PlanResult<LogicalPlan> {
        plan.transform_up_with_subqueries(of_plan).data()
    }

    fn name(&self) -> &'static str {
        "FloatLiterals"
    }
}

fn of_plan(plan: LogicalPlan) -> PlanResult<Transformed<LogicalPlan>> {
    let mut schema = merge_schema(&plan.inputs());
    if let LogicalPlan::TableScan(scan) = &plan {
        schema.merge(&scan.projected_schema);
    }
    let names = NamePreserver::new(&plan);
    let changed = plan.map_expressions(|expression| {
        let name = names.save(&expression);
        let changed = expression.transform_up(|node| of_comparison(node, &schema))?;
        Ok(changed.update_data(|expression| name.restore(expression)))
    })?;
    changed.map_data(LogicalPlan::recompute_schema)
}

/// A comparison, with the numbers in it as what they are compared with.
fn of_comparison(node: Expr, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    let mut is_changed = false;
    let mut mend = |number: &mut Expr, to: &Option<DataType>| {
        let made = as_type(std::mem::take(number), to.as_ref());
        is_changed |= made.transformed;
        *number = made.data;
    };
    let mut node = node;
    match &mut node {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if compares(*op) => {
            let (of_left, of_right) = (float_type(left, schema), float_type(right, schema));
            mend(left, &of_right);
            mend(right, &of_left);
        }
        Expr::InList(InList { expr, list, .. }) => {
            let to = float_type(expr, schema);
            list.iter_mut().for_each(|one| mend(one, &to));
        }
        Expr::Between(between) => {
            let to = float_type(&between.expr, schema);
            mend(&mut between.low, &to);
            mend(&mut between.high, &to);
        }
        Expr::Case(Case { expr: Some(expr), when_then_expr, .. }) => {
            let to = float_type(expr, schema);
            when_then_expr.iter_mut().for_each(|(when, _)| mend(when, &to));
        }
        _ => {}
    }
    Ok(Transformed::new_transformed(node, is_changed))
}

pub(super) fn compares(operator: Operator) -> bool {
    use Operator as O;
    matches!(
        operator,
        O::Eq | O::NotEq | O::Lt | O::LtEq | O::Gt | O::GtEq | O::IsDistinctFrom | O::IsNotDistinctFrom
    )
}

/// The type of a float, unless it is a number of the statement itself.
fn float_type(expression: &Expr, schema: &DFSchema) -> Option<DataType> {
    let is_written = matches!(expression, Expr::Literal(..));
    let float = expression.get_type(schema).ok().filter(DataType::is_floating);
    float.filter(|_| !is_written)
}

/// A number of the statement as one of that type, canonical; one that is too large for it stays as it is.
fn as_type(expression: Expr, to: Option<&DataType>) -> Transformed<Expr> {
    let number = match &expression {
        Expr::Literal(number @ ScalarValue::Float64(Some(_)), _) => Some(number.clone()),
        Expr::Negative(of) => match &**of {
            Expr::Literal(ScalarValue::Float64(Some(number)), _) => Some(ScalarValue::Float64(Some(-number))),
            _ => None,
        },
        _ => None,
    };
    let made = number.zip(to).and_then(|(number, to)| {
        let made =
            ScalarValue::try_from_array(&canonical(number.cast_to(to).ok()?.to_array().ok()?), 0).ok()?;
        (is_finite(&made) == is_finite(&number)).then_some(made)
    });
    match made {
        Some(made) => Transformed::yes(Expr::Literal(made, None)),
        None => Transformed::no(expression),
    }
}

fn is_finite(number: &ScalarValue) -> bool {
    match number.cast_to(&DataType::Float64) {
        Ok(ScalarValue::Float64(Some(number))) => number.is_finite(),
        _ => false,
    }
}
