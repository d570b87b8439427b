//! The supervised warm-up: right answers to other problems, for a while, so that the loop has something to improve.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use forebay_pipeline::plan::Planner;
use forebay_trainer_adapter::{
    AdamW, CpuDevice, LossForm, Policy, Sequence, StoredType, Trainer, TrainerOptions, Unit,
};

use super::progress::single_bar;
use crate::config::{AgentConfig, Config, ramp};
use crate::reasoning::examples::{Example, examples};
use crate::reasoning::problem::read_lines;
use crate::reasoning::vocabulary::Vocabulary;

/// Warms every agent's policy up and writes its weights, as bfloat16 safetensors, where the configuration expects them,
/// or into `out`. Gives the files.
pub fn warm_up(config: &Config, out: Option<&Path>, visible: bool) -> Result<Vec<PathBuf>> {
    let vocabulary = Vocabulary::load(&config.data.vocabulary)?;
    let device = CpuDevice::new(config.file.rollout.workers);
    let mut written = Vec::new();
    for agent in &config.agents {
        let policy = train(config, agent, &vocabulary, &device, visible)?;
        let path = match (out, &agent.warm_weights) {
            (Some(out), _) => out.join(format!("{}.safetensors", agent.name)),
            (None, Some(path)) => path.clone(),
            (None, None) => {
                anyhow::bail!("agent {:?} has no `warm_weights`; name the directory with --out", agent.name)
            }
        };
        let folder = path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let bytes = policy.save(&device, StoredType::Bf16);
        std::fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
        written.push(path);
    }
    Ok(written)
}

/// The policy that an agent begins with: from its weights file, or warmed up now.
pub(super) fn warm_policy(
    config: &Config,
    agent: &AgentConfig,
    vocabulary: &Vocabulary,
    device: &CpuDevice,
    visible: bool,
) -> Result<Policy<CpuDevice>> {
    let shape = config.policy_config(vocabulary.size());
    let bytes = match &agent.warm_weights {
        Some(path) => std::fs::read(path).with_context(|| {
            format!(
                "cannot read {}; write it with `forebay warm-up {}`",
                path.display(),
                config.path.display()
            )
        })?,
        // The same rounding as through a file, so that both ways begin with the same policy.
        None => train(config, agent, vocabulary, device, visible)?.save(device, StoredType::Bf16),
    };
    let loaded = Policy::load(device, &shape, &bytes);
    loaded.with_context(|| {
        format!("the warm-up weights of agent {:?} do not fit the configuration", agent.name)
    })
}

fn train(
    config: &Config,
    agent: &AgentConfig,
    vocabulary: &Vocabulary,
    device: &CpuDevice,
    visible: bool,
) -> Result<Policy<CpuDevice>> {
    let settings = &config.file.warm_up;
    let problems = read_lines(&config.data.warm_up)?;
    let wrong = read_lines(&config.data.checker_warm_up)?;
    let shown = examples(agent.role, vocabulary, &problems, &wrong);
    let names = (0..shown.len()).map(|index| index.to_string()).collect();
    let planner = Planner::new(settings.seed, names, settings.batch.min(shown.len()), 1)?;
    let policy = Policy::initialise(device, &config.policy_config(vocabulary.size()), settings.seed)?;
    let adamw = AdamW { learning_rate: settings.learning_rate, ..agent.trainer.adamw };
    // Whatever a run trains them to do, policies begin with the same warm-up.
    let (loss_form, entropy_coefficient) = (LossForm::default(), 0.0);
    let options = TrainerOptions { adamw, loss_form, entropy_coefficient, ..agent.trainer.clone() };
    let mut trainer = Trainer::new(device, policy, options)?;
    let bar = single_bar(visible, "warm-up", agent.warm_up_steps);
    for step in 1..=agent.warm_up_steps {
        trainer.set_learning_rate(settings.learning_rate * ramp(step, settings.ramp_steps))?;
        let picked: Vec<usize> = planner.step(step).inputs().iter().flat_map(|name| name.parse()).collect();
        supervised_update(
            &mut trainer,
            &agent.name,
            &picked.iter().map(|&index| &shown[index]).collect::<Vec<_>>(),
        )?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    let weights = trainer.policy();
    Ok(Policy::load(device, weights.config(), &weights.save(device, StoredType::F32))?)
}

/// One update towards the wanted responses: cross-entropy is the policy gradient of an advantage of 1.
fn supervised_update(trainer: &mut Trainer<CpuDevice>, policy: &str, batch: &[&Example]) -> Result<()> {
    const UNIT_ROWS: usize = 16;
    let rows: Vec<Sequence<'_>> = batch
        .iter()
        .map(|example| Sequence { prompt: &example.prompt, response: &example.response, advantage: 1.0 })
        .collect();
    let version = trainer.version();
    let units = rows.chunks(UNIT_ROWS).enumerate();
    let units: Vec<Unit<'_>> =
        units.map(|(position, rows)| Unit { position, policy, version, rows }).collect();
    trainer.accumulate_many(&units)?;
    trainer.apply()?;
    Ok(())
}
