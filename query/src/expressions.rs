//! Expressions of plans over other columns than they were made for.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;

pub(crate) type Expression = Arc<dyn PhysicalExpr>;

/// An expression with others in place of its columns: those that `by` gives for their position.
pub(crate) fn replaced(
    expression: &Expression,
    by: &dyn Fn(&Column) -> Option<Expression>,
) -> PlanResult<Expression> {
    let replace = |node: Expression| {
        let other = node.downcast_ref::<Column>().and_then(by);
        Ok::<_, DataFusionError>(other.map_or_else(|| Transformed::no(node), Transformed::yes))
    };
    expression.clone().transform_up(replace).data()
}

/// An expression with its columns at other places.
pub(crate) fn moved(expression: &Expression, to: &dyn Fn(usize) -> usize) -> PlanResult<Expression> {
    replaced(expression, &|column| Some(Arc::new(Column::new(column.name(), to(column.index())))))
}
