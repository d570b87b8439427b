//! One argument of a call.

use arrow::compute::cast;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType};
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, IntervalUnit};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::ColumnarValue;

use super::bytes;

/// What a call was given: a value a row, or one for all of them.
pub(super) struct Argument {
    values: ArrayRef,
    is_constant: bool,
}

impl Argument {
    pub(super) fn of(value: &ColumnarValue) -> PlanResult<Self> {
        Ok(match value {
            ColumnarValue::Array(values) => Argument { values: values.clone(), is_constant: false },
            ColumnarValue::Scalar(value) => {
                Argument { values: value.to_array_of_size(1)?, is_constant: true }
            }
        })
    }

    pub(super) fn is_constant(&self) -> bool {
        self.is_constant
    }

    pub(super) fn data_type(&self) -> &DataType {
        self.values.data_type()
    }

    /// The values, as whole numbers where they are such or are times.
    pub(super) fn whole(&self) -> PlanResult<Self> {
        Ok(Argument { values: cast(&self.values, &DataType::Int64)?, is_constant: self.is_constant })
    }

    /// The values as texts that are cheap to look at.
    pub(super) fn texts(&self) -> PlanResult<Self> {
        Ok(Argument { values: cast(&self.values, &DataType::Utf8View)?, is_constant: self.is_constant })
    }

    fn at(&self, row: usize) -> Option<usize> {
        let at = if self.is_constant { 0 } else { row };
        (at < self.values.len() && self.values.is_valid(at)).then_some(at)
    }

    /// The number of a row, of values that are [`whole`](Argument::whole).
    pub(super) fn number(&self, row: usize) -> Option<i64> {
        Some(self.values.as_primitive::<Int64Type>().value(self.at(row)?))
    }

    /// How often something is to be there: the number of a row; 0 where it is none or less.
    pub(super) fn times(&self, row: usize) -> u64 {
        self.number(row).and_then(|number| u64::try_from(number).ok()).unwrap_or(0)
    }

    /// The interval of a row; `None` for values that are no such.
    pub(super) fn interval(&self, row: usize) -> Option<IntervalMonthDayNano> {
        matches!(self.data_type(), DataType::Interval(IntervalUnit::MonthDayNano)).then_some(())?;
        Some(self.values.as_primitive::<IntervalMonthDayNanoType>().value(self.at(row)?))
    }

    /// The text of a row, of values that are [`texts`](Argument::texts).
    pub(super) fn text(&self, row: usize) -> &str {
        self.at(row).map_or("", |at| self.values.as_string_view().value(at))
    }

    /// The bytes of the value of a row.
    pub(super) fn bytes(&self, row: usize) -> u64 {
        self.at(row).map_or(bytes::VALUE, |at| bytes::of(&self.values, at..at + 1))
    }

    /// The bytes of the values of so many rows.
    pub(super) fn bytes_of_all(&self, rows: usize) -> u64 {
        match self.is_constant {
            true => self.bytes(0).saturating_mul(rows as u64),
            false => bytes::of(&self.values, 0..self.values.len()),
        }
    }

    /// How many values there are in the lists of so many rows, and in lists in them.
    pub(super) fn leaves(&self, rows: usize) -> u64 {
        let times = if self.is_constant { rows as u64 } else { 1 };
        bytes::leaves(&self.values, 0..self.values.len()).saturating_mul(times)
    }
}
