//! What a scan leaves out, and that the answers stay what they are.

use forebay_query::{Options, Session};
use forebay_store::{CHUNK_ROWS, Delete, NewRow, Origin, Value};
use serde_json::{Value as Json, json};

use crate::fixture::{PROMPT, Run};

/// Three versions, a chunk of rows each, with prompts and lists in extents.
fn large() -> Run {
    let run = Run::with_tables();
    let solver = run.store.table("solver").unwrap();
    let rows = 3 * CHUNK_ROWS as u32;
    let mut batch = run.store.batch();
    for i in 0..rows {
        let version = u64::from(i / CHUNK_ROWS as u32);
        let tokens: Vec<i32> = (0..i as i32 % 40).collect();
        let cells: [(&str, Value<'_>); 3] = [
            ("prompt", PROMPT.into()),
            ("response", (&tokens[..]).into()),
            ("reward", f64::from(i % 1000).into()),
        ];
        let given = if i % 11 == 0 { 1 } else { 3 };
        let row = NewRow::new(version, &format!("q{}_{}_{}", i / 8, i % 2, i % 8)).unwrap();
        batch.insert(&solver, row, cells.into_iter().take(given)).unwrap();
    }
    batch.commit().unwrap();
    run
}

fn plan(run: &Run, sql: &str) -> String {
    run.rows(&format!("EXPLAIN ANALYZE {sql}"))[0]["plan"].as_str().unwrap().to_owned()
}

fn reads(run: &Run, sql: &str) -> u64 {
    let before = run.store.stats().value_reads;
    run.rows(sql);
    run.store.stats().value_reads - before
}

#[test]
fn parts_of_other_versions_are_never_looked_at() {
    let run = large();
    for (condition, pruned, rows) in [
        ("policy_version = 1", 2, CHUNK_ROWS),
        ("policy_version BETWEEN 1 AND 2", 1, 2 * CHUNK_ROWS),
        ("policy_version > 7", 3, 0),
        ("policy_version IN (0, 2)", 1, 2 * CHUNK_ROWS),
        ("policy_version <> 1", 1, 2 * CHUNK_ROWS),
        ("policy_version >= 0", 0, 3 * CHUNK_ROWS),
    ] {
        let sql = format!("SELECT sample_id FROM solver WHERE {condition}");
        let plan = plan(&run, &sql);
        assert!(plan.contains(&format!("parts_pruned={pruned}")), "{condition}: {plan}");
        assert_eq!(run.column(&sql).len(), rows, "{condition}");
    }
}

/// Each question with whether rows have to be looked at for it.
#[test]
fn what_the_parts_know_is_told_without_a_look_at_a_row() {
    let run = large();
    let solver = run.store.table("solver").unwrap();
    let all = "SELECT count(*) AS n, min(policy_version) AS low, max(policy_version) AS high FROM solver";
    let check = |sql: &str, looked_at: bool, expected: Json| {
        let plan = plan(&run, sql);
        assert_eq!(plan.contains("Scan:"), looked_at, "{sql}: {plan}");
        assert_eq!(run.rows(sql), [expected], "{sql}");
    };
    let rows = 3 * CHUNK_ROWS;
    check(all, false, json!({"n": rows, "low": 0, "high": 2}));
    check("SELECT count(sample_id) AS n, count(turn) AS m FROM solver", false, json!({"n": rows, "m": rows}));
    check("SELECT count(reward) AS n FROM solver", true, json!({"n": rows - rows.div_ceil(11)}));
    let of_two = format!("{all} WHERE policy_version > 0");
    check(&of_two, true, json!({"n": 2 * CHUNK_ROWS, "low": 1, "high": 2}));
    let limited =
        "SELECT count(*) AS n, max(policy_version) AS high FROM (SELECT policy_version FROM solver LIMIT 5)";
    check(limited, true, json!({"n": 5, "high": 0}));

    let last =
        |input: u32| solver.find(2, &format!("q{input}_{}_{}", input % 2, 0).parse().unwrap()).unwrap();
    solver.delete(&Delete::rows([last(1500)]).force()).unwrap();
    check(all, true, json!({"n": rows - 1, "low": 0, "high": 2}));
    solver.delete(&Delete::version(2).force()).unwrap();
    check(all, false, json!({"n": 2 * CHUNK_ROWS, "low": 0, "high": 1}));
    let origin = Origin { peer: "berlin".to_owned(), round: 1 };
    solver.insert_row(NewRow::new(9, "x_0_0").unwrap().external(&origin), []).unwrap();
    check(all, true, json!({"n": 2 * CHUNK_ROWS + 1, "low": 0, "high": 9}));
}

#[test]
fn what_is_sorted_by_version_is_read_from_the_end_that_is_wanted() {
    let run = large();
    for (wanted, version) in [
        ("policy_version DESC LIMIT 5", 2),
        ("policy_version LIMIT 5", 0),
        ("policy_version DESC, sample_id LIMIT 5", 2),
        ("policy_version DESC NULLS LAST, turn DESC LIMIT 5", 2),
    ] {
        let sql = format!("SELECT policy_version, sample_id, reward FROM solver ORDER BY {wanted}");
        let plan = plan(&run, &sql);
        assert!(plan.contains("parts_pruned=2"), "{wanted}: {plan}");
        assert!(plan.contains("parts_scanned=1"), "{wanted}: {plan}");
        let wanted_rows = run.column(&format!("SELECT sample_id FROM (SELECT * FROM solver WHERE policy_version = {version}) AS x ORDER BY sample_id LIMIT 5"));
        assert_eq!(
            run.column(&sql),
            [json!(version), json!(version), json!(version), json!(version), json!(version)],
            "{wanted}"
        );
        if wanted.contains("sample_id") {
            let ids = run.column(&format!("SELECT sample_id FROM ({sql}) AS x"));
            assert_eq!(ids, wanted_rows, "{wanted}");
        }
    }
    // Everything is read where everything is wanted, and it comes in order.
    let all = run.column("SELECT policy_version FROM solver ORDER BY policy_version DESC");
    let versions: Vec<u64> = all.iter().filter_map(Json::as_u64).collect();
    assert_eq!(versions.len(), 3 * CHUNK_ROWS);
    assert!(versions.is_sorted_by(|one, next| one >= next));
}

#[test]
fn a_sample_is_looked_for_by_its_numbers() {
    let run = large();
    let sql = "SELECT policy_version, turn FROM solver WHERE sample_id = 'q600_1_3'";
    assert!(plan(&run, sql).contains("parts_pruned=2"), "{}", plan(&run, sql));
    assert_eq!(run.rows(sql), [json!({"policy_version": 1, "turn": 1})]);
    for none in ["no sample", "q600_0_3", "q99999_1_3"] {
        let sql = format!("SELECT 1 FROM solver WHERE sample_id = '{none}'");
        assert!(plan(&run, &sql).contains("parts_pruned=3"), "{none}");
        assert!(run.rows(&sql).is_empty());
    }
    let several = "SELECT count(*) AS n FROM solver WHERE sample_id IN ('q0_0_0', 'q1535_1_7', 'gone_0_0')";
    assert_eq!(run.rows(several), [json!({"n": 2})]);
}

#[test]
fn inputs_and_groups_are_looked_for_by_their_numbers() {
    let run = large();
    let group = run.column("SELECT group_key FROM solver WHERE sample_id = 'q600_0_0'")[0].clone();
    let group = group.as_str().unwrap();
    for (condition, pruned, rows) in [
        ("input_id = 'q600'".to_owned(), 2, 8),
        ("input_id IN ('q1', 'q2', 'nobody')".to_owned(), 2, 16),
        ("input_id IN ('q1', 'q600')".to_owned(), 1, 16),
        ("input_id = 'nobody'".to_owned(), 3, 0),
        ("input_id = 'q600' AND policy_version = 0".to_owned(), 3, 0),
        ("input_id <> 'q600'".to_owned(), 0, 3 * CHUNK_ROWS - 8),
        ("input_id = 'q600' OR policy_version = 2".to_owned(), 0, CHUNK_ROWS + 8),
        (format!("group_key = '{group}'"), 2, 8),
        (format!("group_key IN ('{group}', 'nobody')"), 2, 8),
        ("group_key = 'nobody'".to_owned(), 3, 0),
    ] {
        let sql = format!("SELECT sample_id FROM solver WHERE {condition}");
        let plan = plan(&run, &sql);
        assert!(plan.contains(&format!("parts_pruned={pruned}")), "{condition}: {plan}");
        assert_eq!(run.column(&sql).len(), rows, "{condition}");
    }
}

// FX-23, FX-B05
#[test]
fn values_are_read_of_rows_that_are_left_alone() {
    let run = large();
    let left = "reward = 7 AND response_status";
    let count = run.rows(&format!("SELECT count(*) AS n FROM solver WHERE {left}"))[0]["n"].as_u64().unwrap();
    assert!(count > 5);
    assert_eq!(reads(&run, &format!("SELECT prompt FROM solver WHERE {left}")), count);
    assert_eq!(reads(&run, &format!("SELECT sample_id FROM solver WHERE {left}")), 0);
    // A condition on a value is looked at last, for the rows that the others leave.
    let both = format!("SELECT sample_id FROM solver WHERE prompt LIKE 'What%' AND {left}");
    assert_eq!((reads(&run, &both), run.rows(&both).len() as u64), (count, count));
}

// FX-23
#[test]
fn lengths_of_lists_are_known_without_the_lists() {
    let run = large();
    for sql in [
        "SELECT token_length(response) AS n FROM solver",
        "SELECT array_length(response) AS n FROM solver",
        "SELECT policy_version, avg(token_length(response)), max(cardinality(response)) FROM solver GROUP BY 1",
        "SELECT sample_id FROM solver WHERE token_length(response) > 30 AND array_length(response) < 35",
        "SELECT approx_percentile_cont(token_length(response), 0.5) FROM solver WHERE policy_version = 1",
        "SELECT policy_version, percentile_cont(0.5) WITHIN GROUP (ORDER BY CAST(array_length(response) AS DOUBLE))
         FROM solver GROUP BY policy_version",
        "SELECT sample_id FROM solver ORDER BY token_length(response) DESC, sample_id LIMIT 3",
        "SELECT max(n) FROM (SELECT token_length(response) * 2 AS n FROM solver) t",
    ] {
        assert_eq!(reads(&run, sql), 0, "{sql}\n{:?}", run.rows(&format!("EXPLAIN {sql}")));
    }
    // The same as of lists that are read: 1 is added to each element, so that the list has to be.
    let differ = "SELECT count(*) AS n FROM solver
        WHERE token_length(response) IS DISTINCT FROM token_length(array_append(response, 1)) - 1";
    assert_eq!(
        run.rows(differ)[0]["n"],
        json!(run.rows("SELECT count(*) AS n FROM solver WHERE response IS NULL")[0]["n"])
    );
    let sums = "SELECT sum(token_length(response)) AS n, count(token_length(response)) AS lists, count(*) AS rows FROM solver";
    let expected: Vec<u32> = (0..3 * CHUNK_ROWS as u32).filter(|i| i % 11 != 0).map(|i| i % 40).collect();
    let (sum, lists) = (expected.iter().sum::<u32>(), expected.len());
    assert_eq!(run.rows(sums), [json!({"n": sum, "lists": lists, "rows": 3 * CHUNK_ROWS})]);
}

#[test]
fn the_best_of_many_read_few_values() {
    let run = large();
    let sql = "SELECT reward AS best, prompt FROM solver WHERE reward IS NOT NULL ORDER BY reward DESC, sample_id LIMIT 3";
    let read = reads(&run, sql);
    assert!(read < CHUNK_ROWS as u64, "{read} of {} values were read for three rows", 3 * CHUNK_ROWS);
    assert_eq!(run.column(sql), [json!(999.0), json!(999.0), json!(999.0)]);
}

#[test]
fn partitions_change_no_answer() {
    let run = large();
    let many = Session::with_options(&run.store, &Options::default().partitions(3)).unwrap();
    for sql in [
        "SELECT policy_version, count(*), sum(reward), count(response) FROM solver GROUP BY 1 ORDER BY 1",
        "SELECT sample_id, reward FROM solver WHERE reward > 990 ORDER BY reward, policy_version, sample_id LIMIT 40",
        "SELECT a.sample_id FROM solver a JOIN solver b ON a.sample_id = b.sample_id WHERE b.reward = 5 ORDER BY 1",
        "SELECT count(*) FROM (SELECT sample_id FROM solver LIMIT 5000)",
    ] {
        let one = run.session.sql_blocking(sql).unwrap();
        let three = many.sql_blocking(sql).unwrap();
        let rows = |answer: &forebay_query::Answer| {
            let mut text = Vec::new();
            answer.render(forebay_query::Format::Json, &mut text, None).unwrap();
            String::from_utf8(text).unwrap()
        };
        assert_eq!(rows(&one), rows(&three), "{sql}");
    }
}
