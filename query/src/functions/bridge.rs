//! Functions of the engine that work on values of another type than they are given.
//!
//! - `min` and `max` of floats compare whole numbers in the order of the floats. The engine's own take whatever follows a NaN,
//!   so what they gave depended on the order of rows.
//! - `sum` of whole numbers of 64 bits adds up 128 bits, and fails where 64 do not hold what came out, in place of wrapping.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef, BooleanArray};
use arrow_schema::{ArrowError, DataType};
use datafusion::common::ScalarValue;
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};

use crate::floats::{from_order, order_type, to_order};

/// The digits of a sum: all that 128 bits hold.
const DIGITS: u8 = 38;

/// How values get there and back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bridge {
    there: fn(&ArrayRef) -> PlanResult<ArrayRef>,
    back: fn(&ArrayRef) -> PlanResult<ArrayRef>,
    /// Whether what is handed from one half of a grouping to the other is of the type that comes out.
    crosses_states: bool,
}

/// The type that extremes of a type are looked for in, and the way there; `None` where the engine's own will do.
pub(super) fn of_extremes(values: &DataType) -> Option<(DataType, Bridge)> {
    let bridge = Bridge { there: |a| Ok(to_order(a)), back: |a| Ok(from_order(a)), crosses_states: true };
    Some((order_type(values)?, bridge))
}

/// The same of sums.
pub(super) fn of_sums(values: &DataType) -> Option<(DataType, Bridge)> {
    let back: fn(&ArrayRef) -> PlanResult<ArrayRef> = match values {
        DataType::Int64 => signed,
        DataType::UInt64 => unsigned,
        _ => return None,
    };
    Some((DataType::Decimal128(DIGITS, 0), Bridge { there: wide, back, crosses_states: false }))
}

fn wide(array: &ArrayRef) -> PlanResult<ArrayRef> {
    let wide = match array.data_type() {
        DataType::Int64 => array.as_primitive::<Int64Type>().unary::<_, Decimal128Type>(i128::from),
        DataType::UInt64 => array.as_primitive::<UInt64Type>().unary::<_, Decimal128Type>(i128::from),
        _ => return Ok(array.clone()),
    };
    Ok(Arc::new(wide.with_precision_and_scale(DIGITS, 0)?))
}

fn signed(sums: &ArrayRef) -> PlanResult<ArrayRef> {
    let narrow = |sum: i128| i64::try_from(sum).map_err(|_| overflow(sum));
    Ok(Arc::new(sums.as_primitive::<Decimal128Type>().try_unary::<_, Int64Type, _>(narrow)?))
}

fn unsigned(sums: &ArrayRef) -> PlanResult<ArrayRef> {
    let narrow = |sum: i128| u64::try_from(sum).map_err(|_| overflow(sum));
    Ok(Arc::new(sums.as_primitive::<Decimal128Type>().try_unary::<_, UInt64Type, _>(narrow)?))
}

fn overflow(sum: i128) -> ArrowError {
    ArrowError::ComputeError(format!(
        "a sum is {sum}, which no integer of 64 bits holds; take sum(CAST(x AS DECIMAL(38, 0))), which is exact, or sum(CAST(x AS DOUBLE))"
    ))
}

impl Bridge {
    fn all_there(&self, values: &[ArrayRef]) -> PlanResult<Vec<ArrayRef>> {
        values.iter().map(self.there).collect()
    }

    fn one_back(&self, value: ScalarValue) -> PlanResult<ScalarValue> {
        ScalarValue::try_from_array(&(self.back)(&value.to_array()?)?, 0)
    }
}

/// A function over values that went over a bridge.
#[derive(Debug)]
pub(super) struct Bridged<A> {
    pub(super) bridge: Bridge,
    pub(super) inner: A,
}

impl Accumulator for Bridged<Box<dyn Accumulator>> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        self.inner.update_batch(&self.bridge.all_there(values)?)
    }

    fn evaluate(&mut self) -> PlanResult<ScalarValue> {
        self.bridge.one_back(self.inner.evaluate()?)
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn state(&mut self) -> PlanResult<Vec<ScalarValue>> {
        let states = self.inner.state()?;
        match self.bridge.crosses_states {
            true => states.into_iter().map(|state| self.bridge.one_back(state)).collect(),
            false => Ok(states),
        }
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> PlanResult<()> {
        match self.bridge.crosses_states {
            true => self.inner.merge_batch(&self.bridge.all_there(states)?),
            false => self.inner.merge_batch(states),
        }
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        self.inner.retract_batch(&self.bridge.all_there(values)?)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }
}

impl Bridged<Box<dyn GroupsAccumulator>> {
    fn states_back(&self, states: Vec<ArrayRef>) -> PlanResult<Vec<ArrayRef>> {
        match self.bridge.crosses_states {
            true => states.iter().map(self.bridge.back).collect(),
            false => Ok(states),
        }
    }
}

impl GroupsAccumulator for Bridged<Box<dyn GroupsAccumulator>> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> PlanResult<()> {
        self.inner.update_batch(&self.bridge.all_there(values)?, groups, filter, count)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> PlanResult<ArrayRef> {
        (self.bridge.back)(&self.inner.evaluate(emit_to)?)
    }

    fn state(&mut self, emit_to: EmitTo) -> PlanResult<Vec<ArrayRef>> {
        let states = self.inner.state(emit_to)?;
        self.states_back(states)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], count: usize) -> PlanResult<()> {
        match self.bridge.crosses_states {
            true => self.inner.merge_batch(&self.bridge.all_there(states)?, groups, count),
            false => self.inner.merge_batch(states, groups, count),
        }
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> PlanResult<Vec<ArrayRef>> {
        let states = self.inner.convert_to_state(&self.bridge.all_there(values)?, filter)?;
        self.states_back(states)
    }

    fn size(&self) -> usize {
        self.inner.size()
    }
}
