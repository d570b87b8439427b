//! One value as text: exact for programs, short for people.

use arrow::util::display::{ArrayFormatter, FormatOptions};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, StructArray};
use arrow_schema::{ArrowError, DataType};

/// Who reads the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// Programs: every digit and every byte; lists and structs as JSON.
    Exact,
    /// People: six digits, the start of lists and texts, nothing that a terminal would obey.
    Short,
}

/// Elements of a list that people are shown.
const LIST_SHOWN: usize = 4;
/// Lists up to this length are shown whole.
const LIST_WHOLE: usize = 8;
/// Characters of a text that people are shown.
const TEXT_SHOWN: usize = 2_000;
/// Characters of a binary value's digits that people are shown.
const BINARY_SHOWN: usize = 32;

const EXACT: FormatOptions<'static> = FormatOptions::new();
const SHORT: FormatOptions<'static> = FormatOptions::new()
    .with_timestamp_tz_format(Some("%Y-%m-%d %H:%M:%S%.3fZ"))
    .with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.3f"));

/// The values of one column.
pub(super) struct Cells<'a> {
    array: &'a ArrayRef,
    plain: ArrayFormatter<'a>,
    style: Style,
}

impl<'a> Cells<'a> {
    pub(super) fn new(array: &'a ArrayRef, style: Style) -> Result<Self, ArrowError> {
        let options = if style == Style::Exact { &EXACT } else { &SHORT };
        Ok(Cells { array, plain: ArrayFormatter::try_new(array, options)?, style })
    }

    /// The value of a row; `None` for NULL.
    pub(super) fn text(&self, row: usize) -> Result<Option<String>, ArrowError> {
        if self.array.is_null(row) || self.array.data_type().is_null() {
            return Ok(None);
        }
        if let Some(elements) = elements(self.array, row) {
            return self.list(&elements).map(Some);
        }
        if let Some(entries) = self.array.as_struct_opt() {
            return self.entries(entries, row).map(Some);
        }
        let plain = || self.plain.value(row).try_to_string();
        if self.style == Style::Exact {
            return plain().map(Some);
        }
        Ok(Some(match (self.array.data_type(), float(self.array, row)) {
            (_, Some(value)) => six_digits(value),
            (data_type, _) if data_type.is_string() => calmed(&plain()?),
            (data_type, _) if is_binary(data_type) => cut(&plain()?, BINARY_SHOWN),
            _ => plain()?,
        }))
    }

    fn list(&self, elements: &ArrayRef) -> Result<String, ArrowError> {
        let cells = Cells::new(elements, self.style)?;
        let whole = self.style == Style::Exact || elements.len() <= LIST_WHOLE;
        let shown = if whole { elements.len() } else { LIST_SHOWN };
        let texts = (0..shown).map(|index| cells.inner(index)).collect::<Result<Vec<_>, _>>()?;
        Ok(match (self.style, whole) {
            (Style::Exact, _) => format!("[{}]", texts.join(",")),
            (Style::Short, true) => format!("[{}]", texts.join(", ")),
            (Style::Short, false) => format!("[{}, … {} in all]", texts.join(", "), elements.len()),
        })
    }

    fn entries(&self, entries: &StructArray, row: usize) -> Result<String, ArrowError> {
        let mut texts = Vec::with_capacity(entries.num_columns());
        for (field, array) in entries.fields().iter().zip(entries.columns()) {
            let value = Cells::new(array, self.style)?.inner(row)?;
            texts.push(match self.style {
                Style::Exact => format!("{}:{value}", json_text(field.name())),
                Style::Short => format!("{}: {value}", field.name()),
            });
        }
        let separator = if self.style == Style::Exact { "," } else { ", " };
        Ok(format!("{{{}}}", texts.join(separator)))
    }

    /// A value inside of a list or struct.
    fn inner(&self, row: usize) -> Result<String, ArrowError> {
        let Some(text) = self.text(row)? else { return Ok("null".to_owned()) };
        let data_type = self.array.data_type();
        let bare = data_type.is_numeric() || data_type.is_nested() || *data_type == DataType::Boolean;
        Ok(match self.style {
            Style::Exact if float(self.array, row).is_some_and(|value| !value.is_finite()) => {
                "null".to_owned()
            }
            Style::Exact if !bare => json_text(&text),
            _ => text,
        })
    }
}

fn json_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn elements(array: &ArrayRef, row: usize) -> Option<ArrayRef> {
    match array.data_type() {
        DataType::List(_) => Some(array.as_list::<i32>().value(row)),
        DataType::LargeList(_) => Some(array.as_list::<i64>().value(row)),
        DataType::FixedSizeList(..) => Some(array.as_fixed_size_list().value(row)),
        _ => None,
    }
}

fn float(array: &ArrayRef, row: usize) -> Option<f64> {
    match array.data_type() {
        DataType::Float16 => Some(f64::from(array.as_primitive::<Float16Type>().value(row))),
        DataType::Float32 => Some(f64::from(array.as_primitive::<Float32Type>().value(row))),
        DataType::Float64 => Some(array.as_primitive::<Float64Type>().value(row)),
        _ => None,
    }
}

fn is_binary(data_type: &DataType) -> bool {
    use DataType::{Binary, BinaryView, FixedSizeBinary, LargeBinary};
    matches!(data_type, Binary | LargeBinary | BinaryView | FixedSizeBinary(_))
}

/// A number to six significant digits.
fn six_digits(value: f64) -> String {
    let magnitude = value.abs();
    if !value.is_finite() || value == 0.0 {
        return value.to_string();
    }
    if !(1e-4..1e12).contains(&magnitude) {
        return format!("{value:.5e}");
    }
    let decimals = (5.0 - magnitude.log10().floor()).clamp(0.0, 9.0) as usize;
    let text = format!("{value:.decimals$}");
    if decimals == 0 { text } else { text.trim_end_matches('0').trim_end_matches('.').to_owned() }
}

fn cut(text: &str, characters: usize) -> String {
    let mut kept: String = text.chars().take(characters).collect();
    let rest = text.chars().skip(characters).count();
    if rest > 0 {
        kept += &format!("… {} in all", characters + rest);
    }
    kept
}

/// A text of bearable length that cannot steer a terminal: control characters other than line ends are spelled out.
fn calmed(text: &str) -> String {
    let spell = |c: char| match c {
        '\n' => "\n".to_owned(),
        '\t' => "    ".to_owned(),
        c if c.is_control() => c.escape_default().to_string(),
        c => c.to_string(),
    };
    cut(text, TEXT_SHOWN).chars().map(spell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_six_digits() {
        let cases = [
            (0.0, "0"),
            (1.0, "1"),
            (-0.5, "-0.5"),
            (1.0 / 3.0, "0.333333"),
            (12345.678, "12345.7"),
            (1234567.8, "1234568"),
            (0.00012345678, "0.000123457"),
            (1e-9, "1.00000e-9"),
            (6.02e23, "6.02000e23"),
            (f64::NAN, "NaN"),
        ];
        for (value, expected) in cases {
            assert_eq!(six_digits(value), expected);
        }
    }
}
