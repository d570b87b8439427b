//! Work that takes long and makes little, a few rows at a time.

use arrow::compute::concat;
use arrow_array::{Array, ArrayRef};
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl};

use super::argument::Argument;
use crate::ending::Ending;

/// The function whose steps are the product of the lengths of its two arguments.
pub(super) const LEVENSHTEIN: &str = "levenshtein";
/// The most of one row: a few seconds.
const ROW: u64 = 1 << 31;
/// About so many go on before it is looked whether the statement is over: a fraction of a second.
const TURN: u64 = 1 << 26;

/// Calls the function for as many rows at a time as are done soon.
///
/// # Errors
/// A row that takes too long alone, and the end of the statement.
pub(super) fn in_turns(function: &dyn ScalarUDFImpl, call: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
    let arguments = call.args.iter().map(|arg| Argument::of(arg)?.texts()).collect::<PlanResult<Vec<_>>>()?;
    let is_constant = arguments.iter().all(Argument::is_constant);
    let rows = if is_constant { 1 } else { call.number_rows };
    let steps = |row| arguments.iter().map(|text| text.text(row).len() as u64).fold(1, u64::saturating_mul);
    if let Some(row) = (0..rows).find(|row| steps(*row) > ROW) {
        let lengths: Vec<String> = arguments.iter().map(|text| text.text(row).len().to_string()).collect();
        let lengths = lengths.join(" and ");
        return Err(DataFusionError::ResourcesExhausted(format!(
            "{LEVENSHTEIN} of texts of {lengths} bytes takes {} steps, and {ROW} are the most; compare parts of them (`left`)",
            steps(row)
        )));
    }
    if is_constant {
        return function.invoke_with_args(call);
    }
    let ending = Ending::of(&call.config_options);
    let (mut first, mut parts) = (0, Vec::new());
    while first < rows {
        ending.check()?;
        let mut done = 0;
        let fits = |row: &usize| {
            let fits = done < TURN;
            done += steps(*row);
            fits
        };
        let count = (first..rows).take_while(fits).count();
        parts.push(part(function, &call, first, count)?);
        first += count;
    }
    let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
    Ok(match parts.is_empty() {
        true => function.invoke_with_args(call)?,
        false => ColumnarValue::Array(concat(&parts)?),
    })
}

/// The results of so many rows.
fn part(
    function: &dyn ScalarUDFImpl,
    call: &ScalarFunctionArgs,
    first: usize,
    count: usize,
) -> PlanResult<ArrayRef> {
    let args = call.args.iter().map(|arg| match arg {
        ColumnarValue::Array(values) => ColumnarValue::Array(values.slice(first, count)),
        scalar @ ColumnarValue::Scalar(_) => scalar.clone(),
    });
    let call = ScalarFunctionArgs { args: args.collect(), number_rows: count, ..call.clone() };
    function.invoke_with_args(call)?.into_array(count)
}
