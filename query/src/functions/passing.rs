//! `pass_at_k(correct, k)` and `mean_at_k(score, k)`: how a policy does when it may try `k` times. Aggregates over the
//! samples of one input.
//!
//! - `pass_at_k`: the probability that at least one of `k` samples, drawn without replacement, is correct:
//!   `1 - C(n - c, k) / C(n, k)` of `n` samples of which `c` are correct (Chen et al., "Evaluating Large Language Models
//!   Trained on Code", 2021, the unbiased estimator).
//! - `mean_at_k`: the mean score of `k` samples, drawn likewise: the mean of all.
//!
//! NULL samples do not count. With fewer than `k` samples the answer is NULL: nothing is known of `k` tries.

use std::sync::Arc;

use arrow::compute::cast;
use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, UInt64Type};
use arrow_schema::{DataType, Field, FieldRef};
use datafusion::common::{ScalarValue, exec_err, plan_err};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Signature, TypeSignature, Volatility,
};

use super::sliding::Sliding;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Of {
    Pass,
    Mean,
}

pub(super) fn pass_at_k() -> AggregateUDF {
    AggregateUDF::new_from_impl(AtK::new(Of::Pass))
}

pub(super) fn mean_at_k() -> AggregateUDF {
    AggregateUDF::new_from_impl(AtK::new(Of::Mean))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct AtK {
    of: Of,
    signature: Signature,
}

impl AtK {
    fn new(of: Of) -> Self {
        AtK { of, signature: Signature::new(TypeSignature::Any(2), Volatility::Immutable) }
    }

    /// Before the first.
    fn tries(&self, arguments: &AccumulatorArgs<'_>) -> PlanResult<Tries> {
        if arguments.is_distinct {
            let name = self.name();
            return plan_err!(
                "{name} counts every sample, equal ones too; leave DISTINCT out, or take distinct rows in a subquery"
            );
        }
        Ok(Tries { of: self.of, count: 0, sum: 0.0, k: None })
    }
}

impl AggregateUDFImpl for AtK {
    fn name(&self) -> &'static str {
        match self.of {
            Of::Pass => "pass_at_k",
            Of::Mean => "mean_at_k",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        let name = self.name();
        match (self.of, arguments) {
            (_, [_, k]) if !k.is_integer() => plan_err!("the k of {name} is a whole number, not {k}"),
            (Of::Pass, [DataType::Boolean | DataType::Null, _]) => Ok(DataType::Float64),
            (Of::Pass, [other, _]) => {
                plan_err!(
                    "pass_at_k asks whether a sample is correct (a boolean, such as reward > 0), not {other}"
                )
            }
            (Of::Mean, [score, _]) if score.is_numeric() || score.is_null() => Ok(DataType::Float64),
            _ => plan_err!("mean_at_k takes a number and k"),
        }
    }

    fn accumulator(&self, arguments: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        Ok(Box::new(self.tries(&arguments)?))
    }

    fn create_sliding_accumulator(&self, arguments: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        Ok(Box::new(Sliding::new(self.tries(&arguments)?)))
    }

    fn state_fields(&self, _arguments: StateFieldsArgs<'_>) -> PlanResult<Vec<FieldRef>> {
        let field = |name, data_type| Arc::new(Field::new(name, data_type, true));
        Ok(vec![
            field("count", DataType::UInt64),
            field("sum", DataType::Float64),
            field("k", DataType::Int64),
        ])
    }
}

/// Samples so far: how many, and how many of them are correct, or the sum of their scores.
#[derive(Clone, Debug)]
struct Tries {
    of: Of,
    count: u64,
    sum: f64,
    k: Option<i64>,
}

impl Tries {
    /// `k` is the same for all samples that are taken together.
    fn see_k(&mut self, found: Option<i64>) -> PlanResult<()> {
        match (self.k, found) {
            (_, Some(k)) if k < 1 => exec_err!("k is at least 1, not {k}"),
            (Some(known), Some(k)) if known != k => {
                exec_err!("k is one number for a group, not both {known} and {k}")
            }
            (None, k) => {
                self.k = k;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn pass(&self, k: u64) -> f64 {
        let wrong = self.count - self.sum as u64;
        if wrong < k {
            return 1.0;
        }
        // 1 - C(wrong, k) / C(count, k), as a product: the numbers stay small.
        let all_wrong = (wrong + 1..=self.count).map(|i| 1.0 - k as f64 / i as f64).product::<f64>();
        1.0 - all_wrong
    }
}

impl Accumulator for Tries {
    fn update_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        let [samples, k] = values else { return exec_err!("two columns are wanted") };
        let k = cast(k, &DataType::Int64)?;
        k.as_primitive::<Int64Type>().iter().try_for_each(|k| self.see_k(k))?;
        let scores = cast(samples, &DataType::Float64)?;
        for score in scores.as_primitive::<Float64Type>().iter().flatten() {
            self.count += 1;
            self.sum += score;
        }
        Ok(())
    }

    fn evaluate(&mut self) -> PlanResult<ScalarValue> {
        let k = self.k.map(|k| k as u64).filter(|k| *k <= self.count);
        Ok(ScalarValue::Float64(k.map(|k| match self.of {
            Of::Pass => self.pass(k),
            Of::Mean => self.sum / self.count as f64,
        })))
    }

    fn size(&self) -> usize {
        size_of::<Self>()
    }

    fn state(&mut self) -> PlanResult<Vec<ScalarValue>> {
        Ok(vec![
            ScalarValue::UInt64(Some(self.count)),
            ScalarValue::Float64(Some(self.sum)),
            ScalarValue::Int64(self.k),
        ])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> PlanResult<()> {
        let [counts, sums, ks] = states else { return exec_err!("three columns of state are wanted") };
        self.count += counts.as_primitive::<UInt64Type>().iter().flatten().sum::<u64>();
        self.sum += sums.as_primitive::<Float64Type>().iter().flatten().sum::<f64>();
        ks.as_primitive::<Int64Type>().iter().try_for_each(|k| self.see_k(k))
    }
}
