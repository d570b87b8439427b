//! What the program makes of a configuration file.

use std::path::{Path, PathBuf};

use forebay_pipeline::route::{Agent as RouteAgent, Router};
use forebay_trainer_adapter::{AdamW, EarlyOptions, GenerateOptions, Passes, PolicyConfig, TrainerOptions};

use super::device::{DeviceChoice, resolve_device};
use super::error::ConfigError;
use super::objective::{AgentObjective, check_meant, resolve_objective};
use super::{early, file, groups};

/// What an agent does in the reasoning environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Answers problems.
    Solver,
    /// Says whether an answer is right.
    Checker,
}

impl Role {
    /// The word for this role.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Solver => "solver",
            Role::Checker => "checker",
        }
    }
}

/// One agent, resolved.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// Its name, and the name of its policy and table.
    pub name: String,
    /// What it does.
    pub role: Role,
    /// Weights to begin with.
    pub warm_weights: Option<PathBuf>,
    /// Updates of its warm-up.
    pub warm_up_steps: u64,
    /// How its policy is trained.
    pub trainer: TrainerOptions,
    /// What it is trained to do.
    pub objective: AgentObjective,
    /// What its gradients are computed on.
    pub device: DeviceChoice,
    /// Memory of the sums of groups that are trained early.
    pub early_budget_bytes: u64,
}

/// A run's configuration: checked, every path and name resolved.
#[derive(Clone, Debug)]
pub struct Config {
    /// What the user wrote, defaults filled in.
    pub file: file::File,
    /// Steps that this process brings the run to. Default: the file's; another number changes where the run stops, not
    /// what it computes on the way.
    pub steps: u64,
    /// Where the file lies; names the run.
    pub path: PathBuf,
    /// The data files.
    pub data: file::Data,
    /// The agents, in the order of the file.
    pub agents: Vec<AgentConfig>,
    /// Who comes after whom.
    pub router: Router,
}

impl Config {
    /// Reads, checks and resolves a file.
    ///
    /// # Errors
    /// The first thing that is wrong with it, named with its key and value.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
        let file = toml::from_str(&text).map_err(|error| ConfigError::syntax(path.to_owned(), &error))?;
        Config::resolve(file, path)
    }

    /// Checks and resolves what a file at `path` says.
    pub fn resolve(file: file::File, path: &Path) -> Result<Self, ConfigError> {
        check_numbers(&file)?;
        groups::check_groups(&file)?;
        early::check_early(&file)?;
        let base = path.parent().unwrap_or(Path::new("."));
        let data = file::Data {
            train: base.join(&file.data.train),
            held_out: base.join(&file.data.held_out),
            warm_up: base.join(&file.data.warm_up),
            checker_warm_up: base.join(&file.data.checker_warm_up),
            checker_held_out: base.join(&file.data.checker_held_out),
            vocabulary: base.join(&file.data.vocabulary),
        };
        let agents = file
            .agents
            .iter()
            .map(|agent| resolve_agent(&file, agent, base))
            .collect::<Result<Vec<_>, _>>()?;
        check_meant(&file, &agents)?;
        let router = resolve_routes(&file)?;
        Ok(Config { steps: file.steps, path: path.to_owned(), data, agents, router, file })
    }

    /// Problems in a step.
    pub fn groups(&self) -> usize {
        self.file.batch.global_batch / self.file.batch.group_size
    }

    /// The tables of the agents, in the order of the file.
    pub fn tables(&self) -> Vec<&str> {
        self.agents.iter().map(|agent| agent.name.as_str()).collect()
    }

    /// The share of the greatest learning rate that holds at a step, counted from 1: a ramp, then a line down.
    pub fn learning_rate_share(&self, step: u64) -> f64 {
        let trainer = &self.file.trainer;
        let rising = ramp(step, trainer.ramp_steps);
        let progress = step.min(self.file.steps) as f64 / self.file.steps.max(1) as f64;
        rising * (1.0 - (1.0 - trainer.learning_rate_end) * progress)
    }

    /// The agent of that name; routing has checked that it exists.
    pub fn agent(&self, name: &str) -> Option<&AgentConfig> {
        self.agents.iter().find(|agent| agent.name == name)
    }

    /// The shape of every policy over a vocabulary.
    pub fn policy_config(&self, vocab_size: usize) -> PolicyConfig {
        let shape = &self.file.policy;
        PolicyConfig {
            hidden_size: shape.hidden_size,
            intermediate_size: shape.intermediate_size,
            num_hidden_layers: shape.num_hidden_layers,
            num_attention_heads: shape.num_attention_heads,
            num_key_value_heads: shape.num_key_value_heads,
            head_dim: shape.hidden_size / shape.num_attention_heads.max(1),
            ..PolicyConfig::small(vocab_size)
        }
    }

    /// Everything that decides what the run computes, as text: two runs with the same text and the same data end with
    /// the same weights after the same number of steps. How many threads and processes there are, and where old rows go, is not in it.
    pub fn identity(&self) -> String {
        let mut file = self.file.clone();
        (file.rollout.workers, file.trainer.threads) = (0, 0);
        (file.process_groups, file.archive) = (None, None);
        toml::to_string_pretty(&file).unwrap_or_default()
    }
}

/// A line from 0 to 1 over the first `steps` steps.
pub(crate) fn ramp(step: u64, steps: u64) -> f64 {
    if step >= steps { 1.0 } else { step as f64 / steps as f64 }
}

/// More threads than any machine has use for.
const THREADS_MAX: usize = 1024;

fn check_numbers(file: &file::File) -> Result<(), ConfigError> {
    let (batch, rollout) = (&file.batch, &file.rollout);
    for (key, value) in [
        ("batch.global_batch", batch.global_batch),
        ("batch.group_size", batch.group_size),
        ("batch.micro_batch", batch.micro_batch),
        ("rollout.workers", rollout.workers),
        ("rollout.max_new_tokens", rollout.max_new_tokens),
        ("trainer.threads", file.trainer.threads),
        ("warm_up.batch", file.warm_up.batch),
        ("evaluation.samples", file.evaluation.samples),
        ("evaluation.problems", file.evaluation.problems.unwrap_or(1)),
    ] {
        check(value > 0, key, &value, "give at least 1")?;
    }
    let kept = file.archive.as_ref().map_or(1, |archive| archive.keep_versions);
    check(kept > 0, "archive.keep_versions", &kept, "give at least 1")?;
    let most = rollout.workers.max(file.trainer.threads);
    let few = format!("give at most {THREADS_MAX}");
    check(most <= THREADS_MAX, "rollout.workers or trainer.threads", &most, &few)?;
    let whole =
        format!("it does not divide batch.global_batch = {}; a step holds whole groups", batch.global_batch);
    check(
        batch.global_batch.is_multiple_of(batch.group_size),
        "batch.group_size",
        &batch.group_size,
        &whole,
    )?;
    let alone = "one trajectory has nothing to be compared with; give at least 2";
    check(batch.group_size >= 2, "batch.group_size", &batch.group_size, alone)?;
    let positive = rollout.temperature >= GenerateOptions::TEMPERATURE_MIN && rollout.temperature.is_finite();
    check(positive, "rollout.temperature", &rollout.temperature, "give a finite number, 1e-6 or more")?;
    check(
        (0.0..=1.0).contains(&file.trainer.learning_rate_end),
        "trainer.learning_rate_end",
        &file.trainer.learning_rate_end,
        "give a share from 0 to 1",
    )?;
    check(!file.agents.is_empty(), "agents", &"[]", "name at least one agent")
}

pub(super) fn check(holds: bool, key: &str, value: &dyn ToString, reason: &str) -> Result<(), ConfigError> {
    if holds { Ok(()) } else { Err(ConfigError::value(key, value.to_string(), reason)) }
}

fn resolve_agent(file: &file::File, agent: &file::Agent, base: &Path) -> Result<AgentConfig, ConfigError> {
    let role = match agent.role.as_str() {
        "solver" => Role::Solver,
        "checker" => Role::Checker,
        other => {
            let key = format!("agents.{}.role", agent.name);
            return Err(ConfigError::value(
                key,
                format!("{other:?}"),
                "the roles are \"solver\" and \"checker\"",
            ));
        }
    };
    let (settings, objective) = (&file.trainer, resolve_objective(file, agent)?);
    let trainer = TrainerOptions {
        policy: agent.name.clone(),
        adamw: AdamW {
            learning_rate: agent.learning_rate.unwrap_or(settings.learning_rate),
            beta1: settings.beta1,
            beta2: settings.beta2,
            epsilon: settings.epsilon,
            weight_decay: settings.weight_decay,
        },
        clip_norm: settings.clip_norm,
        loss_form: objective.loss_form,
        entropy_coefficient: agent.entropy_coefficient.unwrap_or(settings.entropy_coefficient),
        passes: Passes::default(), // steps are made of a cache, which has no rows to pass over again
    };
    trainer
        .validate()
        .map_err(|error| ConfigError::value("trainer", agent.name.clone(), error.to_string()))?;
    Ok(AgentConfig {
        name: agent.name.clone(),
        role,
        warm_weights: agent.warm_weights.as_ref().map(|path| base.join(path)),
        warm_up_steps: agent.warm_up_steps.unwrap_or(file.warm_up.steps),
        trainer,
        objective,
        device: resolve_device(file, agent)?,
        early_budget_bytes: settings.early_budget_bytes.unwrap_or(EarlyOptions::default().budget_bytes),
    })
}

/// The first agent answers the problem, so it is a solver; whoever follows a solver checks it.
fn resolve_routes(file: &file::File) -> Result<Router, ConfigError> {
    let declared = file.agents.iter().map(|agent| {
        let route = RouteAgent::new(&agent.name);
        agent.next.iter().fold(route, |route, next| route.then(next))
    });
    let router = Router::new(declared)
        .map_err(|error| ConfigError::value("agents.next", "routing", error.to_string()))?;
    let first = &file.agents[0];
    let lineage = router.lineage(&first.name).unwrap_or_default();
    for (turn, name) in lineage.iter().enumerate() {
        let role =
            file.agents.iter().find(|agent| agent.name == *name).map_or("", |agent| agent.role.as_str());
        let fits = if turn == 0 { role == "solver" } else { role == "checker" && turn == 1 };
        if !fits {
            let reason = "a trajectory begins with a solver and may go on to one checker";
            return Err(ConfigError::value(format!("agents.{name}.role"), format!("{role:?}"), reason));
        }
    }
    if let Some(idle) = file.agents.iter().find(|agent| !lineage.contains(&agent.name.as_str())) {
        let reason =
            format!("no trajectory reaches it; name it as `next` of {:?}, or leave it out", first.name);
        return Err(ConfigError::value("agents.name", format!("{:?}", idle.name), reason));
    }
    Ok(router)
}
