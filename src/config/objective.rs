//! What an agent's policy is trained to do: `[trainer.objective]` for all agents, `[agents.objective]` for one, key by key.

use forebay_pipeline::advantage::{Grpo, Scale};
use forebay_trainer_adapter::{LossForm, Objective, PolicyTerm};

use super::error::ConfigError;
use super::file;
use super::resolve::AgentConfig;

/// What a policy is trained to do, resolved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AgentObjective {
    /// What losses of tokens are divided by.
    pub loss_form: LossForm,
    /// What a reward is worth beside those of its group.
    pub estimator: Grpo,
    /// What the loss of a token is made of.
    pub objective: Objective,
}

const LOSSES: &str = "the losses are \"grpo\" (mean over each sample's tokens), \"dapo\" (mean over all tokens of the step) and \
                      \"dr_grpo\" (divided by a constant length)";
const ADVANTAGES: &str = "the advantages are \"population\" (by the deviation of the group), \"sample\" (by that of a sample, one degree \
                          of freedom less) and \"centred\" (not divided)";
const TERMS: &str = "the policy terms are \"score\", \"clipped\" and \"truncated\"";

/// The sections that may say something, the nearest first, each with its name in messages.
struct Sections<'a>([(String, &'a file::Objective); 2]);

/// What was said of a key, and the whole name of that key.
struct Said<T> {
    key: String,
    value: Option<T>,
}

impl<'a> Sections<'a> {
    fn say<T>(&self, key: &str, of: impl Fn(&'a file::Objective) -> Option<T>) -> Said<T> {
        let mut said = self.0.iter().map(|(section, objective)| (section, of(objective)));
        let found = said.find(|(_, value)| value.is_some());
        let (section, value) = found.unwrap_or((&self.0[1].0, None));
        Said { key: format!("{section}.{key}"), value }
    }
}

/// What the file says for an agent.
pub(super) fn resolve_objective(
    file: &file::File,
    agent: &file::Agent,
) -> Result<AgentObjective, ConfigError> {
    let sections = Sections([
        (format!("agents.{}.objective", agent.name), &agent.objective),
        ("trainer.objective".to_owned(), &file.trainer.objective),
    ]);
    let objective = Objective { policy_term: policy_term(file, &sections)?, kl_coefficient: kl(&sections)? };
    Ok(AgentObjective { loss_form: loss_form(file, &sections)?, estimator: estimator(&sections)?, objective })
}

fn loss_form(file: &file::File, sections: &Sections<'_>) -> Result<LossForm, ConfigError> {
    let said = sections.say("loss", |objective| objective.loss.as_deref());
    let length = sections.say("loss_length", |objective| objective.loss_length);
    let form = match said.value.unwrap_or("dapo") {
        "grpo" => LossForm::SampleMean,
        "dapo" => LossForm::TokenMean,
        "dr_grpo" => {
            let most = u32::try_from(file.rollout.max_new_tokens).unwrap_or(u32::MAX);
            LossForm::ConstantLength(length.value.unwrap_or(most))
        }
        other => return Err(ConfigError::value(said.key, format!("{other:?}"), LOSSES)),
    };
    if length.value == Some(0) {
        return Err(ConfigError::value(length.key, 0, "give at least 1"));
    }
    Ok(form)
}

fn estimator(sections: &Sections<'_>) -> Result<Grpo, ConfigError> {
    let said = sections.say("advantage", |objective| objective.advantage.as_deref());
    let scale = match said.value.unwrap_or("population") {
        "population" => Scale::StandardDeviation { ddof: 0 },
        "sample" => Scale::StandardDeviation { ddof: 1 },
        "centred" => Scale::None,
        other => return Err(ConfigError::value(said.key, format!("{other:?}"), ADVANTAGES)),
    };
    // The smallest spread that eight rewards of 0 and 1 can have is 0.33: epsilon only guards against rounding.
    let epsilon = sections.say("advantage_epsilon", |objective| objective.advantage_epsilon);
    let value = epsilon.value.unwrap_or(1e-4);
    if !(value.is_finite() && value >= 0.0) {
        return Err(ConfigError::value(epsilon.key, value, "give a number of 0 or more"));
    }
    Ok(Grpo { scale, epsilon: value, ..Grpo::default() })
}

fn policy_term(file: &file::File, sections: &Sections<'_>) -> Result<PolicyTerm, ConfigError> {
    let said = sections.say("policy_term", |objective| objective.policy_term.as_deref());
    let low = bound(sections.say("clip_low", |objective| objective.clip_low), 0.2, 1.0)?;
    let high = bound(sections.say("clip_high", |objective| objective.clip_high), 0.2, f32::MAX)?;
    let cap = bound(sections.say("importance_cap", |objective| objective.importance_cap), 2.0, f32::MAX)?;
    let term = match said.value.unwrap_or("score") {
        "score" => PolicyTerm::Score,
        "clipped" => PolicyTerm::Clipped { low, high },
        "truncated" => PolicyTerm::Truncated { cap },
        other => return Err(ConfigError::value(said.key, format!("{other:?}"), TERMS)),
    };
    // What was recorded is the probability at the temperature of sampling; the trainer's is that of temperature 1.
    let temperature = file.rollout.temperature;
    if term != PolicyTerm::Score && temperature != 1.0 {
        let reason =
            format!("it has a ratio of probabilities, and rollout.temperature = {temperature} is not 1");
        return Err(ConfigError::value(said.key, format!("{:?}", said.value.unwrap_or_default()), reason));
    }
    Ok(term)
}

/// A number above 0 and up to `most`.
fn bound(said: Said<f32>, default: f32, most: f32) -> Result<f32, ConfigError> {
    let value = said.value.unwrap_or(default);
    if value > 0.0 && value <= most {
        return Ok(value);
    }
    let reason =
        if most == 1.0 { "give a number above 0 and up to 1" } else { "give a finite number above 0" };
    Err(ConfigError::value(said.key, value, reason))
}

fn kl(sections: &Sections<'_>) -> Result<f32, ConfigError> {
    let said = sections.say("kl_coefficient", |objective| objective.kl_coefficient);
    let value = said.value.unwrap_or(0.0);
    let valid = value.is_finite() && value >= 0.0;
    if valid { Ok(value) } else { Err(ConfigError::value(said.key, value, "give a number of 0 or more")) }
}

/// Keys that mean something only beside another: of whom they mean something, whether they are given, and what to do.
type Beside = (&'static str, fn(&file::Objective) -> bool, fn(&AgentObjective) -> bool, &'static str);

const BESIDE: [Beside; 5] = [
    (
        "loss_length",
        |said| said.loss_length.is_some(),
        |made| matches!(made.loss_form, LossForm::ConstantLength(_)),
        "only loss = \"dr_grpo\" has a length; say so, or leave it out",
    ),
    (
        "advantage_epsilon",
        |said| said.advantage_epsilon.is_some(),
        |made| made.estimator.scale != Scale::None,
        "advantage = \"centred\" divides by no deviation; say another, or leave it out",
    ),
    ("clip_low", |said| said.clip_low.is_some(), is_clipped, CLIP),
    ("clip_high", |said| said.clip_high.is_some(), is_clipped, CLIP),
    (
        "importance_cap",
        |said| said.importance_cap.is_some(),
        |made| matches!(made.objective.policy_term, PolicyTerm::Truncated { .. }),
        "only policy_term = \"truncated\" has a cap; say so, or leave it out",
    ),
];

const CLIP: &str = "only policy_term = \"clipped\" has bounds; say so, or leave it out";

fn is_clipped(made: &AgentObjective) -> bool {
    matches!(made.objective.policy_term, PolicyTerm::Clipped { .. })
}

/// Refuses what was said and would have no effect.
pub(super) fn check_meant(file: &file::File, agents: &[AgentConfig]) -> Result<(), ConfigError> {
    for (key, is_given, has_it, reason) in BESIDE {
        let of_agents = file.agents.iter().zip(agents);
        let idle =
            of_agents.clone().find(|(said, made)| is_given(&said.objective) && !has_it(&made.objective));
        if let Some((agent, _)) = idle {
            return Err(ConfigError::value(
                format!("agents.{}.objective.{key}", agent.name),
                "given",
                reason,
            ));
        }
        if is_given(&file.trainer.objective) && !of_agents.clone().any(|(_, made)| has_it(&made.objective)) {
            return Err(ConfigError::value(format!("trainer.objective.{key}"), "given", reason));
        }
    }
    Ok(())
}
