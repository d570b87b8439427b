//! Two agents on one store; answers are arithmetic on the prompt, so every row can be predicted.

use std::sync::Arc;

use forebay_pipeline::plan::{Membership, Planner};
use forebay_pipeline::route::{Agent, Router};
use forebay_rollout_adapter::Failure;
use forebay_rollout_adapter::columns::{RESPONSE, REWARD, rollout_schema};
use forebay_rollout_adapter::environment::{Environment, Turn, Unobserved};
use forebay_rollout_adapter::generator::{Generator, Request, Response};
use forebay_rollout_adapter::worker::{RolloutTasks, Worker};
use forebay_rollout_adapter::writer::begin_trajectories;
use forebay_store::{Consumer, ConsumerHandle, GroupBy, Options, Store};
use tempfile::TempDir;

pub(crate) const GROUP: u32 = 4;

/// Answers with the prompt and the trajectory's number.
pub(crate) struct Echo;

impl Generator for Echo {
    fn generate(
        &mut self,
        _agent: &str,
        _version: u64,
        requests: &[Request<'_>],
    ) -> Result<Vec<Response>, Failure> {
        let answer = |request: &Request<'_>| {
            let mut tokens = request.prompt.to_vec();
            tokens.push(request.sample.trajectory());
            Response { logprobs: vec![-0.5; tokens.len()], tokens }
        };
        Ok(requests.iter().map(answer).collect())
    }
}

/// Even trajectories are worth 1; the reward of the trajectories in `fails` cannot be told.
#[derive(Default)]
pub(crate) struct Parity {
    pub(crate) fails: Vec<u32>,
}

impl Environment for Parity {
    fn first_prompt(&self, _agent: &str, input: &str) -> Result<Vec<u32>, Failure> {
        Ok(vec![input.len() as u32, 7])
    }

    fn reward(&self, turn: &Turn<'_>) -> Result<f32, Failure> {
        if turn.agent == "first" && self.fails.contains(&turn.sample.trajectory()) {
            return Err("the verifier has no opinion".into());
        }
        Ok(if turn.sample.trajectory().is_multiple_of(2) { 1.0 } else { 0.0 })
    }

    fn next_prompt(&self, _next_agent: &str, turn: &Turn<'_>) -> Result<Vec<u32>, Failure> {
        Ok([turn.response, &[99]].concat())
    }

    fn text(&self, tokens: &[u32]) -> String {
        format!("{tokens:?}")
    }
}

pub(crate) struct Fixture {
    pub(crate) store: Store,
    pub(crate) router: Arc<Router>,
    pub(crate) environment: Arc<Parity>,
    pub(crate) tasks: RolloutTasks,
    pub(crate) trainers: Vec<ConsumerHandle>,
    pub(crate) membership: Membership,
    _directory: TempDir,
}

pub(crate) fn fixture(environment: Parity) -> Fixture {
    fixture_with(environment, Options::default())
}

pub(crate) fn fixture_with(environment: Parity, options: Options) -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path().join("store"), options).unwrap();
    let router = Arc::new(Router::new([Agent::new("first").then("second"), Agent::new("second")]).unwrap());
    let trainers = ["first", "second"].map(|name| {
        store.create_table(name, rollout_schema(name)).unwrap();
        let train = Consumer::trainer([name]).ready([RESPONSE, REWARD]).group(GroupBy::InputAndTurn, GROUP);
        store.create_consumer(&format!("train-{name}"), train).unwrap()
    });
    let tasks = RolloutTasks::open(&store, &["first", "second"], GROUP).unwrap();
    let inputs = (0..6).map(|index| format!("q{index}")).collect();
    let membership = Planner::new(1, inputs, 3, GROUP).unwrap().step(1);
    let environment = Arc::new(environment);
    Fixture {
        store,
        router,
        environment,
        tasks,
        trainers: trainers.into(),
        membership,
        _directory: directory,
    }
}

impl Fixture {
    pub(crate) fn begin(&self) -> usize {
        begin_trajectories(&self.store, &self.router, &*self.environment, "first", &self.membership, 0, "w0")
            .unwrap()
    }

    pub(crate) fn worker(&self, name: &str) -> Worker<Echo> {
        Worker {
            name: name.to_owned(),
            tasks: self.tasks.clone(),
            router: self.router.clone(),
            environment: self.environment.clone(),
            observer: Arc::new(Unobserved),
            generator: Echo,
        }
    }

    /// Works until there is nothing to do.
    pub(crate) fn drain(&self) {
        let mut worker = self.worker("drain");
        while worker.run_once().unwrap() {}
    }

    pub(crate) fn keys(&self, turn: u32) -> Vec<String> {
        self.membership.inputs().iter().map(|input| format!("{input}_{turn}")).collect()
    }
}
