//! The whole run.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use forebay_pipeline::plan::Planner;
use forebay_query::{Archive, ArchiveRule, Archiver, Format, Options as QueryOptions, Session};
use forebay_rollout_adapter::environment::Observer;
use forebay_rollout_adapter::worker::{RolloutTasks, Worker};
use forebay_server::Token;
use forebay_store::Store;
use forebay_trainer_adapter::{CpuDevice, GenerateOptions, Policy};

use super::devices::open_devices;
use super::ending::{OnDrop, first_failure};
use super::generator::ReferenceGenerator;
use super::groups::{Ranks, forget_states};
use super::overlap::{Overlap, RolloutClock};
use super::policies::Published;
use super::progress::{Progress, single_bar};
use super::report::{PolicyReport, SampleReport, Summary};
use super::serving::{check_listen, check_tokenizer, serve};
use super::setup::{Data, first_policies, open_policies, open_store, open_tasks};
use super::step::StepContext;
use super::trainer::{PolicyTrainer, count_micro_batches};
use crate::config::{AgentConfig, ArchiveTo, Config, Role};
use crate::reasoning::evaluation::{
    Accuracy, EvaluationOptions, Item, checker_items, evaluate, solver_items,
};
use crate::{Archiving, Duties};

/// How a run is run: what does not change what it computes.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The store's directory.
    pub dir: PathBuf,
    /// Goes on with the run that is there.
    pub resume: bool,
    /// Waits for an agent's whole batch before it is trained on.
    pub barrier: bool,
    /// Shows bars and tables.
    pub visible: bool,
    /// Steps between two tables.
    pub table_every_steps: u64,
    /// Serves the store over HTTP while the run goes on.
    pub listen: Option<SocketAddr>,
    /// Serves it over Arrow Flight SQL too, beside HTTP.
    pub flight: Option<SocketAddr>,
    /// The tokenizers that queries of it may name, with their files.
    pub tokenizers: Vec<(String, PathBuf)>,
    /// Lets in only who shows this token.
    pub token: Option<Token>,
}

/// Runs, or goes on with, the main job.
///
/// # Errors
/// Whatever keeps it from its last step. What was committed stays, and the run can be resumed.
pub fn run(config: &Config, options: &RunOptions) -> Result<Summary> {
    // Everything that can be wrong with the input is looked at before the directory is touched.
    let devices = open_devices(config)?;
    let data = Data::load(config)?;
    data.check(config)?;
    let planner = data.planner(config)?;
    let begins = first_policies(config, &data, options.visible)?;
    for address in options.listen.into_iter().chain(options.flight) {
        check_listen(address, options.token.is_some())?;
    }
    options.tokenizers.iter().try_for_each(|(_, file)| check_tokenizer(file))?;
    let store = open_store(config, &options.dir, options.resume)?;
    let _duties = Duties::of(&store).context("cannot start the threads of the store's background duties")?;
    let archiving = config.file.archive.as_ref().map(|to| archived(&store, to)).transpose()?;
    let archive = archiving.as_ref().map(|(archive, _)| archive);
    let ranks = Ranks::new(config, data.vocabulary.size(), &store, &options.dir)?;
    let server = serve(&store, archive, options, ranks.as_ref().map(Ranks::socket))?;
    let groups = (ranks.as_ref(), committed_steps(&store));
    let mut trainers = open_policies(config, &data, &store, (devices, &begins), groups)?;
    let first = measure_all(config, options.visible, &data, &begins)?;
    let asked =
        archive.map_or_else(QueryOptions::default, |archive| QueryOptions::default().archive(archive));
    let overlap = train(config, options, (&data, &planner), (&store, &asked), &mut trainers)?;
    let ends: Vec<_> = trainers.iter().map(PolicyTrainer::policy).collect();
    let last = measure_all(config, options.visible, &data, &ends)?;
    let mut summary = summarize(config, &store, &trainers, first.into_iter().zip(last), overlap)?;
    summary.process_groups = trainers.into_iter().filter_map(PolicyTrainer::end).collect();
    drop(server); // with what ranks that were killed still held through it
    forget_states(&store, &config.tables());
    Ok(summary)
}

/// The archive of a run, and what moves versions there. One that is another store's, or out of reach, is better told at the
/// beginning of a run than in its middle.
fn archived(store: &Store, to: &ArchiveTo) -> Result<(Archive, Archiving)> {
    let archive = Archive::open(&to.to).context("archive.to")?;
    let archiver = Archiver::new(store, &archive, ArchiveRule::keep_versions(to.keep_versions))?;
    let archiving = Archiving::of(archiver).context("cannot start the archiver's thread")?;
    Ok((archive, archiving))
}

/// Makes every step that is missing, with rollout workers beside it.
fn train(
    config: &Config,
    options: &RunOptions,
    (data, planner): (&Data, &Planner),
    (store, asked): (&Store, &QueryOptions),
    trainers: &mut [PolicyTrainer],
) -> Result<Overlap> {
    let (batch, tables) = (&config.file.batch, config.tables());
    let tasks = open_tasks(config, store)?;
    let rows = (batch.global_batch * config.agents.len()) as u64;
    let done = committed_steps(store);
    let progress = Arc::new(Progress::new(options.visible, rows, done, config.steps));
    let clock = Arc::new(RolloutClock::default());
    let (published, environment) = (Published::default(), data.environment(config));
    let context = StepContext {
        store,
        router: &config.router,
        environment: &*environment,
        published: &published,
        progress: &progress,
        first_agent: &config.agents[0].name,
        is_barrier: options.barrier,
        config,
    };
    let standing = |trainer: &PolicyTrainer| context.publish(trainer, store.policy(trainer.name())?.version);
    trainers.iter().try_for_each(standing)?;
    let worker = |index: usize| Worker {
        name: format!("rollout worker {index}"),
        tasks: tasks.clone(),
        router: Arc::new(config.router.clone()),
        environment: environment.clone(),
        observer: Arc::new(Observers(progress.clone(), clock.clone())),
        generator: reference_generator(config, data, &published),
    };
    let mut overlap = Overlap::default();
    let trained = beside_workers(store, &tasks, (0..config.file.rollout.workers).map(worker), || {
        (done + 1..=config.steps).try_for_each(|step| {
            let spans = context.run(trainers, &planner.step(step))?;
            overlap.add(&spans, clock.take());
            after_step(options, (store, asked), &progress, step, overlap, &tables)
        })
    });
    progress.finish();
    trained.map(|()| overlap)
}

/// Does `work` while each worker runs on a thread of its own, then stops them, however it ended. A worker that fails or
/// panics would leave the trainers waiting for ever, so it closes the store for all. The first failure is the one told,
/// not the closed store that the others then met.
fn beside_workers(
    store: &Store,
    tasks: &RolloutTasks,
    workers: impl Iterator<Item = Worker<ReferenceGenerator>>,
    work: impl FnOnce() -> Result<()>,
) -> Result<()> {
    std::thread::scope(|scope| {
        let run = |mut worker: Worker<ReferenceGenerator>| {
            let name = worker.name.clone();
            let panicked = OnDrop::new(|| store.close(&format!("{name} panicked")));
            let result = worker.run().map_err(anyhow::Error::from);
            panicked.disarm();
            result.inspect_err(|error| store.close(&format!("{name} failed: {error:#}")))
        };
        let threads: Vec<_> = workers.map(|worker| scope.spawn(move || run(worker))).collect();
        let stop = OnDrop::new(|| tasks.stop());
        let mut results = vec![work()];
        drop(stop);
        for thread in threads {
            results.push(thread.join().unwrap_or_else(|_| Err(anyhow!("a rollout worker panicked"))));
        }
        first_failure(results)
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
    (store, asked): (&Store, &QueryOptions),
    progress: &Progress,
    step: u64,
    overlap: Overlap,
    tables: &[&str],
) -> Result<()> {
    progress.committed(step, format!("overlap {:.0} %", overlap.share() * 100.0));
    if !options.visible || !step.is_multiple_of(options.table_every_steps) {
        return Ok(());
    }
    let since = step.saturating_sub(options.table_every_steps);
    let selects = tables.iter().map(|table| {
        format!(
            "SELECT '{table}' AS agent, min(policy_version) AS from_version, max(policy_version) AS to_version, \
             count(*) AS samples, round(avg(reward), 3) AS reward, \
             round(avg(array_length(response)), 1) AS response_tokens \
             FROM \"{table}\" WHERE policy_version >= {since} AND state = 'consumed'"
        )
    });
    let sql = format!("{} ORDER BY agent DESC", selects.collect::<Vec<_>>().join(" UNION ALL "));
    let mut text = Vec::new();
    let answer = Session::with_options(store, asked).and_then(|session| session.sql_blocking(&sql));
    match answer {
        Ok(answer) => answer.render(Format::Table, &mut text, None)?,
        // An archive that is out of reach is no business of the training: what moves versions there tries again.
        Err(error) => {
            tracing::warn!(%error, "the store could not be asked for a progress table; the run goes on");
            return Ok(());
        }
    }
    if let Err(error) = progress.print(&String::from_utf8_lossy(&text)) {
        tracing::warn!(%error, "a progress table could not be printed; the run goes on");
    }
    Ok(())
}

/// How many steps the run has made: the steps that stand. Not the number of the newest, for numbers of steps that a rewind has undone
/// are not given out again, and the run's own step behind the one that it went back to has a greater number the second time.
fn committed_steps(store: &Store) -> u64 {
    let committed = |step: &forebay_store::StepInfo| step.progress == forebay_store::StepProgress::Committed;
    store.steps().iter().filter(|step| committed(step)).count() as u64
}

/// Measures one policy of every agent.
fn measure_all(
    config: &Config,
    visible: bool,
    data: &Data,
    policies: &[Arc<Policy<CpuDevice>>],
) -> Result<Vec<Accuracy>> {
    let bar = single_bar(visible, "measuring", config.agents.len() as u64);
    bar.enable_steady_tick(std::time::Duration::from_millis(250));
    let measured = config.agents.iter().zip(policies).map(|(agent, policy)| {
        let accuracy = measure(config, agent, policy, data)?;
        bar.inc(1);
        Ok(accuracy)
    });
    let measured = measured.collect();
    bar.finish_and_clear();
    measured
}

fn measure(
    config: &Config,
    agent: &AgentConfig,
    policy: &Policy<CpuDevice>,
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
    store: &Store,
    trainers: &[PolicyTrainer],
    measured: impl Iterator<Item = (Accuracy, Accuracy)>,
    overlap: Overlap,
) -> Result<Summary> {
    let mut policies = Vec::new();
    for (trainer, (first, last)) in trainers.iter().zip(measured) {
        let (name, weights_sha256) = (trainer.name().to_owned(), trainer.weights_sha256());
        let version = store.policy(&name)?.version;
        policies.push(PolicyReport { name, version, first, last, weights_sha256 });
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
    let micro_batches = config.file.trainer.early.then(|| count_micro_batches(trainers));
    Ok(Summary { seed, steps, policies, samples, overlap, micro_batches, process_groups: Vec::new(), store })
}

/// Tells two observers.
struct Observers(Arc<Progress>, Arc<RolloutClock>);

impl Observer for Observers {
    fn rewarded(&self, agent: &str, rows: usize, reward_sum: f64) {
        Observer::rewarded(&*self.0, agent, rows, reward_sum);
        self.1.rewarded(agent, rows, reward_sum);
    }
}
