//! Types whose values all have one width, which a statement may name at will.

use arrow_schema::DataType;
use datafusion::common::DFSchema;
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::{Expr, ExprSchemable};

use super::bytes;
use super::limits::Limits;

/// Refuses to cast to a type whose values are too wide, NULL among them.
pub(super) fn check(expression: &Expr, schema: &DFSchema, limits: Limits) -> PlanResult<()> {
    let Expr::ScalarFunction(call) = expression else { return Ok(()) };
    if !["arrow_cast", "arrow_try_cast"].contains(&call.name()) {
        return Ok(());
    }
    // What is no type is told of by the function.
    let Ok(made) = expression.get_type(schema) else { return Ok(()) };
    limits.check(call.name(), width(&made), 1, true)
}

/// The bytes of a value, whatever it is.
fn width(made: &DataType) -> u64 {
    match made {
        DataType::FixedSizeBinary(bytes) => u64::try_from(*bytes).unwrap_or(0),
        DataType::FixedSizeList(field, length) => {
            u64::try_from(*length).unwrap_or(0).saturating_mul(width(field.data_type()).max(1))
        }
        DataType::Struct(fields) => bytes::sum(fields.iter().map(|field| width(field.data_type()))),
        DataType::List(field) | DataType::LargeList(field) => width(field.data_type()),
        other => other.primitive_width().map_or(bytes::VALUE, |width| width as u64),
    }
}
