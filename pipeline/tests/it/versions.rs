//! Versions of policies over steps.

use forebay_pipeline::version::VersionVector;
use forebay_store::{Consumer, DataType, MicroBatch, Schema, StepPlan, Wait};

use crate::support::fixture;

// PL-21
#[test]
fn only_rows_of_the_current_version_are_dispatched_and_the_rest_is_counted() {
    let f = fixture(None);
    f.store.create_policy("late", 2, &[]).unwrap();
    let schema = Schema::new().data("reward", DataType::Float32).policy("late");
    let table = f.store.create_table("late", schema).unwrap();
    let train = f.store.create_consumer("train-late", Consumer::trainer(["late"]).ready(["reward"])).unwrap();
    let reward = || [("reward", 1.0.into())];
    table.insert(2, "a_0_0", reward()).unwrap();
    table.insert(2, "a_0_1", reward()).unwrap();
    for (id, version) in [("b_0_0", 3), ("b_0_1", 3), ("b_0_2", 4)] {
        table.insert(version, id, reward()).unwrap();
    }
    // One row of version 2 is trained on; the other stays behind when the policy moves to 3.
    let step = f.store.begin_step(StepPlan::new().rows(&train, 1)).unwrap();
    step.next(&train, MicroBatch::of(1), Wait::No).unwrap().unwrap().accumulated().unwrap();
    step.commit([("late", vec![])]).unwrap();
    assert_eq!(VersionVector::current(&f.store).of("late"), Some(3));
    assert_eq!(table.counts().excluded["stale"], 1);

    let step = f.store.begin_step(StepPlan::new().rows(&train, 3)).unwrap();
    let claim = step.next(&train, MicroBatch::up_to(9), Wait::No).unwrap().unwrap();
    assert_eq!(claim.sample_ids().iter().map(ToString::to_string).collect::<Vec<_>>(), ["b_0_0", "b_0_1"]);
    let counts = table.counts();
    assert_eq!(counts.written, counts.consumed + counts.excluded.values().sum::<u64>() + counts.open());
}

// FX-94, FX-38, FX-32
#[test]
fn a_policy_without_samples_in_a_step_keeps_its_version() {
    let f = fixture(None);
    let other = f.store.create_table("other", Schema::new().data("reward", DataType::Float32)).unwrap();
    let train_other =
        f.store.create_consumer("train-other", Consumer::trainer(["other"]).ready(["reward"])).unwrap();
    other.insert(0, "q_0_0", [("reward", 1.0.into())]).unwrap();
    let plan = StepPlan::new().rows(&f.train, 0).rows(&train_other, 1);
    let step = f.store.begin_step(plan).unwrap();
    assert!(
        step.next(&f.train, MicroBatch::of(16), Wait::Forever).unwrap().is_none(),
        "nothing planned, nothing waited for"
    );
    step.next(&train_other, MicroBatch::of(1), Wait::No).unwrap().unwrap().accumulated().unwrap();
    step.commit([("other", vec![])]).unwrap();
    assert_eq!(f.store.policy("solver").unwrap().version, 0);
    assert_eq!(f.store.policy("other").unwrap().version, 1);

    let empty = f.store.begin_step(StepPlan::new().rows(&f.train, 0)).unwrap();
    let error = empty.commit([("solver", vec![])]).unwrap_err().to_string();
    assert!(error.contains("no accumulated rows"), "{error}");
    assert_eq!(f.store.policy("solver").unwrap().version, 0);
}

// FX-92, FX-32: agents update together; who is done first waits for the others of the step
#[test]
fn agents_with_other_schemas_and_batch_sizes_share_a_step() {
    let f = fixture(None);
    let schema = Schema::new().data("verdict", DataType::Bool).data("reward", DataType::Float64);
    let judge = f.store.create_table("judge", schema).unwrap();
    let train_judge = f
        .store
        .create_consumer("train-judge", Consumer::trainer(["judge"]).ready(["verdict", "reward"]))
        .unwrap();
    (0..4).for_each(|i| f.finished_row(0, &format!("q_0_{i}")));
    (0..3).for_each(|i| {
        drop(judge.insert(0, &format!("q_1_{i}"), [("verdict", true.into()), ("reward", 0.5.into())]));
    });
    let step = f.store.begin_step(StepPlan::new().rows(&f.train, 4).rows(&train_judge, 3)).unwrap();
    for (consumer, size, table) in
        [(&f.train, 2, "solver"), (&f.train, 2, "solver"), (&train_judge, 3, "judge")]
    {
        let claim = step.next(consumer, MicroBatch::of(size), Wait::No).unwrap().unwrap();
        // FX-93: a micro-batch mixes no agents
        assert_eq!((claim.table(), claim.len()), (table, size));
        if table == "judge" {
            let early = step.commit([("solver", vec![])]).unwrap_err().to_string();
            assert!(early.contains("leased"), "{early}");
        }
        claim.accumulated().unwrap();
        let versions = ["solver", "judge"].map(|policy| f.store.policy(policy).unwrap().version);
        assert_eq!(versions, [0, 0], "nobody is ahead");
    }
    assert!(step.commit([("solver", vec![])]).is_err(), "nor left behind");
    assert_eq!(step.commit([("solver", vec![]), ("judge", vec![])]).unwrap().rows, 7);
    let versions = ["solver", "judge"].map(|policy| f.store.policy(policy).unwrap().version);
    assert_eq!(versions, [1, 1]);
}

// FX-26
#[test]
fn a_late_rollout_of_an_old_version_is_refused() {
    let f = fixture(None);
    let late = f.solver.insert(0, "late_0_0", [("response", "a".into())]).unwrap();
    f.finished_row(0, "q_0_0");
    let step = f.store.begin_step(StepPlan::new().rows(&f.train, 1)).unwrap();
    step.next(&f.train, MicroBatch::of(1), Wait::No).unwrap().unwrap().accumulated().unwrap();
    step.commit([("solver", vec![])]).unwrap();
    let insert = f.solver.insert(0, "q_0_1", []).unwrap_err().to_string();
    assert!(insert.contains("version 0 is stale") && insert.contains("at 1"), "{insert}");
    let write = f.solver.write(late, [("reward", 1.0.into())]).unwrap_err().to_string();
    assert!(write.contains("excluded (stale)"), "{write}");
}
