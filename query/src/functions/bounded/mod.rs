//! Functions that make much of little, kept within the memory of their session and the time of their statement.
//!
//! `repeat('x', 2000000000)` is a short statement. What functions make is counted by nobody: the pool of the session knows
//! sorts, joins and groups. So calls of the functions that [`growth`] knows are replaced, in every expression and before the
//! planner computes what is constant, by calls that first look at their arguments: how many bytes will come of this batch?
//! More than [`Limits`] allow is refused as what it is, a want of memory; nothing was allocated by then. `levenshtein` makes
//! little, but takes long: it goes in steps, and looks at the end of its statement between them. Nor may a cast name a type whose
//! values are wider than a constant may be.
//!
//! Not here: functions whose results are about as long as their arguments, however deep they are nested. What joins and
//! `unnest` make of values that are wide is not counted either.

mod argument;
mod bytes;
mod call;
mod growth;
mod joined;
mod limits;
mod matches;
mod spans;
mod steps;
mod widths;

use std::sync::Arc;

use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::optimizer::AnalyzerRule;
use datafusion::optimizer::analyzer::function_rewrite::ApplyFunctionRewrites;

use self::call::bounded;
use self::joined::joined;
pub(crate) use self::limits::Limits;

/// The rule of the planner that replaces the calls. It goes before types are known, and before anything is computed.
pub(crate) fn rule(limits: Limits) -> Arc<dyn AnalyzerRule + Send + Sync> {
    Arc::new(ApplyFunctionRewrites::new(vec![Arc::new(BoundedCalls(limits))]))
}

#[derive(Debug)]
struct BoundedCalls(Limits);

impl FunctionRewrite for BoundedCalls {
    fn name(&self) -> &str {
        "BoundedCalls"
    }

    fn rewrite(
        &self,
        expression: Expr,
        schema: &DFSchema,
        _config: &ConfigOptions,
    ) -> PlanResult<Transformed<Expr>> {
        widths::check(&expression, schema, self.0)?;
        joined(expression, schema).transform_data(|expression| Ok(bounded(expression, self.0)))
    }
}
