//! A function over groups, as a grouped scan calls it.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::GroupsAccumulator;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr_common::physical_expr::is_volatile;

use crate::expressions::{Expression, moved};

/// One function, and what it is a function of.
#[derive(Clone, Debug)]
pub(super) struct Function {
    function: Arc<AggregateFunctionExpr>,
    /// Over the inputs of all functions; `None` where it counts rows, and reads none.
    arguments: Option<Vec<Expression>>,
}

impl Function {
    /// A function over outputs of what it stands on; those that it wants are added to `wanted`, and become its inputs in that
    /// order. `None` for one that wants more than the numbers of a group, in any order.
    pub(super) fn of(
        function: &Arc<AggregateFunctionExpr>,
        wanted: &mut Vec<usize>,
    ) -> PlanResult<Option<Self>> {
        if counts_rows(function) {
            return Ok(Some(Function { function: function.clone(), arguments: None }));
        }
        let arguments = function.expressions();
        let is_plain = function.groups_accumulator_supported()
            && !function.is_distinct()
            && function.order_bys().is_empty()
            && !arguments.iter().any(is_volatile);
        if !is_plain {
            return Ok(None);
        }
        for column in arguments.iter().flat_map(collect_columns) {
            if !wanted.contains(&column.index()) {
                wanted.push(column.index());
            }
        }
        let place = |at: usize| wanted.iter().position(|wanted| *wanted == at).unwrap_or(at);
        let arguments = arguments.iter().map(|argument| moved(argument, &place));
        Ok(Some(Function {
            function: function.clone(),
            arguments: Some(arguments.collect::<PlanResult<_>>()?),
        }))
    }

    pub(super) fn name(&self) -> &str {
        self.function.name()
    }

    /// What takes its arguments in; `None` where it counts rows.
    pub(super) fn accumulator(&self) -> PlanResult<Option<Box<dyn GroupsAccumulator>>> {
        self.arguments.as_ref().map(|_| self.function.create_groups_accumulator()).transpose()
    }

    /// Its arguments of some rows, whose inputs these are.
    pub(super) fn arguments(&self, inputs: &RecordBatch) -> PlanResult<Vec<ArrayRef>> {
        let of = |argument: &Expression| argument.evaluate(inputs)?.into_array(inputs.num_rows());
        self.arguments.iter().flatten().map(of).collect()
    }
}

/// Whether a function is `count(*)`, however it was written: the count of something that is never null.
fn counts_rows(function: &AggregateFunctionExpr) -> bool {
    let is_there = |argument: &Literal| !argument.value().is_null();
    function.fun().name() == "count"
        && !function.is_distinct()
        && function.expressions().iter().all(|argument| argument.downcast_ref().is_some_and(is_there))
}
