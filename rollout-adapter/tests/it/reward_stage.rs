//! Between rollout and dispatch sits the reward stage.

use forebay_store::{Cell, MicroBatch, SampleId, StepPlan, Wait};

use crate::support::{GROUP, Parity, fixture};

// FX-97: the reward's status is false until the stage ran, and so nothing is dispatched
#[test]
fn a_response_without_its_reward_is_not_dispatched() {
    let f = fixture(Parity::default());
    f.begin();
    let step = f.store.begin_step(StepPlan::new().groups(&f.trainers[0], f.keys(0))).unwrap();
    let mut worker = f.worker("one");
    assert!(worker.run_once().unwrap(), "the first piece of work is a group's responses");
    assert!(step.next(&f.trainers[0], MicroBatch::of(GROUP as usize), Wait::No).unwrap().is_none());
    assert!(worker.run_once().unwrap(), "then their rewards");
    assert_eq!(
        step.next(&f.trainers[0], MicroBatch::of(GROUP as usize), Wait::No).unwrap().unwrap().len(),
        4
    );
}

// FX-97: a failing reward function leaves the row undispatched and visible; it does not become a reward of 0
#[test]
fn a_failing_reward_leaves_its_row_out_and_the_step_goes_on() {
    let f = fixture(Parity { fails: vec![2] });
    f.begin();
    let plan = StepPlan::new().groups(&f.trainers[0], f.keys(0)).groups(&f.trainers[1], f.keys(1));
    let step = f.store.begin_step(plan).unwrap();
    f.drain();
    for (trainer, table) in f.trainers.iter().zip(["first", "second"]) {
        let mut rows = 0;
        while let Some(claim) = step.next(trainer, MicroBatch::of(8), Wait::No).unwrap() {
            assert!(claim.sample_ids().iter().all(|sample| sample.trajectory() != 2));
            rows += claim.len();
            claim.accumulated().unwrap();
        }
        assert!(step.is_complete(trainer));
        assert_eq!(rows, 9, "three groups of four, each one short");
        let counts = f.store.table(table).unwrap().counts();
        let reason =
            if table == "first" { "reward_failed: the verifier has no opinion" } else { "parent_excluded" };
        assert_eq!(counts.excluded[reason], 3, "{counts:?}");
    }
    step.commit([("first", vec![]), ("second", vec![])]).unwrap();
    let first = f.store.table("first").unwrap();
    let sample = SampleId::new(&f.membership.inputs()[0], 0, 2).unwrap();
    let row = first.find(0, &sample).unwrap();
    assert!(
        matches!(first.cell(row, "response").unwrap(), Cell::Bytes(_)),
        "what was generated stays to be seen"
    );
    assert!(matches!(first.cell(row, "reward").unwrap(), Cell::Empty));
}
