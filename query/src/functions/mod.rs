//! Functions of the field: what people who train agents ask of their samples.
//!
//! A file a family. `docs/sql.md` documents each, with examples that run as tests; formulas come with their source. To add
//! one, write its file and name it in [`register`]. `bounded` keeps those of the engine that make much of little within bounds.

mod advantage;
mod bounded;
mod bridge;
mod bridging;
mod detokenise;
mod divergence;
mod length;
mod passing;
mod sliding;
mod spread;

use std::sync::Arc;

use arrow::compute::cast;
use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, StringArray};
use arrow_schema::DataType;
use datafusion::error::Result as PlanResult;
use datafusion::execution::{FunctionRegistry, SessionState};
use datafusion::logical_expr::ScalarFunctionArgs;

pub(crate) use bounded::Limits;
pub(crate) use bounded::rule as bounded;
pub(crate) use detokenise::Tokenizers;
pub(crate) use length::LENGTHS;

/// Makes the functions known to a session; one of the engine's own of the same name gives way.
pub(crate) fn register(state: &mut SessionState, tokenizers: Tokenizers) -> PlanResult<()> {
    for function in length::all() {
        state.register_udf(Arc::new(function))?;
    }
    state.register_udf(Arc::new(divergence::kl()))?;
    state.register_udf(Arc::new(detokenise::detokenise(tokenizers)))?;
    for function in [passing::pass_at_k(), passing::mean_at_k(), spread::spread(), spread::zero_spread()] {
        state.register_udaf(Arc::new(function))?;
    }
    for function in bridging::all() {
        state.register_udaf(Arc::new(function))?;
    }
    state.register_udwf(Arc::new(advantage::advantage()))?;
    Ok(())
}

/// The arguments of a function, a column each.
fn columns(arguments: ScalarFunctionArgs) -> PlanResult<Vec<ArrayRef>> {
    let rows = arguments.number_rows;
    arguments.args.into_iter().map(|argument| argument.into_array(rows)).collect()
}

/// The texts of an argument that names something in each row, such as an estimator; `None` where it was not given.
fn names(argument: Option<&ArrayRef>) -> PlanResult<Option<StringArray>> {
    let names = argument.map(|names| cast(names, &DataType::Utf8)).transpose()?;
    Ok(names.map(|names| names.as_string::<i32>().clone()))
}
