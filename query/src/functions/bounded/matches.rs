//! What comes of texts in which something is looked for.
//!
//! First as if it were everywhere, which costs nothing to say; only where that would be too much is it looked for.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, StringArray};
use arrow_schema::{DataType, Field};
use datafusion::common::ScalarValue;
use datafusion::error::Result as PlanResult;
use datafusion::functions::regex::regexp_count;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};

use super::argument::Argument;

/// The bytes of texts with something else wherever a part of them was.
pub(super) fn replaced([text, from, to]: [&Argument; 3], rows: usize, most: u64) -> PlanResult<u64> {
    let (text, from, to) = (text.texts()?, from.texts()?, to.texts()?);
    let bytes =
        |row, times: u64| (to.text(row).len() as u64).saturating_mul(times).saturating_add(text.bytes(row));
    let everywhere = |row| text.text(row).len() / from.text(row).len().max(1) + 1;
    let found = |row| text.text(row).matches(from.text(row)).count();
    let bytes_if = |times: &dyn Fn(usize) -> usize| {
        (0..rows).map(|row| bytes(row, times(row) as u64)).fold(0, u64::saturating_add)
    };
    let bytes = bytes_if(&everywhere);
    Ok(if bytes > most { bytes_if(&found) } else { bytes })
}

/// The bytes of texts with something else where a pattern matched, once or (`g`) wherever it did. What is put there may name groups
/// of the match: each time, all of the text at most.
pub(super) fn rewritten(
    call: &ScalarFunctionArgs,
    [text, to]: [&Argument; 2],
    flags: Option<&Argument>,
    rows: usize,
    most: u64,
) -> PlanResult<u64> {
    let (text, to, flags) = (text.texts()?, to.texts()?, flags.map(Argument::texts).transpose()?);
    let is_everywhere = |row| flags.as_ref().is_some_and(|flags| flags.text(row).contains('g'));
    let bytes_if = |times: &dyn Fn(usize) -> u64| {
        let bytes = |row| {
            let (to, times) = (to.text(row), if is_everywhere(row) { times(row) } else { 1 });
            let named = to.bytes().filter(|byte| matches!(byte, b'\\' | b'$')).count() as u64;
            text.bytes(row).saturating_mul(1 + named).saturating_add((to.len() as u64).saturating_mul(times))
        };
        (0..rows).map(bytes).fold(0, u64::saturating_add)
    };
    let bytes = bytes_if(&|row| text.text(row).len() as u64 + 1);
    if bytes <= most {
        return Ok(bytes);
    }
    let counts = counts(call)?;
    let counts = counts.as_primitive::<Int64Type>();
    Ok(bytes_if(&|row| if counts.is_valid(row) { counts.value(row).unsigned_abs() } else { 0 }))
}

/// How often the pattern of a replacing call matches, row by row.
fn counts(call: &ScalarFunctionArgs) -> PlanResult<ArrayRef> {
    let mut args =
        vec![call.args[0].clone(), call.args[1].clone(), ColumnarValue::Scalar(ScalarValue::from(1_i64))];
    if let Some(flags) = call.args.get(3) {
        args.push(without_everywhere(flags, call.number_rows)?);
    }
    let fields = args.iter().map(|arg| Arc::new(Field::new("arg", arg.data_type(), true))).collect();
    let return_field = Arc::new(Field::new("count", DataType::Int64, true));
    let counting = ScalarFunctionArgs { args, arg_fields: fields, return_field, ..call.clone() };
    regexp_count().invoke_with_args(counting)?.into_array(call.number_rows)
}

/// The flags without that which says that all matches are replaced: all are counted.
fn without_everywhere(flags: &ColumnarValue, rows: usize) -> PlanResult<ColumnarValue> {
    let kind = flags.data_type();
    let texts = Argument::of(flags)?.texts()?;
    let plain = |row: usize| texts.text(row).replace('g', "");
    Ok(match flags {
        ColumnarValue::Scalar(_) => ColumnarValue::Scalar(ScalarValue::Utf8(Some(plain(0))).cast_to(&kind)?),
        ColumnarValue::Array(_) => {
            let plain: ArrayRef = Arc::new(StringArray::from_iter_values((0..rows).map(plain)));
            ColumnarValue::Array(arrow::compute::cast(&plain, &kind)?)
        }
    })
}

/// The bytes of what the groups of a pattern matched: groups in groups match the same again.
pub(super) fn groups(text: &Argument, pattern: &Argument, rows: usize) -> PlanResult<u64> {
    let pattern = pattern.texts()?;
    let groups = |row| pattern.text(row).bytes().filter(|byte| *byte == b'(').count() as u64 + 1;
    Ok((0..rows).map(|row| text.bytes(row).saturating_mul(groups(row))).fold(0, u64::saturating_add))
}
