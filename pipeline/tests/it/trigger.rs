//! When a micro-batch is dispatched, and what is in it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use forebay_pipeline::trigger::Trigger;
use forebay_store::{MicroBatch, StepPlan, Wait};
use futures_core::Stream;

use crate::support::fixture;

// FX-27
#[test]
fn the_sixteenth_row_dispatches_exactly_sixteen() {
    let f = fixture(None);
    let step = f.store.begin_step(StepPlan::new().rows(&f.train, 64)).unwrap();
    let next = || step.next(&f.train, MicroBatch::of(16), Wait::No).unwrap();
    (0..15).for_each(|i| f.finished_row(0, &format!("q_0_{i}")));
    assert!(next().is_none());
    f.finished_row(0, "q_0_15");
    let first = next().unwrap();
    assert_eq!(first.len(), 16);
    assert!(next().is_none());
    (16..56).for_each(|i| f.finished_row(0, &format!("q_0_{i}")));
    let (second, third) = (next().unwrap(), next().unwrap());
    assert_eq!((second.len(), third.len()), (16, 16));
    assert!(next().is_none(), "eight wait");
}

// FX-28
#[test]
fn a_row_without_its_reward_is_not_dispatched() {
    let f = fixture(None);
    let step = f.store.begin_step(StepPlan::new().rows(&f.train, 1)).unwrap();
    let row = f.solver.insert(0, "q_0_0", [("response", "a".into())]).unwrap();
    assert!(step.next(&f.train, MicroBatch::of(1), Wait::No).unwrap().is_none());
    f.solver.write(row, [("reward", 0.0.into())]).unwrap();
    assert_eq!(step.next(&f.train, MicroBatch::of(1), Wait::No).unwrap().unwrap().len(), 1);
}

// FX-37: whole groups only, by key and never by adjacency
#[test]
fn a_micro_batch_holds_whole_groups() {
    let f = fixture(Some(4));
    let step = f.store.begin_step(StepPlan::new().groups(&f.train, ["a", "b"])).unwrap();
    let next = || step.next(&f.train, MicroBatch::of(4), Wait::No).unwrap();
    for sample in ["a_0_1", "a_0_2", "a_0_3", "b_0_0", "b_0_1"] {
        f.finished_row(0, sample);
    }
    assert!(next().is_none(), "four rows in a row, of two inputs, are no group");
    f.finished_row(0, "a_0_0");
    let claim = next().unwrap();
    assert_eq!(
        claim.sample_ids().iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["a_0_0", "a_0_1", "a_0_2", "a_0_3"]
    );
}

// FX-38
#[test]
fn the_last_micro_batch_of_a_step_may_be_smaller() {
    let f = fixture(Some(2));
    let step = Arc::new(f.store.begin_step(StepPlan::new().groups(&f.train, ["a", "b", "c"])).unwrap());
    for input in ["a", "b", "c"] {
        (0..2).for_each(|t| f.finished_row(0, &format!("{input}_0_{t}")));
    }
    let mut sizes = Vec::new();
    for claim in Trigger::new(step.clone(), &f.train, MicroBatch::of(4)) {
        let claim = claim.unwrap();
        sizes.push(claim.len());
        claim.accumulated().unwrap();
    }
    assert_eq!(sizes, [4, 2]);
}

#[test]
fn a_waiting_thread_gets_the_micro_batch_that_completes() {
    let f = fixture(None);
    let step = Arc::new(f.store.begin_step(StepPlan::new().rows(&f.train, 8)).unwrap());
    std::thread::scope(|scope| {
        let mut trigger = Trigger::new(step.clone(), &f.train, MicroBatch::of(8));
        let waiting = scope.spawn(move || trigger.next().unwrap().unwrap().len());
        (0..8).for_each(|i| f.finished_row(0, &format!("q_0_{i}")));
        assert_eq!(waiting.join().unwrap(), 8);
    });
}

#[derive(Default)]
struct CountingWaker(AtomicUsize);

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn the_stream_wakes_its_task_and_ends_with_the_plan() {
    let f = fixture(None);
    let step = Arc::new(f.store.begin_step(StepPlan::new().rows(&f.train, 1)).unwrap());
    let mut trigger = Trigger::new(step, &f.train, MicroBatch::of(1));
    let counter = Arc::new(CountingWaker::default());
    let waker = Waker::from(counter.clone());
    let mut context = Context::from_waker(&waker);
    assert!(Pin::new(&mut trigger).poll_next(&mut context).is_pending());
    f.finished_row(0, "q_0_0");
    assert!(counter.0.load(Ordering::SeqCst) > 0, "the write wakes the task");
    let Poll::Ready(Some(Ok(claim))) = Pin::new(&mut trigger).poll_next(&mut context) else {
        panic!("a claim is ready")
    };
    claim.accumulated().unwrap();
    assert!(matches!(Pin::new(&mut trigger).poll_next(&mut context), Poll::Ready(None)));
}

// FX-39
#[test]
fn a_sample_is_dispatched_once_until_its_claim_ends() {
    let f = fixture(None);
    let step = f.store.begin_step(StepPlan::new().rows(&f.train, 1)).unwrap();
    f.finished_row(0, "q_0_0");
    let claim = step.next(&f.train, MicroBatch::of(1), Wait::No).unwrap().unwrap();
    assert!(step.next(&f.train, MicroBatch::of(1), Wait::No).unwrap().is_none());
    drop(claim);
    let again = step.next(&f.train, MicroBatch::of(1), Wait::No).unwrap().unwrap();
    assert_eq!(again.sequence_in_step(), 1, "a claim of its own");
    again.accumulated().unwrap();
    step.commit([("solver", vec![])]).unwrap();
}
