//! What functions make of their arguments.

use arrow_schema::DataType;
use datafusion::common::exec_err;
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::ScalarFunctionArgs;

use super::argument::Argument;
use super::bytes::sum;
use super::{bytes, matches, spans};

/// How much longer than its arguments a result is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Growth {
    /// All arguments one behind the other; nested, it doubles each time.
    Sum,
    /// Twice the argument, at most.
    Encoded,
    /// The first argument, a text, as often as the second says.
    Repeated,
    /// A list that has the first argument as often as the second says.
    Listed,
    /// A text as long as the second argument says.
    Padded,
    /// A list as long as the second argument says.
    Resized,
    /// From the first argument to the second, in steps.
    Span,
    /// The third argument wherever the second is in the first.
    Replaced,
    /// The third argument wherever the second, a pattern, matches the first.
    Rewritten,
    /// The first argument once for each depth of groups of the second, a pattern, at most.
    Groups,
    /// All arguments, with the first between them.
    Separated,
    /// All values of a list as texts, with the second argument between them.
    Written,
}

impl Growth {
    /// That of a function by its name; `None` where results are about as long as arguments.
    pub(super) fn of(name: &str) -> Option<Self> {
        Some(match name {
            "||" | "concat" | "make_array" | "array_concat" | "array_append" | "array_prepend"
            | "array_union" | "arrays_zip" | "map" | "overlay" => Growth::Sum,
            "encode" => Growth::Encoded,
            "repeat" => Growth::Repeated,
            "array_repeat" => Growth::Listed,
            "lpad" | "rpad" => Growth::Padded,
            "array_resize" => Growth::Resized,
            "range" | "generate_series" => Growth::Span,
            "replace" => Growth::Replaced,
            "regexp_replace" => Growth::Rewritten,
            "regexp_match" => Growth::Groups,
            "concat_ws" => Growth::Separated,
            "array_to_string" => Growth::Written,
            _ => return None,
        })
    }

    /// The bytes of the result for so many rows: at least what it will be. What is more than `most` is counted exactly where that
    /// is dear.
    pub(super) fn bytes(
        self,
        call: &ScalarFunctionArgs,
        arguments: &[Argument],
        rows: usize,
        most: u64,
    ) -> PlanResult<u64> {
        let all = || sum(arguments.iter().map(|argument| argument.bytes_of_all(rows)));
        Ok(match (self, arguments) {
            (Growth::Encoded, _) => all().saturating_mul(2),
            (Growth::Repeated, [text, count]) => {
                let (text, count) = (text.texts()?, count.whole()?);
                sum((0..rows).map(|row| (text.text(row).len() as u64).saturating_mul(count.times(row))))
            }
            (Growth::Listed, [value, count]) => {
                let count = count.whole()?;
                sum((0..rows).map(|row| value.bytes(row).saturating_mul(count.times(row))))
            }
            (Growth::Padded, [_, length, fill @ ..]) => {
                padded(length, fill.first(), rows)?.saturating_add(all())
            }
            (Growth::Resized, [_, length, fill @ ..]) => {
                let length = length.whole()?;
                if let Some(length) =
                    (0..rows).filter_map(|row| length.number(row)).find(|length| *length < 0)
                {
                    return exec_err!("array_resize: no list has {length} values; give 0 or more");
                }
                let fill = |row| fill.first().map_or(bytes::VALUE, |fill| fill.bytes(row));
                sum((0..rows).map(|row| length.times(row).saturating_mul(fill(row)))).saturating_add(all())
            }
            (Growth::Span, _) => spans::values(arguments, rows)?.saturating_mul(8),
            (Growth::Replaced, [text, from, to]) => matches::replaced([text, from, to], rows, most)?,
            (Growth::Rewritten, [text, _, to, flags @ ..]) => {
                matches::rewritten(call, [text, to], flags.first(), rows, most)?
            }
            (Growth::Groups, [text, pattern, ..]) => matches::groups(text, pattern, rows)?,
            (Growth::Separated, [separator, values @ ..]) => {
                all().saturating_add(separator.bytes_of_all(rows).saturating_mul(values.len() as u64))
            }
            (Growth::Written, [list, between @ ..]) => written(list, between, rows)?,
            _ => all(),
        })
    }
}

/// The bytes of texts of these lengths in characters, each as wide as the widest that could fill them.
fn padded(length: &Argument, fill: Option<&Argument>, rows: usize) -> PlanResult<u64> {
    let (length, fill) = (length.whole()?, fill.map(Argument::texts).transpose()?);
    let is_narrow = |row| fill.as_ref().is_none_or(|fill| fill.text(row).is_ascii());
    let width = if (0..rows).all(is_narrow) { 1 } else { 4 };
    Ok(sum((0..rows).map(|row| length.times(row).saturating_mul(width))))
}

/// The bytes of the values of lists as texts, with texts between them or for them.
fn written(list: &Argument, between: &[Argument], rows: usize) -> PlanResult<u64> {
    let between = between.iter().map(Argument::texts).collect::<PlanResult<Vec<_>>>()?;
    let longest = |text: &Argument| (0..rows).map(|row| text.text(row).len() as u64).max().unwrap_or(0);
    let each = sum(between.iter().map(longest)).saturating_add(written_bytes(list.data_type()));
    let texts = if is_number(leaf(list.data_type())) { 0 } else { list.bytes_of_all(rows) };
    Ok(texts.saturating_add(list.leaves(rows).saturating_mul(each)))
}

/// The type of what lists, and lists in them, hold.
fn leaf(kind: &DataType) -> &DataType {
    match kind {
        DataType::List(field) | DataType::LargeList(field) | DataType::FixedSizeList(field, _) => {
            leaf(field.data_type())
        }
        other => other,
    }
}

fn is_number(kind: &DataType) -> bool {
    kind.primitive_width().is_some()
}

/// The longest that a number of a type may be as a text; nothing for a text.
fn written_bytes(kind: &DataType) -> u64 {
    match leaf(kind).primitive_width() {
        Some(1) => 4,
        Some(2) => 8,
        Some(4) => 16,
        Some(8) => 32,
        Some(_) => 96,
        None => 5, // a truth value
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot make its own input should stop there")]

    use std::sync::Arc;

    use arrow_array::ListArray;
    use arrow_array::types::Int32Type;
    use datafusion::common::ScalarValue;
    use datafusion::logical_expr::ColumnarValue;

    use super::*;

    /// What a batch of responses is as texts fits where the batch does.
    #[test]
    fn lists_of_tokens_as_texts_are_not_taken_for_more_than_some_times_their_size() {
        let tokens = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(50_000); 1_000])]);
        let list = Argument::of(&ColumnarValue::Array(Arc::new(tokens))).unwrap();
        let comma = Argument::of(&ColumnarValue::Scalar(ScalarValue::from(","))).unwrap();
        let bytes = written(&list, &[comma], 1).unwrap();
        assert!((6_000..20_000).contains(&bytes), "{bytes}");
    }
}
