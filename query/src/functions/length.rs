//! How long a list is, without reading it: `token_length(list)`, and `array_length`, `cardinality` of one argument.
//!
//! These ask to be moved towards the table. There the scan answers them from the 16 bytes that stand for the list, and
//! the list is not read. Where a list is computed by the query they count as usual.

use std::sync::Arc;

use arrow::compute::kernels::length::length;
use arrow::compute::{CastOptions, cast_with_options};
use arrow_array::Array;
use arrow_schema::DataType;
use datafusion::common::plan_err;
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::{
    ColumnarValue, ExpressionPlacement, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    TypeSignature, Volatility,
};

use super::columns;

/// The names of the functions that are a list's length when they have one argument.
pub(crate) const LENGTHS: [&str; 3] = ["token_length", "array_length", "cardinality"];

/// `token_length`, and the engine's own functions with the wish to be moved.
pub(super) fn all() -> Vec<ScalarUDF> {
    let own = ScalarUDF::new_from_impl(TokenLength::default());
    let array_length = datafusion::functions_nested::length::array_length_udf();
    let cardinality = datafusion::functions_nested::cardinality::cardinality_udf();
    let moved = |inner: Arc<ScalarUDF>| ScalarUDF::new_from_impl(Moved { inner });
    vec![own, moved(array_length), moved(cardinality)]
}

fn placed(arguments: &[ExpressionPlacement]) -> ExpressionPlacement {
    match arguments {
        [ExpressionPlacement::Column] => ExpressionPlacement::MoveTowardsLeafNodes,
        _ => ExpressionPlacement::KeepInPlace,
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TokenLength {
    signature: Signature,
}

impl Default for TokenLength {
    fn default() -> Self {
        TokenLength { signature: Signature::new(TypeSignature::Any(1), Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for TokenLength {
    fn name(&self) -> &'static str {
        LENGTHS[0]
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        match arguments {
            [DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..)] => {
                Ok(DataType::UInt64)
            }
            [other] => plan_err!("token_length counts the elements of a list, and {other} is none"),
            _ => plan_err!("token_length takes one list"),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let lists = columns(arguments)?;
        let Some(list) = lists.first() else { return plan_err!("token_length takes one list") };
        let lengths = length(list.as_ref() as &dyn Array)?;
        let counted = cast_with_options(&lengths, &DataType::UInt64, &CastOptions::default())?;
        Ok(ColumnarValue::Array(counted))
    }

    fn placement(&self, arguments: &[ExpressionPlacement]) -> ExpressionPlacement {
        placed(arguments)
    }
}

/// A function of the engine that is moved towards the table where its argument is a column.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Moved {
    inner: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for Moved {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        self.inner.return_type(arguments)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        self.inner.invoke_with_args(arguments)
    }

    fn placement(&self, arguments: &[ExpressionPlacement]) -> ExpressionPlacement {
        placed(arguments)
    }
}
