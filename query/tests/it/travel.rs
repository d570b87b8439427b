//! The past of a table, and where its rows come from.

use forebay_query::Kind;
use forebay_store::{DataColumn, DataType, NewRow, Rewind, Schema, Value};
use serde_json::{Value as Json, json};

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

/// The columns that tell of a cell end in `_status` and `_at`, and so may the names of data.
#[test]
fn a_table_whose_own_columns_are_named_as_those_that_tell_of_cells_has_a_past_too() {
    let run = Run::empty();
    let schema = Schema::new()
        .data("exit_status", DataType::Int32)
        .data("updated_at", DataType::Int64)
        .data("seen_at", DataType::Utf8);
    run.store.create_table("runs", schema).unwrap();
    let runs = run.store.table("runs").unwrap();
    let cells = [("exit_status", 7.into()), ("updated_at", 1.into()), ("seen_at", "yesterday".into())];
    runs.insert(0, "q1_0_0", cells).unwrap();
    let sql = "SELECT exit_status AS e, exit_status_status AS es, updated_at AS u, updated_at_status AS us, updated_at_at IS NULL AS ua, \
               seen_at AS s, seen_at_status AS ss, seen_at_at = seen_at_at AS sa FROM as_of('runs', version => 0)";
    let now = json!({"e": 7, "es": true, "u": 1, "us": true, "ua": false, "s": "yesterday", "ss": true, "sa": true});
    assert_eq!(run.rows(sql), [now]);
    let error = run.error("SELECT version_spans FROM as_of('runs', version => 0)", Kind::Input);
    assert!(error.contains("is not kept"), "{error}");
}

// PL-B08: what was undone is no past of the run
#[test]
fn the_past_after_a_rewind_is_that_of_the_steps_that_still_count() {
    let run = two_steps();
    let shown = |moment: &str| {
        run.rows(&format!(
            "SELECT sample_id, step FROM as_of('solver', {moment}) WHERE step IS NOT NULL ORDER BY 1"
        ))
    };
    let trained = |step: u64| ["q1_0_0", "q1_0_1"].map(|id| json!({"sample_id": id, "step": step}));
    assert_eq!(shown("step => 2"), trained(2));
    run.store.rewind(1, Rewind::TrainAgain).unwrap();
    assert_eq!(shown("step => 1"), [] as [Json; 0]);
    let undone = run.error("SELECT * FROM as_of('solver', step => 2)", Kind::Input);
    assert!(undone.contains("the last one that is is 1"), "{undone}");
    let not_there = run.error("SELECT * FROM as_of('solver', version => 1)", Kind::Input);
    assert!(not_there.contains("the current one is 0"), "{not_there}");
    assert_eq!(shown("version => 0"), [] as [Json; 0], "the current version: now, and nothing is trained on");
    pass(&run);
    let again = run.commit_step("solver", &["q1"]);
    assert!(again > 2, "numbers of undone steps are not given out again");
    assert_eq!(shown(&format!("step => {again}")), trained(again));
    assert_eq!(shown("version => 1"), trained(again));
    assert_eq!(shown("step => 1"), [] as [Json; 0]);
    assert_eq!(shown("version => 0"), [] as [Json; 0]);
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

/// The family of a row as `DEPTH TABLE/SAMPLE@VERSION`.
fn family(run: &Run, row: &str) -> Vec<String> {
    let text = |row: &Json, column: &str| row[column].as_str().unwrap().to_owned();
    let shown = |row: &Json| {
        let (table, sample) = (text(row, "table_name"), text(row, "sample_id"));
        format!("{} {table}/{sample}@{}", row["depth"], row["policy_version"])
    };
    run.rows(&format!("SELECT * FROM lineage({row})")).iter().map(shown).collect()
}

/// Tables `solver`, `checker` and `judge`, which number their agents by place.
fn routed() -> Run {
    let run = Run::empty();
    for agent in ["solver", "checker", "judge"] {
        let schema = Schema::new().data("next_agent_id", DataType::Int32);
        run.store.create_table(agent, schema).unwrap();
    }
    run
}

/// A row that says which agent goes on, and names no parent.
fn hand_on(run: &Run, table: &str, version: u64, sample: &str, next: Option<i32>) {
    let next = next.map_or(Value::Null, Value::from);
    run.store.table(table).unwrap().insert(version, sample, [("next_agent_id", next)]).unwrap();
    pass(run);
}

// FX-16, FX-19: the trajectory goes on in the next agent's table, one turn on
#[test]
fn a_trajectory_is_followed_by_its_next_agents_where_no_row_names_a_parent() {
    let run = routed();
    for trajectory in 0..2 {
        hand_on(&run, "solver", 0, &format!("q1_0_{trajectory}"), Some(2));
        hand_on(&run, "judge", 0, &format!("q1_1_{trajectory}"), Some(1));
        hand_on(&run, "checker", 0, &format!("q1_2_{trajectory}"), None);
    }
    // Of the same turns, and nobody's next.
    hand_on(&run, "checker", 0, "q1_1_0", Some(0));
    hand_on(&run, "judge", 0, "q2_1_0", None);
    let whole = |first: i32| {
        let rows = ["solver/q1_0_0@0", "judge/q1_1_0@0", "checker/q1_2_0@0"];
        (first..).zip(rows).map(|(depth, row)| format!("{depth} {row}")).collect::<Vec<_>>()
    };
    assert_eq!(family(&run, "'solver/q1_0_0'"), whole(0));
    assert_eq!(family(&run, "'judge/q1_1_0'"), whole(-1));
    assert_eq!(family(&run, "'checker/q1_2_0'"), whole(-2));
    assert_eq!(family(&run, "'checker/q1_1_0'"), ["0 checker/q1_1_0@0"]);
}

#[test]
fn a_trajectory_that_goes_on_for_ever_ends_where_its_rows_do() {
    let run = routed();
    for turn in 0..6 {
        let (table, next) = if turn % 2 == 0 { ("solver", 1) } else { ("checker", 0) };
        hand_on(&run, table, 0, &format!("q1_{turn}_0"), Some(next));
    }
    let found = family(&run, "'solver/q1_2_0'");
    assert_eq!(found.first().unwrap(), "-2 solver/q1_0_0@0");
    assert_eq!(found.last().unwrap(), "3 checker/q1_5_0@0");
    assert_eq!(found.len(), 6);
    // Rows that name each other.
    for (sample, parent) in [("a_0_0", "solver/b_0_0"), ("b_0_0", "solver/a_0_0"), ("c_0_0", "solver/c_0_0")]
    {
        let row = NewRow::new(0, sample).unwrap().parent(parent);
        run.store.table("solver").unwrap().insert_row(row, []).unwrap();
    }
    assert_eq!(family(&run, "'solver/a_0_0'"), ["-1 solver/b_0_0@0", "0 solver/a_0_0@0"]);
    assert_eq!(family(&run, "'solver/c_0_0'"), ["0 solver/c_0_0@0"]);
}

#[test]
fn a_sample_of_several_versions_has_as_many_families() {
    let run = routed();
    let child = |table: &str, version: u64, sample: &str, parent: &str| {
        let row = NewRow::new(version, sample).unwrap().parent(parent);
        run.store.table(table).unwrap().insert_row(row, []).unwrap();
        pass(&run);
    };
    for version in [0, 1] {
        hand_on(&run, "solver", version, "q1_0_0", Some(1));
        hand_on(&run, "checker", version, "q1_1_0", None);
        child("judge", version, "q1_2_0", "checker/q1_1_0");
    }
    child("judge", 5, "q1_3_0", "checker/q1_1_0"); // the judge's policy has versions of its own
    let of = |version: u64| {
        let row = |depth: i32, row: &str| format!("{depth} {row}@{version}");
        vec![row(-1, "solver/q1_0_0"), row(0, "checker/q1_1_0"), row(1, "judge/q1_2_0")]
    };
    assert_eq!(family(&run, "'checker/q1_1_0', version => 0"), of(0));
    let newest = [of(1), vec!["1 judge/q1_3_0@5".to_owned()]].concat();
    assert_eq!(family(&run, "'checker/q1_1_0', version => 1"), newest);
    assert_eq!(family(&run, "'checker/q1_1_0', VERSION => 2"), [] as [String; 0]);
    assert_eq!(family(&run, "'checker/q1_1_0'").len(), 7, "without a version: both");
    assert_eq!(family(&run, "'judge/q1_3_0'")[..2], ["-2 solver/q1_0_0@1", "-1 checker/q1_1_0@1"]);
    for (arguments, words) in [
        ("'solver/q1_0_0', version => 'x'", "a whole number"),
        ("'solver/q1_0_0', step => 1", "version => n"),
        ("'solver/q1_0_0', 1", "one row, and maybe its version"),
    ] {
        let error = run.error(&format!("SELECT * FROM lineage({arguments})"), Kind::Input);
        assert!(error.contains(words), "{arguments}: {error}");
    }
}

#[test]
fn an_unfinished_older_version_does_not_go_on_in_a_later_one() {
    let run = routed();
    hand_on(&run, "solver", 4, "q1_0_0", Some(1)); // its checker never came
    hand_on(&run, "solver", 5, "q1_0_0", Some(1)); // its checker's policy has moved meanwhile
    hand_on(&run, "checker", 6, "q1_1_0", None);
    hand_on(&run, "solver", 8, "q1_0_0", Some(1)); // nor did this one's
    hand_on(&run, "solver", 9, "q1_0_0", Some(1));
    hand_on(&run, "checker", 9, "q1_1_0", None);
    for (row, whole) in [
        ("'solver/q1_0_0', version => 8", vec!["0 solver/q1_0_0@8"]),
        ("'solver/q1_0_0', version => 9", vec!["0 solver/q1_0_0@9", "1 checker/q1_1_0@9"]),
        ("'checker/q1_1_0', version => 9", vec!["-1 solver/q1_0_0@9", "0 checker/q1_1_0@9"]),
        ("'solver/q1_0_0', version => 4", vec!["0 solver/q1_0_0@4"]),
        ("'checker/q1_1_0', version => 6", vec!["-1 solver/q1_0_0@5", "0 checker/q1_1_0@6"]),
    ] {
        assert_eq!(family(&run, row), whole, "{row}");
    }
}

#[test]
fn agents_that_share_a_table_or_are_named_are_followed_too() {
    let run = Run::empty();
    let shared =
        run.store.create_table("shared", Schema::new().data("next_agent_id", DataType::Int32)).unwrap();
    let named = run.store.create_table("named", Schema::new()).unwrap();
    named.add_column(DataColumn::new("next_agent_id", DataType::Utf8)).unwrap();
    for (turn, agent, next) in [(0, "first", Some(1)), (1, "second", Some(0)), (2, "first", None)] {
        let row = NewRow::new(0, &format!("q1_{turn}_0")).unwrap().agent(agent);
        shared.insert_row(row, [("next_agent_id", next.map_or(Value::Null, Value::from))]).unwrap();
        pass(&run);
    }
    let rows = ["0 shared/q1_0_0@0", "1 shared/q1_1_0@0", "2 shared/q1_2_0@0"];
    assert_eq!(family(&run, "'shared/q1_0_0'"), rows);
    named.insert(0, "q2_0_0", [("next_agent_id", "judge".into())]).unwrap();
    pass(&run);
    named.insert_row(NewRow::new(0, "q2_1_0").unwrap().agent("judge"), []).unwrap();
    assert_eq!(family(&run, "'named/q2_0_0'"), ["0 named/q2_0_0@0", "1 named/q2_1_0@0"]);
}

// `IS TRUE`, which a status of the past is made of, is NULL in one half of the planner and not in the other.
#[test]
fn the_past_is_grouped_by_its_status() {
    let (run, _step, _claim) = Run::busy();
    let past = "FROM as_of('solver', step => 1) GROUP BY reward_status ORDER BY 1";
    assert_eq!(
        run.rows(&format!("SELECT reward_status AS s, count(*) AS n {past}")),
        [json!({"s": true, "n": 4})]
    );
    let none = "SELECT reward_status AS s, min(reward) AS low FROM as_of('solver', version => 0) GROUP BY 1";
    assert_eq!(run.rows(none).len(), 1);
}

// The engine moves lengths of lists below a join, and gives two of them one name.
#[test]
fn lengths_in_joins_of_the_past_are_told_apart() {
    let (run, _step, _claim) = Run::busy();
    let lengths = "SELECT sum(array_length(b.response)) AS n FROM as_of('solver', step => 1) a \
                   FULL JOIN as_of('checker', step => 1) b ON a.sample_id = b.sample_id AND a.policy_version = b.policy_version \
                   WHERE a.reward <> 0.1 OR (b.reward = 0.25 AND array_length(a.response) IS NULL)";
    assert_eq!(run.rows(lengths).len(), 1);
}
