//! Shared by the tests: a second, naive model in 64 bits, and a few shapes.
#![allow(dead_code, reason = "each test binary uses its own part")]

use forebay_trainer_adapter::{CpuDevice, Trainer, TrainerOptions};
use forebay_trainer_adapter::{LossForm, Policy, PolicyConfig, Sequence, Unit};

/// A small shape with everything that can go wrong in it: 3 layers, 6 heads over 3 key heads, sizes that are no
/// multiple of a vector, queries wider than the hidden size.
pub(crate) fn ragged_config() -> PolicyConfig {
    PolicyConfig {
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

/// A policy with every parameter away from its starting value, biases and norms too.
pub(crate) fn shaken_policy(config: &PolicyConfig, seed: u64) -> Policy<CpuDevice> {
    let device = CpuDevice::inline();
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
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) prompt: Vec<u32>,
    pub(crate) response: Vec<u32>,
    pub(crate) advantage: f32,
}

impl Row {
    pub(crate) fn sequence(&self) -> Sequence<'_> {
        Sequence { prompt: &self.prompt, response: &self.response, advantage: self.advantage }
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
            Row { prompt: prompt.clone(), response: tokens(1, 8), advantage }
        });
        result.push(rows.collect());
    }
    result
}

pub(crate) fn sequences(rows: &[Row]) -> Vec<Sequence<'_>> {
    rows.iter().map(Row::sequence).collect()
}

/// Adds groups to a trainer's cache, one unit each, at the given positions.
pub(crate) fn accumulate(trainer: &mut Trainer<CpuDevice>, groups: &[Vec<Row>], positions: &[usize]) {
    let version = trainer.version();
    for &position in positions {
        let rows = sequences(&groups[position]);
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
pub(crate) fn applied_gradient(trainer: &mut Trainer<CpuDevice>) -> Vec<f32> {
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

/// The naive model: one sequence at a time, plain loops, 64 bits, nothing shared with the crate but the layout of the
/// parameters.
pub(crate) struct Naive<'a> {
    pub(crate) config: &'a PolicyConfig,
    pub(crate) values: &'a [f64],
    names: std::collections::HashMap<String, (usize, Vec<usize>)>,
}

impl<'a> Naive<'a> {
    pub(crate) fn new(policy: &'a Policy<CpuDevice>, values: &'a [f64]) -> Self {
        let tensors = policy.layout().tensors().iter();
        let names =
            tensors.map(|tensor| (tensor.name.clone(), (tensor.offset, tensor.shape.clone()))).collect();
        Self { config: policy.config(), values, names }
    }

    fn tensor(&self, name: &str) -> &[f64] {
        let (offset, shape) = &self.names[name];
        &self.values[*offset..offset + shape.iter().product::<usize>()]
    }

    fn linear(&self, name: &str, x: &[f64]) -> Vec<f64> {
        self.tensor(name).chunks(x.len()).map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum()).collect()
    }

    fn norm(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
        let scale = 1.0 / (mean + f64::from(self.config.rms_norm_eps)).sqrt();
        x.iter().zip(self.tensor(name)).map(|(x, w)| x * scale * w).collect()
    }

    fn project(&self, layer: usize, which: &str, x: &[f64], position: usize) -> Vec<f64> {
        let name = format!("model.layers.{layer}.self_attn.{which}_proj");
        let mut y = self.linear(&format!("{name}.weight"), x);
        y.iter_mut().zip(self.tensor(&format!("{name}.bias"))).for_each(|(y, b)| *y += b);
        if which != "v" {
            y.chunks_mut(self.config.head_dim)
                .for_each(|head| rotate(head, position, self.config.rope_theta));
        }
        y
    }

    /// Log-probabilities over the vocabulary after each token.
    pub(crate) fn log_probs(&self, tokens: &[u32]) -> Vec<Vec<f64>> {
        let c = self.config;
        let embedding = self.tensor("model.embed_tokens.weight");
        let row = |token: &u32| embedding[*token as usize * c.hidden_size..][..c.hidden_size].to_vec();
        let mut stream: Vec<Vec<f64>> = tokens.iter().map(row).collect();
        for layer in 0..c.num_hidden_layers {
            let name = |part: &str| format!("model.layers.{layer}.{part}.weight");
            let normed: Vec<_> = stream.iter().map(|x| self.norm(&name("input_layernorm"), x)).collect();
            let project = |which| -> Vec<Vec<f64>> {
                normed.iter().enumerate().map(|(at, x)| self.project(layer, which, x, at)).collect()
            };
            let (q, k, v) = (project("q"), project("k"), project("v"));
            for (at, x) in stream.iter_mut().enumerate() {
                let attended = self.attend(&q[at], &k[..=at], &v[..=at]);
                let y = self.linear(&name("self_attn.o_proj"), &attended);
                x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
                let z = self.norm(&name("post_attention_layernorm"), x);
                let gate = self.linear(&name("mlp.gate_proj"), &z);
                let up = self.linear(&name("mlp.up_proj"), &z);
                let inner: Vec<f64> = gate.iter().zip(up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
                let y = self.linear(&name("mlp.down_proj"), &inner);
                x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
            }
        }
        let logits = stream
            .iter()
            .map(|x| self.linear("model.embed_tokens.weight", &self.norm("model.norm.weight", x)));
        logits.map(|logits| log_softmax(&logits)).collect()
    }

    fn attend(&self, q: &[f64], k: &[Vec<f64>], v: &[Vec<f64>]) -> Vec<f64> {
        let (d, share) =
            (self.config.head_dim, self.config.num_attention_heads / self.config.num_key_value_heads);
        let mut output = Vec::new();
        for (head, q) in q.chunks(d).enumerate() {
            let part = (head / share) * d..(head / share + 1) * d;
            let score = |k: &Vec<f64>| {
                q.iter().zip(&k[part.clone()]).map(|(q, k)| q * k).sum::<f64>() / (d as f64).sqrt()
            };
            let weights = log_softmax(&k.iter().map(score).collect::<Vec<_>>());
            for column in part.clone() {
                output.push(weights.iter().zip(v).map(|(w, v)| w.exp() * v[column]).sum());
            }
        }
        output
    }

    /// The loss of a step over `rows`.
    pub(crate) fn loss(&self, rows: &[Row], form: LossForm, entropy_coefficient: f64) -> f64 {
        let (mut numerator, mut tokens) = (0.0, 0);
        for row in rows {
            let all: Vec<u32> = row.prompt.iter().chain(&row.response).copied().collect();
            let log_probs = self.log_probs(&all[..all.len() - 1]);
            let mut sum = 0.0;
            for (index, &token) in row.response.iter().enumerate() {
                let distribution = &log_probs[row.prompt.len() + index - 1];
                let entropy: f64 = distribution.iter().map(|l| -l.exp() * l).sum();
                sum -=
                    f64::from(row.advantage) * distribution[token as usize] + entropy_coefficient * entropy;
            }
            numerator += if form == LossForm::SampleMean { sum / row.response.len() as f64 } else { sum };
            tokens += row.response.len() as u64;
        }
        numerator / form.denominator(rows.len() as u64, tokens)
    }
}

fn rotate(head: &mut [f64], position: usize, theta: f64) {
    let half = head.len() / 2;
    for j in 0..half {
        let angle = position as f64 * theta.powf(-2.0 * j as f64 / head.len() as f64);
        let (x, y) = (head[j], head[j + half]);
        head[j] = x * angle.cos() - y * angle.sin();
        head[j + half] = y * angle.cos() + x * angle.sin();
    }
}

fn log_softmax(z: &[f64]) -> Vec<f64> {
    let max = z.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let log_sum = max + z.iter().map(|z| (z - max).exp()).sum::<f64>().ln();
    z.iter().map(|z| z - log_sum).collect()
}
