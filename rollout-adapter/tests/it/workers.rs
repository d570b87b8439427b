//! Several workers, and workers that fail.

use std::sync::Arc;
use std::time::Duration;

use forebay_pipeline::trigger::Trigger;
use forebay_rollout_adapter::Failure;
use forebay_rollout_adapter::environment::Unobserved;
use forebay_rollout_adapter::generator::{Generator, Request, Response};
use forebay_rollout_adapter::worker::Worker;
use forebay_store::{ClaimProgress, Kind, MicroBatch, Options, SimulatedClock, StepPlan, Store, Timestamp};

use crate::support::{Echo, Parity, fixture, fixture_with};

#[test]
fn workers_wait_for_prompts_share_the_work_and_stop_when_told() {
    let f = fixture(Parity::default());
    let step = Arc::new(f.store.begin_step(StepPlan::new().groups(&f.trainers[1], f.keys(1))).unwrap());
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|index| {
                let mut worker = f.worker(&format!("worker {index}"));
                scope.spawn(move || worker.run())
            })
            .collect();
        f.begin();
        let claims = Trigger::new(step.clone(), &f.trainers[1], MicroBatch::of(4));
        let rows: usize =
            claims.map(|claim| claim.map(|claim| (claim.len(), claim.accumulated()).0).unwrap()).sum();
        assert_eq!(rows, 12);
        f.tasks.stop();
        workers.into_iter().for_each(|worker| worker.join().unwrap().unwrap());
    });
    let finished = f.store.claims().into_iter().filter(|claim| claim.consumer == "generate");
    assert_eq!(finished.map(|claim| claim.rows).sum::<u64>(), 24, "each row was generated once");
}

struct Broken;

impl Generator for Broken {
    fn generate(&mut self, _: &str, _: u64, _: &[Request<'_>]) -> Result<Vec<Response>, Failure> {
        Err("the server is on fire".into())
    }
}

struct Short;

impl Generator for Short {
    fn generate(&mut self, _: &str, _: u64, _: &[Request<'_>]) -> Result<Vec<Response>, Failure> {
        Ok(Vec::new())
    }
}

#[test]
fn a_generator_that_fails_gives_its_rows_back() {
    let f = fixture(Parity::default());
    f.begin();
    fn with<G: Generator>(like: Worker<Echo>, generator: G) -> Worker<G> {
        let Worker { name, tasks, router, environment, .. } = like;
        Worker { name, tasks, router, environment, observer: Arc::new(Unobserved), generator }
    }
    let error = with(f.worker("broken"), Broken).run_once().unwrap_err();
    assert_eq!(error.kind(), Kind::Retry);
    assert!(error.to_string().contains("agent \"first\" could not generate at version 0"), "{error}");
    let error = with(f.worker("short"), Short).run_once().unwrap_err().to_string();
    assert!(error.contains("answered 4 requests with 0 responses"), "{error}");
    f.drain();
    assert_eq!(f.store.table("second").unwrap().counts().written, 12, "another worker has done it all");
}

/// Sleeps through its first lease.
struct Sleepy {
    clock: Arc<SimulatedClock>,
    store: Store,
    awake: bool,
}

impl Generator for Sleepy {
    fn generate(
        &mut self,
        agent: &str,
        version: u64,
        requests: &[Request<'_>],
    ) -> Result<Vec<Response>, Failure> {
        if !std::mem::replace(&mut self.awake, true) {
            self.clock.advance(Duration::from_secs(3_600));
            self.store.run_once()?;
        }
        Echo.generate(agent, version, requests)
    }
}

#[test]
fn a_worker_that_comes_too_late_shrugs_and_goes_on() {
    let clock = Arc::new(SimulatedClock::new(Timestamp(0)));
    let f = fixture_with(Parity::default(), Options::default().clock(clock.clone()));
    f.begin();
    let Worker { name, tasks, router, environment, observer, .. } = f.worker("sleepy");
    let generator = Sleepy { clock, store: f.store.clone(), awake: false };
    let mut worker = Worker { name, tasks, router, environment, observer, generator };
    while worker.run_once().unwrap() {}
    assert_eq!(f.store.table("second").unwrap().counts().written, 12);
    let ended = |progress| f.store.claims().iter().filter(|claim| claim.progress == progress).count();
    assert_eq!(ended(ClaimProgress::Expired), 1);
}
