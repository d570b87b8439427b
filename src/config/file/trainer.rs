//! How a policy is trained, as a user writes it.

use serde::{Deserialize, Serialize};

use super::Objective;

/// How a policy is trained.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Trainer {
    /// Threads of one trainer. Changes nothing but the time that a run takes. Default: 1.
    pub threads: usize,
    /// The greatest learning rate: reached after `ramp_steps`, then falling in a line. Default: 3e-4.
    pub learning_rate: f64,
    /// Steps over which the learning rate rises. Default: 10.
    pub ramp_steps: u64,
    /// Share of the learning rate that is left at the last step. Default: 0.1.
    pub learning_rate_end: f64,
    /// Default: 0.9.
    pub beta1: f64,
    /// Default: 0.99.
    pub beta2: f64,
    /// Default: 1e-8.
    pub epsilon: f64,
    /// Default: 0.
    pub weight_decay: f64,
    /// Greatest norm of a step's gradient. Default: 1.
    pub clip_norm: f64,
    /// What the entropy at each token is rewarded with. Default: 0.01.
    pub entropy_coefficient: f32,
    /// Trains members of groups before their groups are complete. Default: false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub early: bool,
    /// Memory of the sums that this takes, for each agent, in bytes. Default: 1 GiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub early_budget_bytes: Option<u64>,
    /// What gradients are computed on: `cpu`, `stand-in`, or `cuda:N` for a GPU. Default: `cpu`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// What policies are trained to do; an agent may say otherwise.
    #[serde(skip_serializing_if = "Objective::is_empty")]
    pub objective: Objective,
}

impl Default for Trainer {
    fn default() -> Self {
        Trainer {
            threads: 1,
            learning_rate: 3e-4,
            ramp_steps: 10,
            learning_rate_end: 0.1,
            beta1: 0.9,
            beta2: 0.99,
            epsilon: 1e-8,
            weight_decay: 0.0,
            clip_norm: 1.0,
            entropy_coefficient: 0.01,
            early: false,
            early_budget_bytes: None,
            device: None,
            objective: Objective::default(),
        }
    }
}
