//! Opens a run: its data, its store, its policies; new, or as a process before left them.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use forebay_pipeline::advantage::Grpo;
use forebay_pipeline::plan::Planner;
use forebay_rollout_adapter::columns::{RESPONSE, REWARD, rollout_schema};
use forebay_rollout_adapter::worker::open_consumer;
use forebay_store::{Consumer, GroupBy, ObjectRef, Options, Store};
use forebay_trainer_adapter::{CpuDevice, Policy, Trainer};

use super::trainer::PolicyTrainer;
use super::warm_up::warm_policy;
use crate::config::{AgentConfig, Config};
use crate::reasoning::environment::Reasoning;
use crate::reasoning::problem::{CheckedAnswer, Problem, read_lines};
use crate::reasoning::vocabulary::Vocabulary;

/// The data of a run.
pub(super) struct Data {
    pub(super) vocabulary: Vocabulary,
    pub(super) train: Vec<Problem>,
    pub(super) held_out: Vec<Problem>,
    pub(super) checker_held_out: Vec<CheckedAnswer>,
}

impl Data {
    pub(super) fn load(config: &Config) -> Result<Self> {
        Ok(Data {
            vocabulary: Vocabulary::load(&config.data.vocabulary)?,
            train: read_lines(&config.data.train)?,
            held_out: read_lines(&config.data.held_out)?,
            checker_held_out: read_lines(&config.data.checker_held_out)?,
        })
    }

    pub(super) fn planner(&self, config: &Config) -> Result<Planner> {
        let inputs = self.train.iter().map(|problem| problem.id.clone()).collect();
        let planner =
            Planner::new(config.file.seed, inputs, config.groups(), config.file.batch.group_size as u32);
        planner.with_context(|| format!("{} cannot fill a step", config.data.train.display()))
    }

    pub(super) fn environment(&self, config: &Config) -> Arc<Reasoning> {
        Arc::new(Reasoning::new(self.vocabulary.clone(), self.train.clone(), &config.agents))
    }
}

/// The name of the file beside the store's that says what run it is.
const IDENTITY: &str = "run.toml";

/// Opens the store of a run.
///
/// # Errors
/// When there is a run already and it is not to be resumed, or the one that is there was another.
pub(super) fn open_store(config: &Config, dir: &Path, resume: bool) -> Result<Store> {
    let identity = dir.join(IDENTITY);
    let exists = dir.join("FOREBAY").exists();
    if exists && !resume {
        bail!("{} holds a run already; go on with it by --resume, or give another --dir", dir.display());
    }
    let known = exists && identity.exists();
    if known {
        let found = std::fs::read_to_string(&identity)
            .with_context(|| format!("cannot read {}", identity.display()))?;
        check_identity(&found, &config.identity(), dir)?;
    }
    let store = Store::open(dir, Options::default())?;
    if !known {
        write_identity(&identity, &config.identity())?;
    }
    Ok(store)
}

/// Whole or not at all: a run that is killed here is resumed as one that has not said yet what it is.
fn write_identity(path: &Path, identity: &str) -> Result<()> {
    let temporary = path.with_extension("tmp");
    std::fs::write(&temporary, identity).with_context(|| format!("cannot write {}", temporary.display()))?;
    std::fs::rename(&temporary, path).with_context(|| format!("cannot write {}", path.display()))
}

fn check_identity(found: &str, wanted: &str, dir: &Path) -> Result<()> {
    let differs = found.lines().zip(wanted.lines()).find(|(found, wanted)| found != wanted);
    match differs {
        None if found.lines().count() == wanted.lines().count() => Ok(()),
        None => bail!("the run in {} has other agents; resume it with its own configuration", dir.display()),
        Some((found, wanted)) => bail!(
            "the run in {} was begun with `{found}`, the configuration now says `{wanted}`; resume it with its own \
             configuration, or give another --dir",
            dir.display()
        ),
    }
}

/// Opens table, consumer and trainer of an agent's policy: from the last committed step's state, or new from the warm-up.
pub(super) fn open_policy(
    config: &Config,
    agent: &AgentConfig,
    data: &Data,
    store: &Store,
    visible: bool,
) -> Result<PolicyTrainer> {
    let device = CpuDevice::new(config.file.trainer.threads);
    let trainer = match store.policy(&agent.name) {
        Ok(policy) => restore(config, agent, data, store, &device, &policy.objects)?,
        Err(_) => {
            let policy = warm_policy(config, agent, &data.vocabulary, &device, visible)?;
            let trainer = Trainer::new(&device, policy, agent.trainer.clone())?;
            let state = store.put_object(&agent.name, 0, &trainer.state())?;
            store.create_policy(&agent.name, 0, &[state])?;
            trainer
        }
    };
    if store.table(&agent.name).is_err() {
        store.create_table(&agent.name, rollout_schema(&agent.name))?;
    }
    let train = Consumer::trainer([agent.name.as_str()])
        .ready([RESPONSE, REWARD])
        .group(GroupBy::InputAndTurn, config.file.batch.group_size as u32);
    let consumer = open_consumer(store, &format!("train-{}", agent.name), train)?;
    // The smallest spread that eight rewards of 0 and 1 can have is 0.33: epsilon only guards against rounding.
    let estimator = Grpo { epsilon: 1e-4, ..Grpo::default() };
    let learning_rate = agent.trainer.adamw.learning_rate;
    Ok(PolicyTrainer { name: agent.name.clone(), consumer, trainer, estimator, learning_rate })
}

fn restore(
    config: &Config,
    agent: &AgentConfig,
    data: &Data,
    store: &Store,
    device: &CpuDevice,
    objects: &[ObjectRef],
) -> Result<Trainer<CpuDevice>> {
    let Some(object) = objects.first() else {
        bail!("policy {:?} names no state to go on from", agent.name);
    };
    let payload = store.object(object)?;
    let shape = config.policy_config(data.vocabulary.size());
    let restored = Trainer::restore(device, &shape, agent.trainer.clone(), &payload);
    restored.with_context(|| {
        format!("the state of policy {:?} at version {} cannot be used", agent.name, object.version)
    })
}

/// The policy that an agent begins with, whatever the run has made of it since.
pub(super) fn first_policy(
    config: &Config,
    agent: &AgentConfig,
    trainer: &PolicyTrainer,
    data: &Data,
) -> Result<Arc<Policy<CpuDevice>>> {
    if trainer.trainer.version() == 0 {
        return Ok(trainer.trainer.policy());
    }
    let device = CpuDevice::inline();
    Ok(Arc::new(warm_policy(config, agent, &data.vocabulary, &device, false)?))
}
