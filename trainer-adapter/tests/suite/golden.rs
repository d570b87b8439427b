//! Gradients against two committed data files: those of TRL's GRPOTrainer over a random Qwen3, and those of a script in 64
//! bits over a random Qwen2.
//!
//! `golden/` holds the scripts, the data and how to make it again.

use forebay_trainer_adapter::{
    LossForm, ModelType, Objective, Policy, PolicyConfig, PolicyTerm, Row, Trainer, TrainerOptions, Unit,
};
use safetensors::SafeTensors;

use super::common::{applied_gradient, gradient_options, relative_error};
use crate::{TestDevice, device};

const TRL: &[u8] = include_bytes!("../../golden/trl.safetensors");
const FLOAT64: &[u8] = include_bytes!("../../golden/float64.safetensors");
/// More cases over the weights and rows of [`FLOAT64`].
const TRUNCATED: &[u8] = include_bytes!("../../golden/truncated.safetensors");
const CONSTANT_LENGTH: LossForm = LossForm::ConstantLength(12);

/// A data file: rows, weights, and a gradient a case.
struct Golden<'a> {
    payload: SafeTensors<'a>,
    config: PolicyConfig,
    prompts: Vec<Vec<u32>>,
    responses: Vec<Vec<u32>>,
    masks: Vec<Vec<bool>>,
    groups: Vec<u32>,
}

impl<'a> Golden<'a> {
    fn new(bytes: &'a [u8], model_type: ModelType) -> Self {
        let payload = SafeTensors::deserialize(bytes).unwrap();
        let cut = |name: &str, lengths: &str| -> Vec<Vec<u32>> {
            let lengths = integers(&payload, lengths);
            let values = integers(&payload, name);
            let rows = values.chunks(values.len() / lengths.len()).zip(&lengths);
            rows.map(|(row, &length)| row[..length as usize].to_vec()).collect()
        };
        let masks = cut("masks", "response_lengths");
        Self {
            prompts: cut("prompts", "prompt_lengths"),
            responses: cut("responses", "response_lengths"),
            masks: masks.iter().map(|mask| mask.iter().map(|&value| value != 0).collect()).collect(),
            groups: integers(&payload, "groups"),
            config: PolicyConfig {
                model_type,
                hidden_size: 32,
                intermediate_size: 44,
                head_dim: 8,
                max_position_embeddings: 64,
                ..PolicyConfig::small(48)
            },
            payload,
        }
    }

    fn trl() -> Golden<'static> {
        Golden::new(TRL, ModelType::Qwen3)
    }

    /// The tensors of `case`, in the order of the parameter layout.
    fn flat(&self, case: &str) -> Vec<f32> {
        self.flat_of(&self.payload, case)
    }

    fn flat_of(&self, payload: &SafeTensors<'_>, case: &str) -> Vec<f32> {
        let layout = forebay_trainer_adapter::policy::ParameterLayout::new(&self.config);
        let tensors = layout.tensors().iter();
        tensors.flat_map(|tensor| floats(payload, &format!("{case}.{}", tensor.name))).collect()
    }

    fn trainer(&self, options: TrainerOptions, objective: Objective) -> Trainer<TestDevice> {
        let policy = Policy::from_values(&device(1), &self.config, &self.flat("weights"), 0).unwrap();
        Trainer::new(&device(1), policy, options).unwrap().with_objective(objective).unwrap()
    }

    fn row(&self, index: usize, advantage: f32) -> Row<'_> {
        Row {
            advantage,
            loss_mask: Some(&self.masks[index]),
            ..Row::new(&self.prompts[index], &self.responses[index])
        }
    }

    /// Rows of each group.
    fn by_group<'r>(&self, rows: &[Row<'r>]) -> Vec<Vec<Row<'r>>> {
        let last = *self.groups.last().unwrap();
        let of =
            |group| rows.iter().zip(&self.groups).filter(move |&(_, &g)| g == group).map(|(row, _)| *row);
        (0..=last).map(|group| of(group).collect()).collect()
    }
}

fn integers(payload: &SafeTensors<'_>, name: &str) -> Vec<u32> {
    payload.tensor(name).unwrap().data().as_chunks().0.iter().copied().map(u32::from_le_bytes).collect()
}

fn floats(payload: &SafeTensors<'_>, name: &str) -> Vec<f32> {
    payload.tensor(name).unwrap().data().as_chunks().0.iter().copied().map(f32::from_le_bytes).collect()
}

fn gradient(trainer: &mut Trainer<TestDevice>, units: &[Vec<Row<'_>>]) -> Vec<f32> {
    for (position, rows) in units.iter().enumerate() {
        trainer.accumulate(&Unit { position, policy: "policy", version: 0, rows }).unwrap();
    }
    applied_gradient(trainer)
}

/// Tensor by tensor, relative to the tensor's largest value; a gradient of nothing but rounding is held to the largest of
/// all.
fn assert_close(golden: &Golden<'_>, case: &str, found: &[f32], tolerance: f64) {
    assert_close_to(golden, case, &golden.flat(case), found, tolerance);
}

fn assert_close_to(golden: &Golden<'_>, case: &str, expected: &[f32], found: &[f32], tolerance: f64) {
    let layout = forebay_trainer_adapter::policy::ParameterLayout::new(&golden.config);
    let largest = |values: &[f32]| values.iter().fold(0.0, |most: f32, value| most.max(value.abs()));
    let of_all = largest(expected);
    for tensor in layout.tensors() {
        let range = tensor.offset..tensor.offset + tensor.length();
        let (found, expected) = (&found[range.clone()], &expected[range]);
        let scale = f64::from(largest(expected).max(1e-2 * of_all));
        let difference = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        let error = f64::from(difference) / scale;
        assert!(error <= tolerance, "{case}, {}: {error:.1e}", tensor.name);
    }
}

/// Rows of TRL's batch with everything that was recorded.
fn trl_rows<'g>(
    golden: &'g Golden<'_>,
    behaviour: &'g [Vec<f32>],
    reference: &'g [Vec<f32>],
) -> Vec<Row<'g>> {
    let advantages = floats(&golden.payload, "advantages");
    let rows = advantages.iter().enumerate().map(|(index, &advantage)| Row {
        behaviour_log_probs: Some(&behaviour[index]),
        reference_log_probs: Some(&reference[index]),
        ..golden.row(index, advantage)
    });
    rows.collect()
}

fn ragged(golden: &Golden<'_>, name: &str) -> Vec<Vec<f32>> {
    ragged_of(golden, &golden.payload, name)
}

fn ragged_of(golden: &Golden<'_>, payload: &SafeTensors<'_>, name: &str) -> Vec<Vec<f32>> {
    let values = floats(payload, name);
    let width = values.len() / golden.responses.len();
    let rows = values.chunks(width).zip(&golden.responses);
    rows.map(|(row, response)| row[..response.len()].to_vec()).collect()
}

/// FX-30, SP-B10: the loss forms of TRL with their clips, its KL term, and its truncated weights (CISPO), to 1e-5; the
/// batch as one unit and as one unit a group.
#[test]
fn gradients_are_those_of_trl() {
    let golden = Golden::trl();
    let (behaviour, reference) =
        (ragged(&golden, "behaviour_log_probs"), ragged(&golden, "reference_log_probs"));
    let rows = trl_rows(&golden, &behaviour, &reference);
    let clipped =
        |low, high| Objective { policy_term: PolicyTerm::Clipped { low, high }, kl_coefficient: 0.0 };
    let cases = [
        ("grpo", LossForm::SampleMean, clipped(0.2, 0.2)),
        ("dapo", LossForm::TokenMean, clipped(0.2, 0.28)),
        ("dr_grpo", CONSTANT_LENGTH, clipped(0.2, 0.28)),
        ("grpo_kl", LossForm::SampleMean, Objective { kl_coefficient: 0.04, ..clipped(0.2, 0.2) }),
        (
            "cispo",
            LossForm::TokenMean,
            Objective { policy_term: PolicyTerm::Truncated { cap: 1.1 }, kl_coefficient: 0.0 },
        ),
    ];
    for (case, form, objective) in cases {
        for units in [vec![rows.clone()], golden.by_group(&rows)] {
            let mut trainer = golden.trainer(gradient_options(form, 0.0), objective);
            assert_close(&golden, case, &gradient(&mut trainer, &units), 1e-5);
        }
    }
}

/// The data decides: every term matters in it, so a loss without it is refused by the comparison above.
#[test]
fn the_golden_batch_tells_the_terms_apart() {
    let golden = Golden::trl();
    let cases = ["grpo", "dapo", "dr_grpo", "grpo_kl", "cispo"];
    for (index, one) in cases.iter().enumerate() {
        for other in &cases[..index] {
            let apart = relative_error(&golden.flat(one), &golden.flat(other));
            assert!(apart > 1e-2, "{one} and {other} differ by {apart:.1e} only");
        }
    }
}

/// FX-30: the plain mean of micro-batch means is another gradient than TRL's token mean over the whole batch.
#[test]
fn the_mean_of_micro_batch_means_fails_the_golden_gradient() {
    let golden = Golden::trl();
    let (behaviour, reference) =
        (ragged(&golden, "behaviour_log_probs"), ragged(&golden, "reference_log_probs"));
    let objective = Objective { policy_term: PolicyTerm::CLIP_HIGHER, kl_coefficient: 0.0 };
    let units = golden.by_group(&trl_rows(&golden, &behaviour, &reference));
    let tokens = |rows: &[Row<'_>]| -> usize {
        rows.iter().map(|row| row.loss_mask.unwrap().iter().filter(|&&trained| trained).count()).sum()
    };
    let mix = |weight: &dyn Fn(&[Row<'_>]) -> f32| {
        let mut sum = vec![0.0; golden.flat("dapo").len()];
        for unit in &units {
            let mut trainer = golden.trainer(gradient_options(LossForm::TokenMean, 0.0), objective);
            let part = gradient(&mut trainer, std::slice::from_ref(unit));
            sum.iter_mut().zip(part).for_each(|(sum, value)| *sum += weight(unit) * value);
        }
        relative_error(&sum, &golden.flat("dapo"))
    };
    let all: usize = units.iter().map(|unit| tokens(unit)).sum();
    let (plain, weighted) = (mix(&|_| 1.0 / 3.0), mix(&|unit| tokens(unit) as f32 / all as f32));
    assert!(plain > 1e-2, "plain averaging was off by {plain:.1e} only");
    assert!(weighted < 1e-5, "token-weighted averaging was off by {weighted:.1e}");
}

/// AJ-B27, AW-13, FX-30: groups of unequal size, one of a single member, one of equal rewards, each with the advantages of
/// its convention, against a script in 64 bits.
#[test]
fn unequal_groups_are_those_of_a_64_bit_script() {
    let golden = Golden::new(FLOAT64, ModelType::Qwen2);
    let forms =
        [("agentjet", LossForm::SampleMean), ("population", LossForm::TokenMean), ("sapo", CONSTANT_LENGTH)];
    for (case, form) in forms {
        let name = format!("advantages.{case}");
        let bytes = golden.payload.tensor(&name).unwrap().data().as_chunks().0;
        let advantages = bytes.iter().copied().map(f64::from_le_bytes).enumerate();
        let rows: Vec<Row<'_>> = advantages.map(|(index, a)| golden.row(index, a as f32)).collect();
        let mut trainer = golden.trainer(gradient_options(form, 0.0), Objective::default());
        let found = gradient(&mut trainer, &golden.by_group(&rows));
        assert_close(&golden, case, &found, 1e-5);
    }
}

/// FX-30: truncated importance weights alone, and with a clip, against a script in 64 bits; over ragged, masked rows whose
/// ratios lie on both sides of the cap and of the bounds. The batch as one unit and as one unit a group.
#[test]
fn truncated_weights_are_those_of_a_64_bit_script() {
    let (golden, more) =
        (Golden::new(FLOAT64, ModelType::Qwen2), SafeTensors::deserialize(TRUNCATED).unwrap());
    let behaviour = ragged_of(&golden, &more, "behaviour_log_probs");
    let proximal = ragged_of(&golden, &more, "proximal_log_probs");
    let advantages = floats(&more, "advantages");
    let row = |index: usize| Row {
        behaviour_log_probs: Some(&behaviour[index]),
        proximal_log_probs: Some(&proximal[index]),
        ..golden.row(index, advantages[index])
    };
    let rows: Vec<Row<'_>> = (0..advantages.len()).map(row).collect();
    let truncated = |cap| PolicyTerm::Truncated { cap };
    let both = |low, high, cap| PolicyTerm::ClippedTruncated { low, high, cap };
    let cases = [
        ("truncated", LossForm::TokenMean, truncated(1.2)),
        ("truncated_rows", LossForm::SampleMean, truncated(0.9)),
        ("both", LossForm::TokenMean, both(0.2, 0.28, 1.1)),
        ("both_length", CONSTANT_LENGTH, both(0.1, 0.3, 0.9)),
    ];
    for (case, form, policy_term) in cases {
        let expected = golden.flat_of(&more, case);
        for units in [vec![rows.clone()], golden.by_group(&rows)] {
            let objective = Objective { policy_term, kl_coefficient: 0.0 };
            let mut trainer = golden.trainer(gradient_options(form, 0.0), objective);
            assert_close_to(&golden, case, &expected, &gradient(&mut trainer, &units), 1e-5);
        }
        // The data decides: with the same bounds on the other ratio, or without its cap, it is another gradient.
        let other = match policy_term {
            PolicyTerm::ClippedTruncated { low, high, .. } => PolicyTerm::Clipped { low, high },
            _ => truncated(1e6),
        };
        let objective = Objective { policy_term: other, kl_coefficient: 0.0 };
        let mut trainer = golden.trainer(gradient_options(form, 0.0), objective);
        let apart = relative_error(&gradient(&mut trainer, std::slice::from_ref(&rows)), &expected);
        assert!(apart > 1e-2, "{case} differs by {apart:.1e} only");
    }
}
