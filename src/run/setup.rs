//! Opens a run: its data, its store, its policies; new, or as a process before left them.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use forebay_pipeline::plan::Planner;
use forebay_rollout_adapter::columns::{RESPONSE, REWARD, rollout_schema};
use forebay_rollout_adapter::worker::{RolloutTasks, open_consumer};
use forebay_store::{Consumer, GroupBy, ObjectRef, Options, Store};
use forebay_trainer_adapter::{CpuDevice, Device, EarlyOptions, Error, Policy, PolicyConfig, Trainer};

use super::devices::AgentDevice;
use super::feed::Feed;
use super::groups::{GroupTrainer, Ranks};
use super::local::OnDevice;
use super::report::MicroBatches;
use super::trainer::{Learner, PolicyTrainer};
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

    /// Checks that every prompt has room for its response, and that no problem has the name of another.
    pub(super) fn check(&self, config: &Config) -> Result<()> {
        let room = config.policy_config(self.vocabulary.size()).max_position_embeddings;
        let longest_answer = config.file.rollout.max_new_tokens;
        let mut names = HashSet::new();
        for problem in self.train.iter().chain(&self.held_out) {
            let tokens = self.vocabulary.checker_prompt(&problem.question, problem.answer.as_bytes()).len();
            let needed =
                tokens.max(self.vocabulary.solver_prompt(&problem.question).len() + 1 + longest_answer);
            ensure!(
                needed + longest_answer <= room,
                "problem {:?} needs {needed} tokens and {longest_answer} for the response; a policy reads {room}",
                problem.id
            );
            ensure!(
                names.insert(&problem.id),
                "two problems have the id {:?}; ids are unique over all files",
                problem.id
            );
        }
        Ok(())
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
    if exists && !resume && identity.exists() {
        bail!("{} holds a run already; go on with it by --resume, or give another --dir", dir.display());
    }
    let known = exists && identity.exists();
    if known {
        let found = std::fs::read_to_string(&identity)
            .with_context(|| format!("cannot read {}", identity.display()))?;
        check_identity(&found, &config.identity(), dir)?;
    }
    let store = Store::open(dir, Options::default())?;
    if !known && !store.policies().is_empty() {
        bail!("{} holds a store that no run made ({IDENTITY} is missing); give another --dir", dir.display());
    }
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

/// The policies that agents begin with, and with them a check of every shape and every file that a run needs.
pub(super) fn first_policies(
    config: &Config,
    data: &Data,
    visible: bool,
) -> Result<Vec<Arc<Policy<CpuDevice>>>> {
    let device = CpuDevice::new(config.file.rollout.workers);
    let warm = |agent| Ok(Arc::new(warm_policy(config, agent, &data.vocabulary, &device, visible)?));
    config.agents.iter().map(warm).collect()
}

/// The tasks of the rollout workers.
pub(super) fn open_tasks(config: &Config, store: &Store) -> Result<RolloutTasks> {
    let tables = config.tables();
    Ok(match config.file.rollout.at_once {
        Some(rows) => RolloutTasks::open_by_rows(store, &tables, rows)?,
        None => RolloutTasks::open(store, &tables, config.file.batch.group_size as u32)?,
    })
}

/// Opens every agent's policy on its device, for the steps behind those that are `done`.
pub(super) fn open_policies(
    config: &Config,
    data: &Data,
    store: &Store,
    (devices, first): (Vec<AgentDevice>, &[Arc<Policy<CpuDevice>>]),
    (ranks, done): (Option<&Ranks>, u64),
) -> Result<Vec<PolicyTrainer>> {
    let mut trainers = Vec::new();
    let opened = config.agents.iter().zip(devices).zip(first).enumerate();
    for (index, ((agent, device), first)) in opened {
        let shape = config.policy_config(data.vocabulary.size());
        let learner = match (device, ranks) {
            (AgentDevice::Cpu(device), Some(ranks)) => {
                let trainer = open_trainer(&device, agent, &shape, store, first)?;
                let group = GroupTrainer::open(ranks, (index, &agent.name), &trainer, done + 1)?;
                Learner::Group(Box::new(group))
            }
            (AgentDevice::Cpu(device), None) => local(device, agent, &shape, store, first)?,
            (AgentDevice::StandIn(device), _) => local(device, agent, &shape, store, first)?,
            (AgentDevice::Cuda(device), _) => local(*device, agent, &shape, store, first)?,
        };
        let (feed, learning_rate) =
            (open_feed(config, agent, store, first)?, agent.trainer.adamw.learning_rate);
        let micro_batches = MicroBatches::default();
        trainers.push(PolicyTrainer { feed, learner, learning_rate, micro_batches });
    }
    Ok(trainers)
}

fn local<D: Device>(
    device: D,
    agent: &AgentConfig,
    shape: &PolicyConfig,
    store: &Store,
    first: &Policy<CpuDevice>,
) -> Result<Learner> {
    let trainer = open_trainer(&device, agent, shape, store, first)?;
    Ok(Learner::Here(Box::new(OnDevice::new(device, trainer)?)))
}

/// The trainer of an agent's policy: from the last committed step's state, or new from the warm-up.
fn open_trainer<D: Device>(
    device: &D,
    agent: &AgentConfig,
    shape: &PolicyConfig,
    store: &Store,
    first: &Policy<CpuDevice>,
) -> Result<Trainer<D>> {
    let trainer = match store.policy(&agent.name) {
        Ok(policy) => restore(agent, shape, store, device, &policy.objects)?,
        Err(_) => {
            let policy = Policy::from_values(device, first.config(), &first.values(&CpuDevice::inline()), 0)?;
            let trainer = Trainer::new(device, policy, agent.trainer.clone())?;
            let state = store.put_object(&agent.name, 0, &trainer.state())?;
            store.create_policy(&agent.name, 0, &[state])?;
            trainer
        }
    };
    Ok(as_configured(trainer, agent)?)
}

/// A trainer with what its agent's configuration says of the loss, and of early training.
///
/// # Errors
/// When a value of it is not valid.
pub(super) fn as_configured<D: Device>(
    trainer: Trainer<D>,
    agent: &AgentConfig,
) -> Result<Trainer<D>, Error> {
    let early = EarlyOptions { budget_bytes: agent.early_budget_bytes, ..EarlyOptions::default() };
    trainer.with_objective(agent.objective.objective)?.with_early_options(early)
}

/// Opens table and consumer of an agent.
fn open_feed(
    config: &Config,
    agent: &AgentConfig,
    store: &Store,
    first: &Arc<Policy<CpuDevice>>,
) -> Result<Feed> {
    if store.table(&agent.name).is_err() {
        store.create_table(&agent.name, rollout_schema(&agent.name))?;
    }
    let train = Consumer::trainer([agent.name.as_str()])
        .ready([RESPONSE, REWARD])
        .group(GroupBy::InputAndTurn, config.file.batch.group_size as u32);
    let objective = agent.objective.objective;
    Ok(Feed {
        name: agent.name.clone(),
        consumer: open_consumer(store, &format!("train-{}", agent.name), train)?,
        estimator: agent.objective.estimator,
        needs_behaviour: objective.needs_behaviour(),
        reference: objective.needs_reference().then(|| first.clone()),
    })
}

fn restore<D: Device>(
    agent: &AgentConfig,
    shape: &PolicyConfig,
    store: &Store,
    device: &D,
    objects: &[ObjectRef],
) -> Result<Trainer<D>> {
    let Some(object) = objects.first() else {
        bail!("policy {:?} names no state to go on from", agent.name);
    };
    let payload = store.object(object)?;
    let restored = Trainer::restore(device, shape, agent.trainer.clone(), &payload);
    restored.with_context(|| {
        format!("the state of policy {:?} at version {} cannot be used", agent.name, object.version)
    })
}
