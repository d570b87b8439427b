//! Canonical numbers as an expression.

use std::sync::Arc;

use arrow_schema::{DataType, FieldRef};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, ScalarValue, internal_err};
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::canonical;

/// What it stands on, with canonical numbers. It is no function that a statement can name.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Canonical {
    signature: Signature,
}

impl Canonical {
    /// An expression with canonical numbers in place of those of an expression.
    pub(crate) fn over(expression: Expr) -> Expr {
        let canonical = Canonical { signature: Signature::any(1, Volatility::Immutable) };
        Arc::new(ScalarUDF::new_from_impl(canonical)).call(vec![expression])
    }

    /// An expression that reads canonical numbers of all columns of which `is_float` says so.
    ///
    /// No statistics of these are relied on: those of files leave NaN out, and tell nothing of what a function makes of a column.
    pub(crate) fn of_columns(expression: Expr, is_float: &dyn Fn(&Column) -> bool) -> PlanResult<Expr> {
        let replace = |node: Expr| match node {
            Expr::Column(column) if is_float(&column) => {
                Ok::<_, DataFusionError>(Transformed::yes(Canonical::over(Expr::Column(column))))
            }
            other => Ok(Transformed::no(other)),
        };
        expression.transform_up(replace).data()
    }
}

impl ScalarUDFImpl for Canonical {
    fn name(&self) -> &'static str {
        "canonical"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        match arguments {
            [number] => Ok(number.clone()),
            _ => internal_err!("canonical is of one column"),
        }
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> PlanResult<FieldRef> {
        match arguments.arg_fields {
            [number] => Ok(number.clone()),
            _ => internal_err!("canonical is of one column"),
        }
    }

    fn invoke_with_args(&self, mut arguments: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        match arguments.args.pop() {
            Some(ColumnarValue::Array(numbers)) => Ok(ColumnarValue::Array(canonical(numbers))),
            Some(ColumnarValue::Scalar(number)) => {
                let number = canonical(number.to_array()?);
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&number, 0)?))
            }
            None => internal_err!("canonical is of one column"),
        }
    }
}
