//! `kl(logprobs, reference [, estimator])`: how far a response's log-probabilities are from a reference's, per token.
//!
//! Both are lists of `log p(token)` of the same tokens, the first under the policy that made them. The mean over the tokens
//! of one of the estimators of KL(policy ‖ reference) by John Schulman, "Approximating KL Divergence", 2020: with
//! `d = reference - logprobs`, `k1 = -d`, `k2 = d² / 2`, `k3 = e^d - 1 - d` (the default: unbiased and never negative).
//! NULL where a list or the estimator is NULL; an error where they differ in length, for then they are not of the same tokens, and where an
//! element is NULL.

use std::sync::Arc;

use arrow::compute::cast;
use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef, Float64Array};
use arrow_schema::{DataType, Field};
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};

use super::{columns, names};

pub(super) fn kl() -> ScalarUDF {
    let signature = TypeSignature::OneOf(vec![TypeSignature::Any(2), TypeSignature::Any(3)]);
    ScalarUDF::new_from_impl(Kl { signature: Signature::new(signature, Volatility::Immutable) })
}

/// One of Schulman's estimators, of one token.
fn estimator(name: &str) -> PlanResult<fn(f64) -> f64> {
    match name {
        "k1" => Ok(|d| -d),
        "k2" => Ok(|d| d * d / 2.0),
        "k3" => Ok(|d| d.exp_m1() - d),
        other => exec_err!("{other:?} is not an estimator of kl; use 'k1', 'k2' or 'k3'"),
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Kl {
    signature: Signature,
}

impl ScalarUDFImpl for Kl {
    fn name(&self) -> &'static str {
        "kl"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        let numbers = |list: &DataType| match list {
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
                item.data_type().is_numeric()
            }
            other => other.is_null(),
        };
        match arguments.iter().take(2).find(|list| !numbers(list)) {
            Some(other) => plan_err!("kl compares two lists of log-probabilities, and {other} is none"),
            None => Ok(DataType::Float64),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let rows = arguments.number_rows;
        let arrays = columns(arguments)?;
        let [logprobs, reference, estimators @ ..] = arrays.as_slice() else {
            return exec_err!("kl takes two lists");
        };
        let estimators = names(estimators.first())?;
        let (logprobs, reference) = (lists(logprobs)?, lists(reference)?);
        let (logprobs, reference) = (logprobs.as_list::<i32>(), reference.as_list::<i32>());
        let divergence = |row: usize| -> PlanResult<Option<f64>> {
            let unnamed = estimators.as_ref().is_some_and(|names| names.is_null(row));
            if logprobs.is_null(row) || reference.is_null(row) || unnamed {
                return Ok(None);
            }
            let estimate = estimator(estimators.as_ref().map_or("k3", |names| names.value(row)))?;
            mean(&logprobs.value(row), &reference.value(row), estimate)
        };
        let divergences = (0..rows).map(divergence).collect::<PlanResult<Float64Array>>()?;
        Ok(ColumnarValue::Array(Arc::new(divergences)))
    }
}

/// Whatever lists of numbers as lists of float64.
fn lists(array: &ArrayRef) -> PlanResult<ArrayRef> {
    Ok(cast(array, &DataType::List(Arc::new(Field::new_list_field(DataType::Float64, true))))?)
}

/// The mean over the tokens; of no token there is none.
fn mean(logprobs: &ArrayRef, reference: &ArrayRef, estimate: fn(f64) -> f64) -> PlanResult<Option<f64>> {
    let (tokens, others) = (logprobs.len(), reference.len());
    if tokens != others {
        return exec_err!("kl compares the same tokens, and one list has {tokens}, the other {others}");
    }
    if logprobs.null_count() + reference.null_count() > 0 {
        return exec_err!("kl compares log-probabilities, and a list holds a NULL in place of one");
    }
    let (logprobs, reference) =
        (logprobs.as_primitive::<Float64Type>().values(), reference.as_primitive::<Float64Type>().values());
    let sum: f64 = logprobs.iter().zip(reference).map(|(own, other)| estimate(other - own)).sum();
    Ok((tokens > 0).then(|| sum / tokens as f64))
}
