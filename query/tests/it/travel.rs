//! The past of a table, and where its rows come from.

use forebay_query::Kind;
use forebay_store::NewRow;
use serde_json::json;

use crate::fixture::{PROMPT, Run, finished_group};

/// Step 1 trains the checker while a row of the solver waits for its reward; step 2 trains the solver.
fn two_steps() -> Run {
    let run = Run::with_tables();
    let (solver, checker) = (run.store.table("solver").unwrap(), run.store.table("checker").unwrap());
    finished_group(&solver, 0, "q1", [1.0, 0.0]);
    finished_group(&checker, 0, "q1", [1.0, 0.0]);
    let late = solver.insert_row(NewRow::new(0, "q2_0_0").unwrap(), [("prompt", PROMPT.into())]).unwrap();
    pass(&run);
    assert_eq!(run.commit_step("checker", &["q1"]), 1);
    pass(&run);
    solver.write(late, [("reward", 0.5.into())]).unwrap();
    pass(&run);
    assert_eq!(run.commit_step("solver", &["q1"]), 2);
    finished_group(&solver, 1, "q3", [1.0, 1.0]);
    run
}

/// The clock shows another microsecond.
fn pass(run: &Run) {
    let clock = run.store.clock();
    let now = clock.now();
    while clock.now().0 <= now.0 + 1_000 {
        std::hint::spin_loop(); // cells keep when they turned final to a millisecond
    }
}

#[test]
fn a_table_as_of_a_step() {
    let run = two_steps();
    let shown = |moment: &str| {
        run.rows(&format!(
            "SELECT sample_id, reward, reward_status, step FROM as_of('solver', {moment}) ORDER BY sample_id"
        ))
    };
    let row = |id: &str, reward: Option<f64>, step: Option<u64>| json!({"sample_id": id, "reward": reward, "reward_status": reward.is_some(), "step": step});
    let late = |reward| row("q2_0_0", reward, None);
    let first = [row("q1_0_0", Some(1.0), None), row("q1_0_1", Some(0.0), None), late(None)];
    assert_eq!(shown("step => 1"), first);
    let second = [row("q1_0_0", Some(1.0), Some(2)), row("q1_0_1", Some(0.0), Some(2)), late(Some(0.5))];
    assert_eq!(shown("step => 2"), second);
    assert_eq!(shown("'STEP', 2"), second, "without names too");
    let ended = [row("q1_0_0", Some(1.0), None), row("q1_0_1", Some(0.0), None), late(Some(0.5))];
    assert_eq!(shown("version => 0"), ended, "before the step that ended it");
    let now = [&second[..], &[row("q3_0_0", Some(1.0), None), row("q3_0_1", Some(1.0), None)]].concat();
    assert_eq!(shown("version => 1"), now, "the current version: now");
    let counted =
        "SELECT count(*) AS n FROM as_of('solver', step => 1) WHERE reward_status AND policy_version = 0";
    assert_eq!(run.rows(counted), [json!({"n": 2})]);
}

#[test]
fn a_moment_that_never_was_is_refused() {
    let run = two_steps();
    for (moment, word) in [
        ("'solver', step => 3", "the last one that is is 2"),
        ("'solver', version => 9", "the current one is 1"),
        ("'solvr', step => 1", "did you mean solver?"),
        ("'solver', day => 1", "step => n or version => n"),
        ("'solver'", "a table and a moment"),
        ("'solver', step => 'x'", "a whole number"),
    ] {
        let error = run.error(&format!("SELECT * FROM as_of({moment})"), Kind::Input);
        assert!(error.contains(word), "{moment}: {error}");
    }
}

// FX-16, PL-B05
#[test]
fn a_rows_family_over_all_tables() {
    let (run, _step, _claim) = Run::busy();
    let checker = run.store.table("checker").unwrap();
    let again = NewRow::new(0, "q1_1_0").unwrap().parent("checker/q1_0_0");
    checker.insert_row(again, [("prompt", PROMPT.into())]).unwrap();
    let family = |row: &str| {
        let sql = format!("SELECT depth, table_name, sample_id FROM lineage('{row}')");
        run.rows(&sql)
            .iter()
            .map(|row| format!("{} {} {}", row["depth"], row["table_name"], row["sample_id"]))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        family("checker/q1_0_0"),
        [r#"-1 "solver" "q1_0_0""#, r#"0 "checker" "q1_0_0""#, r#"1 "checker" "q1_1_0""#]
    );
    assert_eq!(
        family("solver/q1_0_0"),
        [r#"0 "solver" "q1_0_0""#, r#"1 "checker" "q1_0_0""#, r#"2 "checker" "q1_1_0""#]
    );
    assert!(family("solver/nobody_0_0").is_empty());
    assert!(run.error("SELECT * FROM lineage('q1_0_0')", Kind::Input).contains("TABLE/SAMPLE_ID"));
    // The same by SQL alone.
    let recursive = "WITH RECURSIVE up AS (
            SELECT sample_id, parent FROM checker WHERE sample_id = 'q1_1_0'
            UNION ALL
            SELECT c.sample_id, c.parent FROM checker c JOIN up ON up.parent = 'checker/' || c.sample_id)
        SELECT sample_id FROM up";
    assert_eq!(run.column(recursive), [json!("q1_1_0"), json!("q1_0_0")]);
}
