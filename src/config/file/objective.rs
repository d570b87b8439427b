//! What a policy is trained to do, as a user writes it.

use serde::{Deserialize, Serialize};

/// What a policy is trained to do. What is not said follows from what is said for all agents, and that from the defaults.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Objective {
    /// `grpo`, `dapo` or `dr_grpo`: what losses of tokens are divided by. Default: `dapo`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<String>,
    /// The length that `dr_grpo` divides by. Default: `rollout.max_new_tokens`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_length: Option<u32>,
    /// `population`, `sample` or `centred`: what centred rewards are divided by. Default: `population`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advantage: Option<String>,
    /// Is added to the deviation that they are divided by. Default: 1e-4.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advantage_epsilon: Option<f64>,
    /// `score`, `clipped` or `truncated`: how advantages become a loss. Default: `score`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_term: Option<String>,
    /// How far below 1 a ratio may lie that is clipped. Default: 0.2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip_low: Option<f32>,
    /// How far above 1 it may lie. Default: 0.2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip_high: Option<f32>,
    /// The greatest weight where weights are truncated. Default: 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub importance_cap: Option<f32>,
    /// What the distance to the policy that the run began with is weighted by. Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kl_coefficient: Option<f32>,
}

impl Objective {
    /// Whether nothing is said: what is written down of a run without objective is as it was before there were any.
    pub(super) fn is_empty(&self) -> bool {
        *self == Objective::default()
    }
}
