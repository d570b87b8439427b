//! Shared by the tests: a second, naive model in 64 bits, and a few shapes.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod naive;

use forebay_trainer_adapter::{
    LossForm, ModelType, Policy, PolicyConfig, Row as FullRow, Sequence, Trainer, TrainerOptions, Unit,
};

use crate::{TestDevice, device};

/// A small shape with everything that can go wrong in it: 3 layers, 6 heads over 3 key heads, sizes that are no
/// multiple of a vector, queries wider than the hidden size.
pub(crate) fn ragged_config() -> PolicyConfig {
    PolicyConfig {
        model_type: ModelType::Qwen2,
        vocab_size: 37,
        hidden_size: 20,
        intermediate_size: 27,
        num_hidden_layers: 3,
        num_attention_heads: 6,
        num_key_value_heads: 3,
        head_dim: 6,
        rope_theta: 100.0,
        rms_norm_eps: 1e-6,
        max_position_embeddings: 64,
        initializer_range: 0.3,
    }
}

/// That shape in both model types.
pub(crate) fn ragged_configs() -> [PolicyConfig; 2] {
    [ModelType::Qwen2, ModelType::Qwen3].map(|model_type| PolicyConfig { model_type, ..ragged_config() })
}

/// A policy with every parameter away from its starting value, biases and norms too.
pub(crate) fn shaken_policy(config: &PolicyConfig, seed: u64) -> Policy<TestDevice> {
    let device = device(1);
    let fresh = Policy::initialise(&device, config, seed).expect("valid configuration");
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut values = fresh.values(&device);
    for tensor in fresh.layout().tensors().iter().filter(|tensor| tensor.shape.len() == 1) {
        for value in &mut values[tensor.offset..tensor.offset + tensor.length()] {
            *value += 0.4 * (uniform(&mut state) as f32 - 0.5);
        }
    }
    Policy::from_values(&device, config, &values, 0).expect("as many values as before")
}

/// A number in [0, 1) from a splitmix64 state.
pub(crate) fn uniform(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

/// A row that owns its tokens.
#[derive(Debug, Clone, Default)]
pub(crate) struct Row {
    pub(crate) prompt: Vec<u32>,
    pub(crate) response: Vec<u32>,
    pub(crate) advantage: f32,
    /// Empty: every token is trained.
    pub(crate) mask: Vec<bool>,
    pub(crate) behaviour: Vec<f32>,
    pub(crate) proximal: Vec<f32>,
    pub(crate) reference: Vec<f32>,
    /// What finite differences hold constant of each token.
    pub(crate) held: Vec<f64>,
}

impl Row {
    pub(crate) fn sequence(&self) -> Sequence<'_> {
        Sequence { prompt: &self.prompt, response: &self.response, advantage: self.advantage }
    }

    /// With mask and recorded log-probabilities, where there are any.
    pub(crate) fn full(&self) -> FullRow<'_> {
        fn given<T>(values: &[T]) -> Option<&[T]> {
            (!values.is_empty()).then_some(values)
        }
        FullRow {
            loss_mask: given(&self.mask),
            behaviour_log_probs: given(&self.behaviour),
            proximal_log_probs: given(&self.proximal),
            reference_log_probs: given(&self.reference),
            ..self.sequence().into()
        }
    }

    pub(crate) fn is_trained(&self, token: usize) -> bool {
        self.mask.is_empty() || self.mask[token]
    }
}

/// `groups` groups of `size` rows; each group has a prompt of its own.
pub(crate) fn random_groups(seed: u64, groups: usize, size: usize, vocabulary: usize) -> Vec<Vec<Row>> {
    let mut state = seed;
    let mut tokens = |least: usize, most: usize| -> Vec<u32> {
        let length = least + (uniform(&mut state) * (most + 1 - least) as f64) as usize;
        (0..length).map(|_| (uniform(&mut state) * vocabulary as f64) as u32).collect()
    };
    let mut result = Vec::new();
    for group in 0..groups {
        let prompt = tokens(2, 9);
        let rows = (0..size).map(|row| {
            let advantage = ((group * 7 + row * 5) % 11) as f32 / 5.0 - 1.0;
            Row { prompt: prompt.clone(), response: tokens(1, 8), advantage, ..Row::default() }
        });
        result.push(rows.collect());
    }
    result
}

pub(crate) fn sequences(rows: &[Row]) -> Vec<Sequence<'_>> {
    rows.iter().map(Row::sequence).collect()
}

pub(crate) fn full_rows(rows: &[Row]) -> Vec<FullRow<'_>> {
    rows.iter().map(Row::full).collect()
}

/// Gives every row a ragged mask, and recorded log-probabilities around those of a random policy.
pub(crate) fn recorded(groups: &mut [Vec<Row>], seed: u64) {
    let mut state = seed;
    for row in groups.iter_mut().flatten() {
        let tokens = row.response.len();
        row.mask = (0..tokens).map(|_| uniform(&mut state) < 0.7).collect();
        row.mask[(uniform(&mut state) * tokens as f64) as usize] = true;
        let mut log_probs = || (0..tokens).map(|_| -6.0 * uniform(&mut state) as f32 - 0.5).collect();
        (row.behaviour, row.reference) = (log_probs(), log_probs());
    }
}

/// Adds groups to a trainer's cache, one unit each, at the given positions.
pub(crate) fn accumulate(trainer: &mut Trainer<TestDevice>, groups: &[Vec<Row>], positions: &[usize]) {
    let version = trainer.version();
    for &position in positions {
        let rows = full_rows(&groups[position]);
        let unit = Unit { position, policy: "policy", version, rows: &rows };
        trainer.accumulate(&unit).expect("a valid unit");
    }
}

/// Options under which the first moments after an update are the step's gradient, to the bit: no clipping, beta1 of 0.
pub(crate) fn gradient_options(loss_form: LossForm, entropy_coefficient: f32) -> TrainerOptions {
    let mut options =
        TrainerOptions { loss_form, entropy_coefficient, clip_norm: f64::INFINITY, ..Default::default() };
    options.adamw.beta1 = 0.0;
    options
}

/// Applies the cache and reads the step's gradient out of the trainer's state.
pub(crate) fn applied_gradient(trainer: &mut Trainer<TestDevice>) -> Vec<f32> {
    trainer.apply().expect("units were accumulated");
    let state = trainer.state();
    let payload = safetensors::SafeTensors::deserialize(&state).expect("a state is a safetensors payload");
    let moments = payload.tensor("first_moments").expect("a state has its moments");
    moments.data().as_chunks().0.iter().copied().map(f32::from_le_bytes).collect()
}

/// The largest difference, relative to the largest value of `expected`.
pub(crate) fn relative_error(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let scale = expected.iter().fold(0.0, |scale: f32, value| scale.max(value.abs()));
    let difference = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    f64::from(difference) / f64::from(scale)
}
