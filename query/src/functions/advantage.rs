//! `advantage(reward [, estimator]) OVER (PARTITION BY policy_version, group_key)`: what a reward is worth beside those of
//! its group. A window function: its partition is the group.
//!
//! | estimator | formula | source |
//! | --- | --- | --- |
//! | `grpo` (default) | `(r - mean) / (std + 1e-6)`, population | [`forebay_pipeline::advantage::Grpo`] |
//! | `grpo_sample` | the same with the sample's deviation | as TRL and verl have it |
//! | `dr_grpo` | `r - mean` | Liu et al., "Understanding R1-Zero-Like Training", 2025 |
//! | `rloo` | `r -` the mean of the others | Ahmadian et al., "Back to Basics", 2024 |
//!
//! NULL rewards do not count and have NULL advantages. A reward that is not finite is an error, as it is in training.

use std::sync::Arc;

use arrow::compute::cast;
use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef, Float64Array};
use arrow_schema::{DataType, Field, FieldRef};
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::{
    PartitionEvaluator, Signature, TypeSignature, Volatility, WindowUDF, WindowUDFImpl,
};
use datafusion::physical_expr::expressions::Literal;
use forebay_pipeline::advantage::{Grpo, Scale};

pub(super) fn advantage() -> WindowUDF {
    let signature = TypeSignature::OneOf(vec![TypeSignature::Any(1), TypeSignature::Any(2)]);
    WindowUDF::new_from_impl(Advantage { signature: Signature::new(signature, Volatility::Immutable) })
}

#[derive(Clone, Copy, Debug)]
enum Estimator {
    Grpo(Grpo),
    Rloo,
}

impl Estimator {
    fn named(name: &str) -> PlanResult<Self> {
        let grpo = |scale| Ok(Estimator::Grpo(Grpo { scale, ..Grpo::default() }));
        match name {
            "grpo" => grpo(Scale::StandardDeviation { ddof: 0 }),
            "grpo_sample" => grpo(Scale::StandardDeviation { ddof: 1 }),
            "dr_grpo" => grpo(Scale::None),
            "rloo" => Ok(Estimator::Rloo),
            other => plan_err!(
                "{other:?} is not an estimator of advantages; use 'grpo', 'grpo_sample', 'dr_grpo' or 'rloo'"
            ),
        }
    }

    fn advantages(self, rewards: &[f64]) -> PlanResult<Vec<f64>> {
        let centred = Grpo { scale: Scale::None, ..Grpo::default() };
        let (grpo, factor) = match self {
            Estimator::Grpo(grpo) => (grpo, 1.0),
            // r - (sum - r) / (n - 1) = (r - mean) * n / (n - 1)
            Estimator::Rloo => {
                let count = rewards.len() as f64;
                (centred, if rewards.len() > 1 { count / (count - 1.0) } else { 0.0 })
            }
        };
        match grpo.advantages(rewards) {
            Ok(advantages) => Ok(advantages.into_iter().map(|advantage| advantage * factor).collect()),
            Err(error) => exec_err!("{error}"),
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Advantage {
    signature: Signature,
}

impl WindowUDFImpl for Advantage {
    fn name(&self) -> &'static str {
        "advantage"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn partition_evaluator(
        &self,
        arguments: PartitionEvaluatorArgs<'_>,
    ) -> PlanResult<Box<dyn PartitionEvaluator>> {
        let Some(name) = arguments.input_exprs().get(1) else {
            return Ok(Box::new(Group(Estimator::named("grpo")?)));
        };
        let name = name.downcast_ref::<Literal>().and_then(|literal| literal.value().try_as_str().flatten());
        let Some(name) = name else { return plan_err!("the estimator of advantage is a text") };
        Ok(Box::new(Group(Estimator::named(name)?)))
    }

    fn field(&self, arguments: WindowUDFFieldArgs<'_>) -> PlanResult<FieldRef> {
        match arguments.get_input_field(0) {
            Some(reward) if reward.data_type().is_numeric() || reward.data_type().is_null() => {
                Ok(Arc::new(Field::new(arguments.name(), DataType::Float64, true)))
            }
            _ => plan_err!("advantage takes a number, such as a reward"),
        }
    }
}

/// One group: all its rewards are seen together.
#[derive(Debug)]
struct Group(Estimator);

impl PartitionEvaluator for Group {
    fn evaluate_all(&mut self, values: &[ArrayRef], _rows: usize) -> PlanResult<ArrayRef> {
        let Some(rewards) = values.first() else { return exec_err!("advantage takes a reward") };
        let rewards = cast(rewards, &DataType::Float64)?;
        let rewards = rewards.as_primitive::<Float64Type>();
        let there: Vec<f64> = rewards.iter().flatten().collect();
        let mut advantages = self.0.advantages(&there)?.into_iter();
        let each = (0..rewards.len()).map(|row| if rewards.is_null(row) { None } else { advantages.next() });
        Ok(Arc::new(each.collect::<Float64Array>()))
    }
}
