//! `min`, `max` and `sum` of the engine, over a [bridge](super::bridge).

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::Result as PlanResult;
use datafusion::functions_aggregate::{min_max, sum};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, SetMonotonicity, Signature,
    StatisticsArgs,
};

use super::bridge::{Bridge, Bridged, of_extremes, of_sums};

/// All of them.
pub(super) fn all() -> [AggregateUDF; 3] {
    let over = |inner, kind| AggregateUDF::new_from_impl(Bridging { inner, kind });
    [
        over(min_max::min_udaf(), Kind::Extreme),
        over(min_max::max_udaf(), Kind::Extreme),
        over(sum::sum_udaf(), Kind::Sum),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Extreme,
    Sum,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Bridging {
    inner: Arc<AggregateUDF>,
    kind: Kind,
}

impl Bridging {
    fn engines(&self) -> &dyn AggregateUDFImpl {
        self.inner.inner().as_ref()
    }

    /// The field that the engine's own is to give, and the bridge; `None` where there is none.
    fn bridge(&self, given: &Field) -> Option<(FieldRef, Bridge)> {
        let (data_type, bridge) = match self.kind {
            Kind::Extreme => of_extremes(given.data_type()),
            Kind::Sum => of_sums(given.data_type()),
        }?;
        Some((Arc::new(given.clone().with_data_type(data_type)), bridge))
    }
}

impl AggregateUDFImpl for Bridging {
    fn name(&self) -> &str {
        self.engines().name()
    }

    fn signature(&self) -> &Signature {
        self.engines().signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        self.engines().return_type(arguments)
    }

    fn coerce_types(&self, arguments: &[DataType]) -> PlanResult<Vec<DataType>> {
        self.engines().coerce_types(arguments)
    }

    fn accumulator(&self, arguments: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        match self.bridge(&arguments.return_field) {
            Some((return_field, bridge)) => {
                let inner = self.engines().accumulator(AccumulatorArgs { return_field, ..arguments })?;
                Ok(Box::new(Bridged { bridge, inner }))
            }
            None => self.engines().accumulator(arguments),
        }
    }

    fn state_fields(&self, arguments: StateFieldsArgs<'_>) -> PlanResult<Vec<FieldRef>> {
        match self.bridge(&arguments.return_field).filter(|_| self.kind == Kind::Sum) {
            Some((return_field, _)) => {
                self.engines().state_fields(StateFieldsArgs { return_field, ..arguments })
            }
            None => self.engines().state_fields(arguments),
        }
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs<'_>) -> bool {
        self.engines().groups_accumulator_supported(arguments)
    }

    fn create_groups_accumulator(
        &self,
        arguments: AccumulatorArgs<'_>,
    ) -> PlanResult<Box<dyn GroupsAccumulator>> {
        match self.bridge(&arguments.return_field) {
            Some((return_field, bridge)) => {
                let arguments = AccumulatorArgs { return_field, ..arguments };
                let inner = self.engines().create_groups_accumulator(arguments)?;
                Ok(Box::new(Bridged { bridge, inner }))
            }
            None => self.engines().create_groups_accumulator(arguments),
        }
    }

    fn create_sliding_accumulator(&self, arguments: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        // The engine has sums of what is distinct in a frame for 64 bits alone.
        let bridge = self.bridge(&arguments.return_field).filter(|_| !arguments.is_distinct);
        match bridge {
            Some((return_field, bridge)) => {
                let arguments = AccumulatorArgs { return_field, ..arguments };
                let inner = self.engines().create_sliding_accumulator(arguments)?;
                Ok(Box::new(Bridged { bridge, inner }))
            }
            None => self.engines().create_sliding_accumulator(arguments),
        }
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.engines().order_sensitivity()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.engines().reverse_expr()
    }

    fn is_descending(&self) -> Option<bool> {
        self.engines().is_descending()
    }

    fn value_from_stats(&self, arguments: &StatisticsArgs<'_>) -> Option<ScalarValue> {
        self.engines().value_from_stats(arguments)
    }

    fn default_value(&self, data_type: &DataType) -> PlanResult<ScalarValue> {
        self.engines().default_value(data_type)
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.engines().set_monotonicity(data_type)
    }
}
