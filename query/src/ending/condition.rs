//! The condition of a join, which looks at the end of its statement first.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, FieldRef, Schema};
use datafusion::common::internal_err;
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;

use super::Ending;
use crate::expressions::Expression;

/// Equal where the conditions are: plans that are compared are of one statement.
#[derive(Clone, Debug)]
pub(super) struct Condition {
    condition: Expression,
    ending: Ending,
}

impl Condition {
    pub(super) fn new(condition: Expression, ending: Ending) -> Self {
        Condition { condition, ending }
    }
}

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        self.condition.eq(&other.condition)
    }
}

impl Eq for Condition {}

impl Hash for Condition {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.condition.hash(state);
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.condition.fmt(f)
    }
}

impl PhysicalExpr for Condition {
    fn data_type(&self, input: &Schema) -> PlanResult<DataType> {
        self.condition.data_type(input)
    }

    fn nullable(&self, input: &Schema) -> PlanResult<bool> {
        self.condition.nullable(input)
    }

    fn return_field(&self, input: &Schema) -> PlanResult<FieldRef> {
        self.condition.return_field(input)
    }

    fn evaluate(&self, batch: &RecordBatch) -> PlanResult<ColumnarValue> {
        self.ending.check()?;
        self.condition.evaluate(batch)
    }

    fn children(&self) -> Vec<&Expression> {
        vec![&self.condition]
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Expression>) -> PlanResult<Expression> {
        match children.pop() {
            Some(condition) if children.is_empty() => {
                Ok(Arc::new(Condition { condition, ending: self.ending.clone() }))
            }
            _ => internal_err!("what looks at the end has one condition"),
        }
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.condition.fmt_sql(f)
    }
}
