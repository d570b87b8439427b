//! Tables of agents: what comes out, and what is touched on the way.

use forebay_query::{Options, Session};
use forebay_store::CHUNK_ROWS;
use serde_json::{Value as Json, json};

use crate::fixture::{PROMPT, Run, finished_group};

#[test]
fn the_example_of_every_introduction_works() {
    let (run, _step, _claim) = Run::busy();
    let rows = run.rows("SELECT policy_version, count(*), avg(reward) FROM solver GROUP BY 1 ORDER BY 1");
    let expected = [
        json!({"policy_version": 0, "count(*)": 4, "avg(solver.reward)": 0.4375}),
        json!({"policy_version": 1, "count(*)": 4, "avg(solver.reward)": 1.0}),
    ];
    assert_eq!(rows, expected);
}

#[test]
fn it_works_from_an_async_program_and_after_the_run_has_ended() {
    let run = Run::with_tables();
    finished_group(&run.store.table("solver").unwrap(), 0, "q1", [1.0, 0.0]);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let sql = "SELECT count(*) FROM solver";
    let inside = runtime.block_on(async { run.session.sql_blocking(sql).map(|answer| answer.row_count()) });
    assert_eq!(inside.unwrap(), 1);

    let Run { store, session, directory } = run;
    drop((store, session));
    let options = forebay_store::Options::default().read_only(true);
    let store = forebay_store::Store::open(directory.path().join("store"), options).unwrap();
    let run = Run { session: Session::new(&store).unwrap(), store, directory };
    assert_eq!(run.column(sql), [2]);
}

#[test]
fn a_cell_that_is_not_final_is_null() {
    let (run, _step, _claim) = Run::busy();
    let rows = run.rows(
        "SELECT prompt, response, reward, reward_status, reward_at FROM solver WHERE sample_id = 'q4_0_0'",
    );
    let expected = json!({"prompt": PROMPT, "response": null, "reward": null, "reward_status": false, "reward_at": null});
    assert_eq!(rows, [expected]);
    assert_eq!(run.column("SELECT count(reward) FROM solver"), [6]);
}

#[test]
fn lists_and_times_come_out_typed() {
    let (run, _step, _claim) = Run::busy();
    let rows = run.rows(
        "SELECT response[16] AS last, array_length(response) AS tokens, reward_at >= created_at AS later \
         FROM solver WHERE sample_id = 'q1_0_1'",
    );
    assert_eq!(rows, [json!({"last": 15, "tokens": 16, "later": true})]);
}

// FX-23
#[test]
fn queries_on_meta_and_status_touch_no_values() {
    let (run, _step, _claim) = Run::busy();
    let before = run.store.stats().value_reads;
    run.rows("SELECT count(*) FROM solver");
    run.rows("SELECT sample_id, state, reward_status, response_at FROM solver WHERE NOT is_processing");
    run.rows("SELECT policy_version, count(*), avg(reward) FROM solver GROUP BY 1"); // inline: no extent either
    run.rows("SELECT * FROM system.tables JOIN system.columns USING (table_name)");
    run.rows("SELECT s.sample_id FROM solver s JOIN checker c USING (group_key)");
    assert_eq!(run.store.stats().value_reads, before);
    run.rows("SELECT response FROM solver");
    assert!(run.store.stats().value_reads > before, "the counter counts");
}

#[test]
fn a_limit_reads_no_more_values_than_rows() {
    let (run, _step, _claim) = Run::busy();
    let before = run.store.stats().value_reads;
    assert_eq!(run.column("SELECT response FROM solver LIMIT 3").len(), 3);
    assert_eq!(run.store.stats().value_reads - before, 3);
    assert_eq!(run.column("SELECT sample_id FROM solver LIMIT 2 OFFSET 1"), ["q1_0_1", "q2_0_0"]);
    assert_eq!(run.column("SELECT sample_id FROM solver LIMIT 0"), Vec::<Json>::new());
}

#[test]
fn the_plan_says_what_is_scanned_and_how_many_rows_there_are() {
    let (run, _step, _claim) = Run::busy();
    let plan = run.rows("EXPLAIN SELECT sample_id FROM solver LIMIT 3")[1]["plan"].to_string();
    assert!(plan.contains("Scan: table=solver, columns=[sample_id], parts=1, fetch=3"), "{plan}");
    let counted = run.rows("EXPLAIN SELECT count(*) FROM solver")[1]["plan"].to_string();
    assert!(!counted.contains("Scan"), "the number of rows is known: {counted}");
    let analyzed = run.rows("EXPLAIN ANALYZE SELECT sample_id FROM solver")[0]["plan"].to_string();
    assert!(analyzed.contains("output_rows=8"), "{analyzed}");
}

#[test]
fn more_rows_than_a_chunk_come_out_in_small_batches() {
    let run = Run::with_tables();
    let solver = run.store.table("solver").unwrap();
    let rows = CHUNK_ROWS + 100;
    let mut batch = run.store.batch();
    for row in 0..rows {
        let row = forebay_store::NewRow::new(0, &format!("q{row}_0_0")).unwrap();
        batch.insert(&solver, row, [("reward", 1.0.into())]).unwrap();
    }
    batch.commit().unwrap();
    let session = Session::with_options(&run.store, &Options::default().batch_rows(1000)).unwrap();
    let answer = session.sql_blocking("SELECT sample_id, reward FROM solver").unwrap();
    assert_eq!(answer.row_count(), rows);
    assert!(answer.batches.iter().all(|batch| batch.num_rows() <= 1000));
    assert_eq!(run.column("SELECT sum(reward) FROM solver"), [rows as f64]);
    let last = format!("q{}_0_0", rows - 1);
    assert_eq!(run.column(&format!("SELECT sample_id FROM solver OFFSET {}", rows - 1)), [last]);
}

#[test]
fn a_table_without_rows_answers_too() {
    let run = Run::with_tables();
    assert_eq!(run.rows("SELECT * FROM solver"), Vec::<Json>::new());
    assert_eq!(
        run.rows("SELECT count(*) AS n, avg(reward) AS mean FROM solver"),
        [json!({"n": 0, "mean": null})]
    );
}
