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
use super::bytes::sum;

/// The bytes of texts with something else wherever a part of them was.
pub(super) fn replaced([text, from, to]: [&Argument; 3], rows: usize, most: u64) -> PlanResult<u64> {
    let (text, from, to) = (text.texts()?, from.texts()?, to.texts()?);
    let bytes =
        |row, times: u64| (to.text(row).len() as u64).saturating_mul(times).saturating_add(text.bytes(row));
    let everywhere = |row| text.text(row).len() / from.text(row).len().max(1) + 1;
    let found = |row| text.text(row).matches(from.text(row)).count();
    let bytes_if = |times: &dyn Fn(usize) -> usize| sum((0..rows).map(|row| bytes(row, times(row) as u64)));
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
        sum((0..rows).map(bytes))
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

/// The bytes of what the groups of a pattern matched. Groups beside each other match different parts of a text, groups in groups the
/// same again.
pub(super) fn groups(text: &Argument, pattern: &Argument, rows: usize) -> PlanResult<u64> {
    let pattern = pattern.texts()?;
    let bytes = |row| text.bytes(row).saturating_mul(depth(pattern.text(row)).max(1));
    Ok(sum((0..rows).map(bytes)))
}

/// How deep the groups of a pattern are, at most: in what may hold comments, no bracket is known to close a group.
fn depth(pattern: &str) -> u64 {
    let has_comments = pattern.contains('#');
    let (mut depth, mut deepest, mut classes) = (0_u64, 0, 0_u64);
    let mut bytes = pattern.bytes().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => _ = bytes.next(),
            b'[' => {
                classes += 1;
                // The first bracket of a class is one of its members.
                _ = bytes.next_if_eq(&b'^');
                _ = bytes.next_if_eq(&b']');
            }
            b']' => classes = classes.saturating_sub(1),
            b'(' if classes == 0 => depth += 1,
            b')' if classes == 0 && !has_comments => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_as_deep_as_they_are_in_each_other() {
        for (pattern, expected) in [
            ("a", 0),
            ("(a)(b)(c)", 1),
            ("((a)(b))", 2),
            ("((((x*))))", 4),
            ("(a[)](b))", 2),
            ("(a[](](b)[^])](c(d)))", 3),
            (r"((\))(a)", 2),
            (r"\((a)", 1),
            ("(?x)( # )\n(a))", 3),
        ] {
            assert_eq!(depth(pattern), expected, "{pattern}");
        }
    }
}
