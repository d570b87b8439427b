//! The hand-written backward pass against finite differences of a second model in 64 bits.

use super::common::{
    Row, accumulate, applied_gradient, gradient_options, naive::Naive, ragged_configs, random_groups,
    recorded, shaken_policy, uniform,
};
use crate::device;
use forebay_trainer_adapter::{LossForm, Objective, PolicyConfig, PolicyTerm, Trainer};

/// The gradient of the step over `groups`, as the trainer sees it.
fn trained_gradient(
    config: &PolicyConfig,
    groups: &[Vec<Row>],
    form: LossForm,
    entropy: f32,
    objective: Objective,
) -> Vec<f32> {
    let policy = shaken_policy(config, 3);
    let trainer = Trainer::new(&device(1), policy, gradient_options(form, entropy)).unwrap();
    let mut trainer = trainer.with_objective(objective).unwrap();
    accumulate(&mut trainer, groups, &(0..groups.len()).collect::<Vec<_>>());
    applied_gradient(&mut trainer)
}

/// Checks both model types.
fn check(groups: &[Vec<Row>], form: LossForm, entropy: f32, objective: Objective) {
    for config in ragged_configs() {
        check_one(&config, groups, form, entropy, objective);
    }
}

/// Checks directional derivatives: along a random direction within each tensor.
fn check_one(config: &PolicyConfig, groups: &[Vec<Row>], form: LossForm, entropy: f32, objective: Objective) {
    let policy = shaken_policy(config, 3);
    let gradient = trained_gradient(config, groups, form, entropy, objective);
    let mut rows = groups.concat();
    let values: Vec<f64> = policy.values(&device(1)).iter().map(|&value| f64::from(value)).collect();
    Naive::new(&policy, &values).hold(&mut rows, objective);
    let loss = |values: &[f64]| Naive::new(&policy, values).loss(&rows, form, f64::from(entropy), objective);
    let mut state = 17;
    for tensor in policy.layout().tensors() {
        let range = tensor.offset..tensor.offset + tensor.length();
        let direction: Vec<f64> = range.clone().map(|_| uniform(&mut state) - 0.5).collect();
        let step = 1e-5;
        let moved = |sign: f64| {
            let mut values = values.clone();
            values[range.clone()].iter_mut().zip(&direction).for_each(|(value, d)| *value += sign * step * d);
            loss(&values)
        };
        let numeric = (moved(1.0) - moved(-1.0)) / (2.0 * step);
        let products = gradient[range.clone()].iter().zip(&direction).map(|(&g, d)| f64::from(g) * d);
        let analytic: f64 = products.clone().sum();
        let scale = products.map(f64::abs).sum::<f64>().max(1e-4);
        let error = (numeric - analytic).abs() / scale;
        assert!(
            error < 1e-5,
            "{} {form:?} {objective:?}: {analytic} against {numeric}, relative {error:.1e}",
            tensor.name
        );
    }
}

#[test]
fn gradients_are_those_of_finite_differences() {
    let groups = random_groups(5, 3, 4, 37);
    for form in [LossForm::TokenMean, LossForm::SampleMean, LossForm::ConstantLength(6)] {
        check(&groups, form, 0.0, Objective::default());
        check(&groups, form, 0.03, Objective::default());
    }
}

/// FX-30: with masks, clip and KL term too. The shape has three key heads for six query heads, and a response's rotary
/// positions begin where its prompt ends.
#[test]
fn gradients_of_every_term_are_those_of_finite_differences() {
    let mut groups = random_groups(15, 3, 4, 37);
    recorded(&mut groups, 16);
    for form in [LossForm::TokenMean, LossForm::SampleMean, LossForm::ConstantLength(6)] {
        for policy_term in [PolicyTerm::Score, PolicyTerm::CLIP_HIGHER] {
            check(&groups, form, 0.01, Objective { policy_term, kl_coefficient: 0.04 });
        }
    }
}

/// A unit may hold several prompts, a prompt once or several times, responses of one token and none.
#[test]
fn rows_need_not_share_a_prompt() {
    let mut mixed: Vec<Row> = random_groups(6, 3, 2, 37).concat();
    mixed.swap(1, 4);
    mixed[0].response.truncate(1);
    check(&[mixed], LossForm::TokenMean, 0.01, Objective::default());
}

/// FX-30: truncated weights, alone and with a clip, are held constant. Ratios lie on both sides of the cap and of both bounds.
#[test]
fn gradients_of_truncated_weights_are_those_of_finite_differences() {
    let mut groups = random_groups(25, 3, 4, 37);
    recorded(&mut groups, 26);
    let mut state = 27;
    for row in groups.iter_mut().flatten() {
        row.proximal = row.behaviour.iter().map(|b| b + 1.2 * (uniform(&mut state) as f32 - 0.5)).collect();
    }
    let truncated = PolicyTerm::Truncated { cap: 0.8 };
    let both = PolicyTerm::ClippedTruncated { low: 0.2, high: 0.28, cap: 1.1 };
    for form in [LossForm::TokenMean, LossForm::SampleMean, LossForm::ConstantLength(6)] {
        for policy_term in [truncated, both] {
            check(&groups, form, 0.01, Objective { policy_term, kl_coefficient: 0.04 });
        }
    }
}
