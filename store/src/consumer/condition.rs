//! What a row's cells must say for a consumer to take it.

use crate::log::record::{ConditionRecord, StoredValue};
use crate::schema::{DataType, Element};
use crate::table::TableState;

/// How a cell is compared with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// The cell is less.
    Less,
    /// The cell is less or equal.
    AtMost,
    /// The cell is equal.
    Equal,
    /// The cell is not equal.
    NotEqual,
    /// The cell is greater or equal.
    AtLeast,
    /// The cell is greater.
    Greater,
}

const ALL: [Comparison; 6] = [
    Comparison::Less,
    Comparison::AtMost,
    Comparison::Equal,
    Comparison::NotEqual,
    Comparison::AtLeast,
    Comparison::Greater,
];

impl Comparison {
    fn holds(self, cell: f64, number: f64) -> bool {
        match self {
            Comparison::Less => cell < number,
            Comparison::AtMost => cell <= number,
            Comparison::Equal => cell == number,
            Comparison::NotEqual => cell != number,
            Comparison::AtLeast => cell >= number,
            Comparison::Greater => cell > number,
        }
    }

    pub(crate) fn tag(self) -> u8 {
        ALL.iter().position(|other| *other == self).unwrap_or_default() as u8
    }

    fn from_tag(tag: u8) -> Option<Self> {
        ALL.get(usize::from(tag)).copied()
    }
}

/// A condition on one column of numbers, resolved for each table of its consumer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Condition {
    /// The column, by table in the order of the declaration.
    columns: Vec<u16>,
    comparison: Comparison,
    number: f64,
}

impl Condition {
    pub(crate) fn from_record(record: &ConditionRecord) -> Option<Self> {
        let comparison = Comparison::from_tag(record.comparison)?;
        Some(Condition { columns: record.columns.clone(), comparison, number: f64::from_bits(record.number) })
    }

    /// Whether a row of the declaration's `at`-th table passes. Its cell is final; a null passes nothing.
    pub(crate) fn passes(&self, table: &TableState, at: usize, row: u32) -> bool {
        let cell = self.columns.get(at).and_then(|column| number_of(table, usize::from(*column), row));
        cell.is_some_and(|cell| self.comparison.holds(cell, self.number))
    }
}

/// A final cell as a number. `None` when it is null or no number.
pub(crate) fn number_of(table: &TableState, column: usize, row: u32) -> Option<f64> {
    let StoredValue::Inline(bits) = table.cell(column, row)? else { return None };
    let bytes = bits.to_le_bytes();
    let [a, b, c, d, ..] = bytes;
    Some(match table.schema.data_columns().get(column)?.data_type {
        DataType::Bool => f64::from(u8::from(bits & 1 == 1)),
        DataType::Number(element) => match element {
            Element::Int8 => f64::from(i8::from_le_bytes([a])),
            Element::Int16 => f64::from(i16::from_le_bytes([a, b])),
            Element::Int32 => f64::from(i32::from_le_bytes([a, b, c, d])),
            Element::Int64 => i64::from_le_bytes(bytes) as f64,
            Element::UInt8 => f64::from(a),
            Element::UInt16 => f64::from(u16::from_le_bytes([a, b])),
            Element::UInt32 => f64::from(u32::from_le_bytes([a, b, c, d])),
            Element::UInt64 => bits as f64,
            Element::Float16 => half::f16::from_le_bytes([a, b]).to_f64(),
            Element::BFloat16 => half::bf16::from_le_bytes([a, b]).to_f64(),
            Element::Float32 => f64::from(f32::from_le_bytes([a, b, c, d])),
            Element::Float64 => f64::from_le_bytes(bytes),
        },
        _ => return None,
    })
}

/// A number as bits that sort as the numbers do; what is no number is least.
pub(crate) fn priority_bits(number: Option<f64>) -> u64 {
    let Some(number) = number.filter(|number| !number.is_nan()) else { return 0 };
    let bits = (number + 0.0).to_bits(); // minus zero is zero
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_sort_as_their_numbers_do() {
        let sorted =
            [None, Some(f64::NEG_INFINITY), Some(-2.5), Some(-1e-300), Some(0.0), Some(1e-300), Some(7.0)];
        let bits: Vec<u64> = sorted.into_iter().map(priority_bits).collect();
        assert!(bits.is_sorted() && bits[0] < bits[1], "{bits:?}");
        assert_eq!(priority_bits(Some(f64::NAN)), priority_bits(None));
        assert_eq!(priority_bits(Some(-0.0)), priority_bits(Some(0.0)));
    }

    #[test]
    fn comparisons_hold_where_arithmetic_says_so() {
        for (comparison, expected) in ALL.into_iter().zip([
            [true, false, false],
            [true, true, false],
            [false, true, false],
            [true, false, true],
            [false, true, true],
            [false, false, true],
        ]) {
            assert_eq!([1.0, 2.0, 3.0].map(|cell| comparison.holds(cell, 2.0)), expected, "{comparison:?}");
            assert_eq!(Comparison::from_tag(comparison.tag()), Some(comparison));
        }
    }
}
