//! What a user writes, key by key.

mod objective;
mod trainer;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use objective::Objective;
pub use trainer::Trainer;

/// A configuration file.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Everything random in the run follows from it. Default: 7.
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// How many steps (updates of every policy) the run makes; the learning rate is planned over them. Default: 800.
    #[serde(default = "default_steps")]
    pub steps: u64,
    /// Where the problems are.
    pub data: Data,
    /// How large a step is.
    #[serde(default)]
    pub batch: Batch,
    /// The shape of every policy.
    #[serde(default)]
    pub policy: PolicyShape,
    /// How responses are sampled.
    #[serde(default)]
    pub rollout: Rollout,
    /// How policies are trained.
    #[serde(default)]
    pub trainer: Trainer,
    /// The supervised warm-up that policies begin with.
    #[serde(default)]
    pub warm_up: WarmUp,
    /// How policies are measured.
    #[serde(default)]
    pub evaluation: Evaluation,
    /// Trainers in processes of their own, which may be more than there is room for. Default: trainers are in this process. Changes
    /// nothing that the run computes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_groups: Option<ProcessGroups>,
    /// Where versions go that are over. Default: they stay in the store. Changes nothing that the run computes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<Archive>,
    /// Who acts. A trajectory begins with the first agent.
    pub agents: Vec<Agent>,
}

/// Where the problems are; paths are relative to the configuration file.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Data {
    /// Problems of the reinforcement learning, as JSON lines.
    pub train: PathBuf,
    /// Problems that nobody trains on.
    pub held_out: PathBuf,
    /// Problems of the supervised warm-up.
    pub warm_up: PathBuf,
    /// Wrong answers to the warm-up problems, for the checker's warm-up.
    pub checker_warm_up: PathBuf,
    /// Problems with right and wrong answers, half and half, that the checker is measured on.
    pub checker_held_out: PathBuf,
    /// The tokens.
    pub vocabulary: PathBuf,
}

/// How large a step is.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Batch {
    /// Samples of each agent in a step. Default: 64.
    pub global_batch: usize,
    /// Trajectories of each problem. Default: 8.
    pub group_size: usize,
    /// Samples that a trainer takes at a time. Default: 16.
    pub micro_batch: usize,
}

impl Default for Batch {
    fn default() -> Self {
        Batch { global_batch: 64, group_size: 8, micro_batch: 16 }
    }
}

/// The shape of a policy, in the words of a Qwen2 `config.json`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyShape {
    /// Width of the residual stream. Default: 128.
    pub hidden_size: usize,
    /// Width inside the MLP. Default: 344.
    pub intermediate_size: usize,
    /// Layers. Default: 2.
    pub num_hidden_layers: usize,
    /// Query heads. Default: 4.
    pub num_attention_heads: usize,
    /// Key and value heads. Default: 2.
    pub num_key_value_heads: usize,
}

impl Default for PolicyShape {
    fn default() -> Self {
        PolicyShape {
            hidden_size: 128,
            intermediate_size: 344,
            num_hidden_layers: 2,
            num_attention_heads: 4,
            num_key_value_heads: 2,
        }
    }
}

/// How responses are sampled.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rollout {
    /// Threads that sample. Changes nothing but the time that a run takes. Default: 2.
    pub workers: usize,
    /// What logits are divided by. Default: 1.
    pub temperature: f32,
    /// Most tokens of a response. Default: 16.
    pub max_new_tokens: usize,
    /// Samples that a worker draws at a time. Default: a group, whose prompt is then read once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_once: Option<u32>,
}

impl Default for Rollout {
    fn default() -> Self {
        Rollout { workers: 2, temperature: 1.0, max_new_tokens: 16, at_once: None }
    }
}

/// The supervised warm-up: right answers to other problems of the same families.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct WarmUp {
    /// Updates. Default: 200; an agent may say otherwise.
    pub steps: u64,
    /// Samples an update. Default: 64.
    pub batch: usize,
    /// The learning rate, reached after `ramp_steps`. Default: 2e-3.
    pub learning_rate: f64,
    /// Steps over which the learning rate rises. Default: 20.
    pub ramp_steps: u64,
    /// The seed of weights and samples. Default: 0, whatever the run's seed is: all runs begin with the same policies.
    pub seed: u64,
}

impl Default for WarmUp {
    fn default() -> Self {
        WarmUp { steps: 200, batch: 64, learning_rate: 2e-3, ramp_steps: 20, seed: 0 }
    }
}

/// How policies are measured.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Evaluation {
    /// Samples at temperature 1 for each held-out problem. Default: 4.
    pub samples: usize,
    /// Most held-out problems of each family. Default: all of them.
    pub problems: Option<usize>,
}

impl Default for Evaluation {
    fn default() -> Self {
        Evaluation { samples: 4, problems: None }
    }
}

/// Trainers in processes of their own (`docs/process-groups.md`).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProcessGroups {
    /// Ranks of each agent: processes that share out its micro-batches. Default: 1.
    pub world: usize,
    /// Ranks of all agents that may be there at the same time. Default: all, so that none is ever suspended.
    pub slots: Option<usize>,
    /// How long an agent keeps its slots at least while it has more to do and others wait, in milliseconds. Default: 0, a micro-batch.
    pub turn_ms: u64,
    /// How often an agent's ranks may be lost, or fail to start, in a step before the run ends. Default: 5.
    pub losses_max: u32,
}

impl Default for ProcessGroups {
    fn default() -> Self {
        ProcessGroups { world: 1, slots: None, turn_ms: 0, losses_max: 5 }
    }
}

/// Where versions go that are over.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Archive {
    /// A directory, relative to where the command runs, or `file:///PATH`, or `s3://BUCKET/PREFIX`.
    pub to: String,
    /// How many of the newest versions of each policy stay in the store, at least 1. Default: 8.
    #[serde(default = "default_keep_versions")]
    pub keep_versions: u64,
}

/// One agent.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Agent {
    /// Its name, and the name of its policy and table.
    pub name: String,
    /// `solver` answers problems; `checker` says whether an answer is right.
    pub role: String,
    /// The agent that goes on where this one ends. Default: none.
    #[serde(default)]
    pub next: Option<String>,
    /// Weights after the warm-up, as safetensors, relative to the configuration file. `forebay warm-up` writes them; a run
    /// for which there is none does the warm-up itself. Default: none.
    #[serde(default)]
    pub warm_weights: Option<PathBuf>,
    /// Updates of this agent's warm-up. Default: `warm_up.steps`.
    #[serde(default)]
    pub warm_up_steps: Option<u64>,
    /// This agent's learning rate. Default: `trainer.learning_rate`.
    #[serde(default)]
    pub learning_rate: Option<f64>,
    /// This agent's entropy coefficient. Default: `trainer.entropy_coefficient`.
    #[serde(default)]
    pub entropy_coefficient: Option<f32>,
    /// What this agent's gradients are computed on. Default: `trainer.device`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// What this agent's policy is trained to do, where that is not what `trainer.objective` says.
    #[serde(default, skip_serializing_if = "Objective::is_empty")]
    pub objective: Objective,
}

fn default_seed() -> u64 {
    7
}

fn default_keep_versions() -> u64 {
    8
}

fn default_steps() -> u64 {
    800
}
