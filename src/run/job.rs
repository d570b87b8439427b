//! The whole run.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use forebay_query::{Format, Session};
use forebay_rollout_adapter::environment::Observer;
use forebay_rollout_adapter::worker::{RolloutTasks, Worker};
use forebay_store::{MicroBatch, Store};
use forebay_trainer_adapter::GenerateOptions;

use super::generator::ReferenceGenerator;
use super::overlap::{Overlap, RolloutClock};
use super::policies::Published;
use super::progress::Progress;
use super::report::{PolicyReport, SampleReport, Summary};
use super::setup::{Data, first_policy, open_policy, open_store};
use super::step::StepContext;
use super::trainer::PolicyTrainer;
use crate::config::{AgentConfig, Config, Role};
use crate::reasoning::evaluation::{
    Accuracy, EvaluationOptions, Item, checker_items, evaluate, solver_items,
};

/// How a run is run: what does not change what it computes.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The store's directory.
    pub dir: PathBuf,
    /// Goes on with the run that is there.
    pub resume: bool,
    /// Waits for the whole batch before it is trained on.
    pub barrier: bool,
    /// Shows bars and tables.
    pub visible: bool,
    /// Steps between two tables.
    pub table_every_steps: u64,
}

/// Runs, or goes on with, the main job.
///
/// # Errors
/// Whatever keeps it from its last step. What was committed stays, and the run can be resumed.
pub fn run(config: &Config, options: &RunOptions) -> Result<Summary> {
    let data = Data::load(config)?;
    let planner = data.planner(config)?;
    let store = open_store(config, &options.dir, options.resume)?;
    let mut trainers = Vec::new();
    for agent in &config.agents {
        trainers.push(open_policy(config, agent, &data, &store, options.visible)?);
    }
    let first = evaluate_first(config, &trainers, &data)?;
    let overlap = train(config, options, &data, &planner, &store, &mut trainers)?;
    summarize(config, &data, &store, &trainers, first, overlap)
}

/// Starts the workers, makes every step that is missing, and stops the workers.
fn train(
    config: &Config,
    options: &RunOptions,
    data: &Data,
    planner: &forebay_pipeline::plan::Planner,
    store: &Store,
    trainers: &mut [PolicyTrainer],
) -> Result<Overlap> {
    let tables: Vec<&str> = config.agents.iter().map(|agent| agent.name.as_str()).collect();
    let tasks = RolloutTasks::open(store, &tables, config.file.batch.group_size as u32)?;
    let rows = (config.file.batch.global_batch * config.agents.len()) as u64;
    let done = committed_steps(store);
    let progress = Arc::new(Progress::new(options.visible, rows, done, config.steps));
    let clock = Arc::new(RolloutClock::default());
    let published = Published::default();
    let environment = data.environment(config);
    let observer: Arc<dyn Observer> = Arc::new(Observers(progress.clone(), clock.clone()));
    let batch = &config.file.batch;
    let context = StepContext {
        store,
        router: &config.router,
        environment: &*environment,
        published: &published,
        progress: &progress,
        first_agent: &config.agents[0].name,
        config,
        micro_batch: MicroBatch::of(if options.barrier { batch.global_batch } else { batch.micro_batch }),
    };
    for trainer in trainers.iter() {
        context.publish(trainer)?;
    }
    let worker = |index: usize| Worker {
        name: format!("rollout worker {index}"),
        tasks: tasks.clone(),
        router: Arc::new(config.router.clone()),
        environment: environment.clone(),
        observer: observer.clone(),
        generator: reference_generator(config, data, &published),
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..config.file.rollout.workers)
            .map(|index| {
                let mut worker = worker(index);
                scope.spawn(move || {
                    // A worker that fails would leave the trainers waiting for ever: it closes the store for all.
                    let result = worker.run();
                    result.inspect_err(|error| store.close(&format!("{} failed: {error}", worker.name)))
                })
            })
            .collect();
        let mut overlap = Overlap::default();
        let steps = (done + 1..=config.steps).try_for_each(|step| {
            let spans = context.run(trainers, &planner.step(step))?;
            overlap.add(&spans, clock.take());
            after_step(options, store, &progress, step, overlap, tables.as_slice())
        });
        tasks.stop();
        progress.finish();
        for worker in workers {
            worker.join().map_err(|_| anyhow!("a rollout worker panicked"))??;
        }
        steps.map(|()| overlap)
    })
}

fn reference_generator(config: &Config, data: &Data, published: &Published) -> ReferenceGenerator {
    let options = GenerateOptions {
        temperature: config.file.rollout.temperature,
        max_new_tokens: config.file.rollout.max_new_tokens,
        stop_token: Some(data.vocabulary.end),
    };
    ReferenceGenerator::new(published.clone(), Arc::new(config.router.clone()), options, config.file.seed)
}

/// Moves the bar on and, every few steps, asks the store how it goes.
fn after_step(
    options: &RunOptions,
    store: &Store,
    progress: &Progress,
    step: u64,
    overlap: Overlap,
    tables: &[&str],
) -> Result<()> {
    progress.committed(step, format!("{:.0} % of training during rollouts", overlap.share() * 100.0));
    if !options.visible || !step.is_multiple_of(options.table_every_steps) {
        return Ok(());
    }
    let since = step.saturating_sub(options.table_every_steps);
    let selects = tables.iter().map(|table| {
        format!(
            "SELECT '{table}' AS agent, min(policy_version) AS from_version, max(policy_version) AS to_version, \
             count(*) AS samples, round(avg(reward), 3) AS reward, \
             round(avg(array_length(response)), 1) AS response_tokens \
             FROM {table} WHERE policy_version >= {since} AND state = 'consumed'"
        )
    });
    let sql = format!("{} ORDER BY agent DESC", selects.collect::<Vec<_>>().join(" UNION ALL "));
    let answer = Session::new(store)?.sql_blocking(&sql).context("the progress table could not be made")?;
    let mut text = Vec::new();
    answer.render(Format::Table, &mut text, None)?;
    progress.print(&String::from_utf8_lossy(&text));
    Ok(())
}

fn committed_steps(store: &Store) -> u64 {
    let committed = |step: &forebay_store::StepInfo| step.progress == forebay_store::StepProgress::Committed;
    store.steps().iter().filter(|step| committed(step)).map(|step| step.step).max().unwrap_or(0)
}

fn evaluate_first(config: &Config, trainers: &[PolicyTrainer], data: &Data) -> Result<Vec<Accuracy>> {
    let pairs = config.agents.iter().zip(trainers);
    pairs
        .map(|(agent, trainer)| measure(config, agent, &*first_policy(config, agent, trainer, data)?, data))
        .collect()
}

fn measure(
    config: &Config,
    agent: &AgentConfig,
    policy: &forebay_trainer_adapter::Policy<forebay_trainer_adapter::CpuDevice>,
    data: &Data,
) -> Result<Accuracy> {
    let settings = &config.file.evaluation;
    let limit = settings.problems.unwrap_or(usize::MAX);
    let items: Vec<Item> = match agent.role {
        Role::Solver => solver_items(&data.vocabulary, &data.held_out, limit),
        Role::Checker => checker_items(&data.vocabulary, &data.checker_held_out, limit),
    };
    let options = EvaluationOptions {
        seed: 0, // not the run's: every run is measured with the same numbers
        samples: settings.samples,
        max_new_tokens: config.file.rollout.max_new_tokens,
    };
    evaluate(policy, &data.vocabulary, &items, options)
        .with_context(|| format!("policy {:?} could not be measured", agent.name))
}

fn summarize(
    config: &Config,
    data: &Data,
    store: &Store,
    trainers: &[PolicyTrainer],
    first: Vec<Accuracy>,
    overlap: Overlap,
) -> Result<Summary> {
    let mut policies = Vec::new();
    for ((agent, trainer), first) in config.agents.iter().zip(trainers).zip(first) {
        policies.push(PolicyReport {
            name: agent.name.clone(),
            version: store.policy(&agent.name)?.version,
            first,
            last: measure(config, agent, &trainer.trainer.policy(), data)?,
            weights_sha256: trainer.trainer.weights_sha256(),
        });
    }
    let mut samples = SampleReport::default();
    for name in store.tables() {
        let counts = store.table(&name)?.counts();
        samples.written += counts.written;
        samples.consumed += counts.consumed;
        samples.open += counts.open();
        for (reason, rows) in counts.excluded {
            *samples.excluded.entry(reason).or_default() += rows;
        }
    }
    let (seed, steps, store) = (config.file.seed, committed_steps(store), store.path().to_owned());
    Ok(Summary { seed, steps, policies, samples, overlap, store })
}

/// Tells two observers.
struct Observers(Arc<Progress>, Arc<RolloutClock>);

impl Observer for Observers {
    fn rewarded(&self, agent: &str, rows: usize, reward_sum: f64) {
        Observer::rewarded(&*self.0, agent, rows, reward_sum);
        self.1.rewarded(agent, rows, reward_sum);
    }
}
