//! `spread(reward)` and `zero_spread(reward)`: how far apart the rewards of a group are. Aggregates.
//!
//! - `spread`: the greatest less the least.
//! - `zero_spread`: whether all are equal, so that the group teaches nothing: its advantages are all zero (Yu et al.,
//!   "DAPO", 2025, leaves such groups out). Compared exactly: a standard deviation rounds, and may call equal rewards
//!   different.
//!
//! NULL rewards do not count; of none the answer is NULL. NaN is equal to itself and greater than every number.

use std::sync::Arc;

use arrow::compute::{cast, max, min};
use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float64Type};
use arrow_schema::{DECIMAL128_MAX_PRECISION, DataType, Field, FieldRef};
use datafusion::common::{ScalarValue, exec_err, plan_err};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Signature, TypeSignature, Volatility,
};

use super::sliding::Sliding;
use crate::floats::canonical;

pub(super) fn spread() -> AggregateUDF {
    AggregateUDF::new_from_impl(Spread::new(false))
}

pub(super) fn zero_spread() -> AggregateUDF {
    AggregateUDF::new_from_impl(Spread::new(true))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Spread {
    is_zero: bool,
    signature: Signature,
}

impl Spread {
    fn new(is_zero: bool) -> Self {
        Spread { is_zero, signature: Signature::new(TypeSignature::Any(1), Volatility::Immutable) }
    }

    /// Those of no numbers.
    fn bounds(&self, arguments: &AccumulatorArgs<'_>) -> PlanResult<Bounds> {
        let none = ScalarValue::try_from(of_first(arguments.expr_fields))?;
        Ok(Bounds { is_zero: self.is_zero, bounds: None, none })
    }
}

impl AggregateUDFImpl for Spread {
    fn name(&self) -> &'static str {
        if self.is_zero { "zero_spread" } else { "spread" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        match arguments {
            [number] if number.is_numeric() || number.is_null() => {
                Ok(if self.is_zero { DataType::Boolean } else { DataType::Float64 })
            }
            _ => plan_err!("{} takes a number, such as a reward", self.name()),
        }
    }

    fn accumulator(&self, arguments: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        Ok(Box::new(self.bounds(&arguments)?))
    }

    fn create_sliding_accumulator(&self, arguments: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        Ok(Box::new(Sliding::new(self.bounds(&arguments)?)))
    }

    fn state_fields(&self, arguments: StateFieldsArgs<'_>) -> PlanResult<Vec<FieldRef>> {
        let field = |name| Arc::new(Field::new(name, of_first(arguments.input_fields), true));
        Ok(vec![field("least"), field("greatest")])
    }
}

/// The least and the greatest: whole numbers as 128 bits, all others as floats, NaN above all of them.
#[derive(Clone, Debug)]
struct Bounds {
    is_zero: bool,
    bounds: Option<(ScalarValue, ScalarValue)>,
    /// What stands for either where there is none.
    none: ScalarValue,
}

/// The type that the numbers of a function's argument are compared in.
fn of_first(arguments: &[FieldRef]) -> DataType {
    compared(arguments.first().map_or(&DataType::Null, |numbers| numbers.data_type()))
}

/// The type that numbers are compared in.
fn compared(numbers: &DataType) -> DataType {
    match numbers.is_integer() {
        true => DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0),
        false => DataType::Float64,
    }
}

impl Bounds {
    /// Takes in the extremes of some numbers, none where they are all NULL.
    fn take(&mut self, least: &ArrayRef, greatest: &ArrayRef) -> PlanResult<()> {
        let (least, greatest) = (extremes(least)?, extremes(greatest)?);
        let (Some((least, _)), Some((_, greatest))) = (least, greatest) else { return Ok(()) };
        self.bounds = Some(match self.bounds.take() {
            Some((low, high)) => {
                (if least < low { least } else { low }, if greatest > high { greatest } else { high })
            }
            None => (least, greatest),
        });
        Ok(())
    }
}

/// The least and the greatest of a column.
fn extremes(numbers: &ArrayRef) -> PlanResult<Option<(ScalarValue, ScalarValue)>> {
    Ok(match numbers.data_type() {
        DataType::Float64 => {
            let numbers = canonical(numbers.clone());
            let numbers = numbers.as_primitive::<Float64Type>();
            let float = |number| ScalarValue::Float64(Some(number));
            min(numbers).zip(max(numbers)).map(|(least, greatest)| (float(least), float(greatest)))
        }
        _ => {
            let numbers = numbers.as_primitive::<Decimal128Type>();
            let whole = |number| ScalarValue::Decimal128(Some(number), DECIMAL128_MAX_PRECISION, 0);
            min(numbers).zip(max(numbers)).map(|(least, greatest)| (whole(least), whole(greatest)))
        }
    })
}

/// How far apart two of them are.
fn distance(least: &ScalarValue, greatest: &ScalarValue) -> f64 {
    match (least, greatest) {
        (ScalarValue::Float64(Some(least)), ScalarValue::Float64(Some(greatest))) if least == greatest => 0.0, // infinities, too
        (ScalarValue::Float64(Some(least)), ScalarValue::Float64(Some(greatest))) => greatest - least,
        (ScalarValue::Decimal128(Some(least), ..), ScalarValue::Decimal128(Some(greatest), ..)) => {
            (greatest - least) as f64
        }
        _ => f64::NAN,
    }
}

impl Accumulator for Bounds {
    fn update_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        let [numbers] = values else { return exec_err!("one column is wanted") };
        let numbers = cast(numbers, &compared(numbers.data_type()))?;
        self.take(&numbers, &numbers)
    }

    fn evaluate(&mut self) -> PlanResult<ScalarValue> {
        let bounds = self.bounds.as_ref();
        Ok(match self.is_zero {
            true => ScalarValue::Boolean(bounds.map(|(least, greatest)| least == greatest)),
            false => ScalarValue::Float64(bounds.map(|(least, greatest)| distance(least, greatest))),
        })
    }

    fn size(&self) -> usize {
        size_of::<Self>()
    }

    fn state(&mut self) -> PlanResult<Vec<ScalarValue>> {
        Ok(match &self.bounds {
            Some((least, greatest)) => vec![least.clone(), greatest.clone()],
            None => vec![self.none.clone(), self.none.clone()],
        })
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> PlanResult<()> {
        let [least, greatest] = states else { return exec_err!("two columns of state are wanted") };
        self.take(least, greatest)
    }
}
