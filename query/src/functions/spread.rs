//! `spread(reward)` and `zero_spread(reward)`: how far apart the rewards of a group are. Aggregates.
//!
//! - `spread`: the greatest less the least.
//! - `zero_spread`: whether all are equal, so that the group teaches nothing: its advantages are all zero (Yu et al.,
//!   "DAPO", 2025, leaves such groups out). Compared exactly: a standard deviation rounds, and may call equal rewards
//!   different.
//!
//! NULL rewards do not count; of none the answer is NULL.

use std::sync::Arc;

use arrow::compute::{cast, max, min};
use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_schema::{DataType, Field, FieldRef};
use datafusion::common::{ScalarValue, exec_err, plan_err};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Signature, TypeSignature, Volatility,
};

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

    fn accumulator(&self, _arguments: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        Ok(Box::new(Bounds { is_zero: self.is_zero, bounds: None }))
    }

    fn state_fields(&self, _arguments: StateFieldsArgs<'_>) -> PlanResult<Vec<FieldRef>> {
        let field = |name| Arc::new(Field::new(name, DataType::Float64, true));
        Ok(vec![field("least"), field("greatest")])
    }
}

#[derive(Debug)]
struct Bounds {
    is_zero: bool,
    bounds: Option<(f64, f64)>,
}

impl Bounds {
    fn take(&mut self, least: Option<f64>, greatest: Option<f64>) {
        let (Some(least), Some(greatest)) = (least, greatest) else { return };
        let (low, high) = self.bounds.unwrap_or((least, greatest));
        self.bounds = Some((low.min(least), high.max(greatest)));
    }
}

impl Accumulator for Bounds {
    fn update_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        let [numbers] = values else { return exec_err!("one column is wanted") };
        let numbers = cast(numbers, &DataType::Float64)?;
        let numbers = numbers.as_primitive::<Float64Type>();
        self.take(min(numbers), max(numbers));
        Ok(())
    }

    fn evaluate(&mut self) -> PlanResult<ScalarValue> {
        let spread = self.bounds.map(|(least, greatest)| greatest - least);
        Ok(match self.is_zero {
            true => ScalarValue::Boolean(self.bounds.map(|(least, greatest)| least == greatest)),
            false => ScalarValue::Float64(spread),
        })
    }

    fn size(&self) -> usize {
        size_of::<Self>()
    }

    fn state(&mut self) -> PlanResult<Vec<ScalarValue>> {
        let (least, greatest) = self.bounds.unzip();
        Ok(vec![ScalarValue::Float64(least), ScalarValue::Float64(greatest)])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> PlanResult<()> {
        let [least, greatest] = states else { return exec_err!("two columns of state are wanted") };
        self.take(min(least.as_primitive::<Float64Type>()), max(greatest.as_primitive::<Float64Type>()));
        Ok(())
    }
}
