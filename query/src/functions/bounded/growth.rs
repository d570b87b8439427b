//! What functions make of their arguments.

use datafusion::common::exec_err;
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::ScalarFunctionArgs;

use super::argument::Argument;
use super::{bytes, matches, spans};

/// A text or a number that is written out, without the bytes of a text.
const WRITTEN_BYTES: u64 = 32;

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
    /// The first argument once for each group of the second, a pattern, at most.
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
            (Growth::Written, [list, between @ ..]) => written(list, between, rows),
            _ => all(),
        })
    }
}

fn sum(bytes: impl Iterator<Item = u64>) -> u64 {
    bytes.fold(0, u64::saturating_add)
}

/// The bytes of texts of these lengths in characters, each as wide as the widest that could fill them.
fn padded(length: &Argument, fill: Option<&Argument>, rows: usize) -> PlanResult<u64> {
    let (length, fill) = (length.whole()?, fill.map(Argument::texts).transpose()?);
    let is_narrow = |row| fill.as_ref().is_none_or(|fill| fill.text(row).is_ascii());
    let width = if (0..rows).all(is_narrow) { 1 } else { 4 };
    Ok(sum((0..rows).map(|row| length.times(row).saturating_mul(width))))
}

fn written(list: &Argument, between: &[Argument], rows: usize) -> u64 {
    let widest = |argument: &Argument| (0..rows).map(|row| argument.bytes(row)).max().unwrap_or(0);
    let each = sum(between.iter().map(widest)).saturating_add(WRITTEN_BYTES);
    list.bytes_of_all(rows).saturating_add(list.leaves(rows).saturating_mul(each))
}
