//! Several workers, and workers that fail.

use std::sync::Arc;

use forebay_pipeline::trigger::Trigger;
use forebay_rollout_adapter::Failure;
use forebay_rollout_adapter::environment::Unobserved;
use forebay_rollout_adapter::generator::{Generator, Request, Response};
use forebay_rollout_adapter::worker::Worker;
use forebay_store::{Kind, MicroBatch, StepPlan};

use crate::support::{Echo, Parity, fixture};

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
