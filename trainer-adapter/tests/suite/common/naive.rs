//! The naive model: plain loops in 64 bits.

use forebay_trainer_adapter::{LossForm, ModelType, Objective, Policy, PolicyConfig, PolicyTerm};

use super::Row;
use crate::TestDevice;

/// The naive model: one sequence at a time, plain loops, 64 bits, nothing shared with the crate but the layout of the
/// parameters.
pub(crate) struct Naive<'a> {
    pub(crate) config: &'a PolicyConfig,
    pub(crate) values: &'a [f64],
    names: std::collections::HashMap<String, (usize, Vec<usize>)>,
}

impl<'a> Naive<'a> {
    pub(crate) fn new(policy: &'a Policy<TestDevice>, values: &'a [f64]) -> Self {
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
        if self.config.model_type == ModelType::Qwen2 {
            y.iter_mut().zip(self.tensor(&format!("{name}.bias"))).for_each(|(y, b)| *y += b);
        }
        if which == "v" {
            return y;
        }
        let norm = format!("model.layers.{layer}.self_attn.{which}_norm.weight");
        for head in y.chunks_mut(self.config.head_dim) {
            if self.config.model_type == ModelType::Qwen3 {
                head.copy_from_slice(&self.norm(&norm, head));
            }
            rotate(head, position, self.config.rope_theta);
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

    /// Notes what the objective holds constant of each token: its weight under these parameters.
    pub(crate) fn hold(&self, rows: &mut [Row], objective: Objective) {
        for row in rows {
            let all: Vec<u32> = row.prompt.iter().chain(&row.response).copied().collect();
            let log_probs = self.log_probs(&all[..all.len() - 1]);
            let weight = |(index, &token): (usize, &u32)| match objective.policy_term {
                PolicyTerm::Truncated { cap } => {
                    let log_prob = log_probs[row.prompt.len() + index - 1][token as usize];
                    (log_prob - f64::from(row.behaviour[index])).exp().min(f64::from(cap))
                }
                PolicyTerm::ClippedTruncated { cap, .. } => {
                    let difference = f64::from(row.proximal[index]) - f64::from(row.behaviour[index]);
                    difference.exp().min(f64::from(cap))
                }
                PolicyTerm::Score | PolicyTerm::Clipped { .. } => 1.0,
            };
            row.held = row.response.iter().enumerate().map(weight).collect();
        }
    }

    /// The loss of a step over `rows`.
    pub(crate) fn loss(&self, rows: &[Row], form: LossForm, entropy: f64, objective: Objective) -> f64 {
        let (mut numerator, mut all_tokens) = (0.0, 0.0);
        for row in rows {
            let all: Vec<u32> = row.prompt.iter().chain(&row.response).copied().collect();
            let log_probs = self.log_probs(&all[..all.len() - 1]);
            let (mut sum, mut tokens) = (0.0, 0.0);
            for (index, &token) in row.response.iter().enumerate().filter(|&(index, _)| row.is_trained(index))
            {
                let distribution = &log_probs[row.prompt.len() + index - 1];
                let of_entropy: f64 = distribution.iter().map(|l| -l.exp() * l).sum();
                sum += token_loss(row, index, distribution[token as usize], objective) - entropy * of_entropy;
                tokens += 1.0;
            }
            numerator += if form == LossForm::SampleMean { sum / tokens } else { sum };
            all_tokens += tokens;
        }
        let count = rows.len() as f64;
        match form {
            LossForm::TokenMean => numerator / all_tokens,
            LossForm::SampleMean => numerator / count,
            LossForm::ConstantLength(length) => numerator / (count * f64::from(length)),
        }
    }
}

/// The formulas as the papers have them, truncated weights as they were [held](Naive::hold).
fn token_loss(row: &Row, index: usize, log_prob: f64, objective: Objective) -> f64 {
    let advantage = f64::from(row.advantage);
    let clip = |sampled: f32, low: f32, high: f32| {
        let ratio = (log_prob - f64::from(sampled)).exp();
        let clipped = ratio.clamp(1.0 - f64::from(low), 1.0 + f64::from(high));
        -(ratio * advantage).min(clipped * advantage)
    };
    let policy = match objective.policy_term {
        PolicyTerm::Score => -advantage * log_prob,
        PolicyTerm::Clipped { low, high } => clip(row.behaviour[index], low, high),
        PolicyTerm::Truncated { .. } => -row.held[index] * advantage * log_prob,
        PolicyTerm::ClippedTruncated { low, high, .. } => {
            row.held[index] * clip(row.proximal[index], low, high)
        }
    };
    let coefficient = f64::from(objective.kl_coefficient);
    if coefficient == 0.0 {
        return policy;
    }
    let difference = f64::from(row.reference[index]) - log_prob;
    policy + coefficient * (difference.exp() - difference - 1.0)
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
