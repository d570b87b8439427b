//! Which rows may be trained on, which were, and by which step.

use forebay_store::{MicroBatch, StepPlan, Wait};
use serde_json::json;

use crate::fixture::{Run, finished_group};

const FRESH: &str = "SELECT sample_id FROM solver \
    WHERE policy_version = (SELECT current_version FROM system.tables WHERE table_name = 'solver') \
    AND reward_status AND NOT is_processing ORDER BY sample_id";

// FX-25, FX-12
#[test]
fn what_a_trainer_could_take_is_a_where_clause() {
    let run = Run::with_tables();
    let solver = run.store.table("solver").unwrap();
    finished_group(&solver, 0, "q1", [1.0, 0.0]);
    run.commit_step("solver", &["q1"]);
    finished_group(&solver, 1, "q2", [1.0, 0.0]);
    finished_group(&solver, 1, "q3", [1.0, 0.0]);
    solver.insert(1, "q4_0_0", []).unwrap();
    assert_eq!(run.column(FRESH), ["q2_0_0", "q2_0_1", "q3_0_0", "q3_0_1"]);

    let train = run.store.consumer("train-solver").unwrap();
    let step = run.store.begin_step(StepPlan::new().groups(&train, ["q2"])).unwrap();
    let claim = step.next(&train, MicroBatch::of(2), Wait::No).unwrap().unwrap();
    let processing = "SELECT sample_id FROM solver WHERE is_processing ORDER BY 1";
    assert_eq!(run.column(processing), ["q2_0_0", "q2_0_1"]);
    assert_eq!(run.column(FRESH), ["q3_0_0", "q3_0_1"]);

    drop(claim); // given back: readable again
    assert_eq!(run.column(FRESH).len(), 4);
    let claim = step.next(&train, MicroBatch::of(2), Wait::No).unwrap().unwrap();
    claim.accumulated().unwrap();
    assert_eq!(run.column(processing).len(), 2, "accumulated, not yet updated");
    step.commit([("solver", vec![])]).unwrap();
    assert_eq!(run.column(processing).len(), 0, "the update clears it");
}

// FX-16
#[test]
fn a_committed_step_names_exactly_its_samples() {
    let run = Run::with_tables();
    let solver = run.store.table("solver").unwrap();
    for input in ["q1", "q2", "q3"] {
        finished_group(&solver, 0, input, [1.0, 0.0]);
    }
    let first = run.commit_step("solver", &["q1", "q3"]);
    finished_group(&solver, 1, "q4", [1.0, 0.0]);
    let second = run.commit_step("solver", &["q4"]);
    let samples = |step: u64| {
        run.column(&format!("SELECT sample_id FROM solver WHERE step = {step} ORDER BY sample_id"))
    };
    assert_eq!(samples(first), ["q1_0_0", "q1_0_1", "q3_0_0", "q3_0_1"]);
    assert_eq!(samples(second), ["q4_0_0", "q4_0_1"]);
    let by_claim =
        "SELECT count(*) FROM solver s JOIN system.claims c ON s.claim = c.claim AND s.step = c.step";
    assert_eq!(run.column(by_claim), [6], "and a sample names the claim that took it there");
    let other_way = "SELECT t.step, t.state, t.rows FROM solver s JOIN system.steps t ON s.step = t.step \
                     WHERE s.sample_id = 'q4_0_1'";
    assert_eq!(run.rows(other_way), [json!({"step": second, "state": "committed", "rows": 2})]);
}

// PL-21
#[test]
fn rows_of_other_versions_are_left_out_and_counted() {
    let run = Run::with_tables();
    let solver = run.store.table("solver").unwrap();
    for version in 0..2 {
        let input = format!("w{version}");
        finished_group(&solver, version, &input, [1.0, 0.0]);
        run.commit_step("solver", &[input.as_str()]);
    }
    finished_group(&solver, 2, "q0", [1.0, 0.0]);
    finished_group(&solver, 2, "w2", [1.0, 0.0]);
    run.commit_step("solver", &["w2"]); // version 3; q0 is left behind
    finished_group(&solver, 3, "q1", [1.0, 0.0]);
    finished_group(&solver, 4, "q2", [1.0, 0.0]); // from the future
    assert_eq!(run.column(FRESH), ["q1_0_0", "q1_0_1"]);
    let counts =
        run.rows("SELECT written, consumed, excluded, open FROM system.tables WHERE table_name = 'solver'");
    assert_eq!(counts, [json!({"written": 12, "consumed": 6, "excluded": 2, "open": 4})]);
    let reasons = "SELECT excluded_reason, policy_version, count(*) AS rows FROM solver \
                   WHERE excluded_reason IS NOT NULL GROUP BY 1, 2";
    assert_eq!(run.rows(reasons), [json!({"excluded_reason": "stale", "policy_version": 2, "rows": 2})]);
    let engine = run.store.table("solver").unwrap().counts();
    assert_eq!((engine.written, engine.consumed, engine.open()), (12, 6, 4));
    let ready = "SELECT ready_rows FROM system.consumers WHERE table_name = 'solver'";
    assert_eq!(run.column(ready), [2], "a trainer would get the same two");
}
