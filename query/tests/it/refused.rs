//! Queries that cannot be answered, and what they are told.

use forebay_query::{Kind, Options, Session};

use crate::fixture::Run;

#[test]
fn unknown_names_are_answered_with_the_nearest() {
    let (run, _step, _claim) = Run::busy();
    let cases = [
        ("SELECT * FROM solvr", "no table is named solvr; did you mean solver?"),
        ("SELECT * FROM system.claim", "no table is named system.claim; did you mean system.claims?"),
        ("SELECT * FROM claims", "no table is named claims"),
        ("SELECT rewrd FROM solver", "no column is named rewrd; did you mean reward?"),
        ("SELECT s.rewrd FROM solver s", "no column is named s.rewrd; did you mean reward?"),
        ("SELECT sample_id FROM solver WHERE rewardstatus", "did you mean reward_status?"),
        ("SELECT avrg(reward) FROM solver", "avg"),
    ];
    for (sql, expected) in cases {
        let message = run.error(sql, Kind::Input);
        assert!(message.contains(expected), "{sql}: {message}");
    }
}

#[test]
fn bad_sql_shows_the_offending_word() {
    let (run, _step, _claim) = Run::busy();
    let message = run.error("SELECT sample_id FORM solver", Kind::Input);
    assert!(message.contains("solver"), "{message}");
    assert!(message.contains("SELECT sample_id FORM solver\n"), "{message}");
    for sql in ["", ";", "SELEC 1", "SELECT 'open", "SELECT 1; SELECT 2", "SELECT * FROM solver LIMIT 'x'"] {
        run.error(sql, Kind::Input);
    }
}

#[test]
fn what_cannot_be_computed_is_the_query_s_fault() {
    let (run, _step, _claim) = Run::busy();
    for sql in ["SELECT policy_version / 0 FROM solver", "SELECT CAST(sample_id AS INT) FROM solver"] {
        run.error(sql, Kind::Input);
    }
}

#[test]
fn sql_only_reads() {
    let (run, _step, _claim) = Run::busy();
    let commits = run.store.stats().commits;
    let cases = [
        ("INSERT INTO solver (sample_id) VALUES ('q9_0_0')", "Table::insert"),
        ("INSERT INTO nowhere VALUES (1)", "Table::insert"),
        ("EXPLAIN ANALYZE INSERT INTO solver (sample_id) VALUES ('q9_0_0')", "Table::insert"),
        ("WITH x AS (SELECT 1) INSERT INTO solver (sample_id) SELECT 'q9_0_0'", "Table::insert"),
        ("UPDATE solver SET reward = 1", "Table::write"),
        ("DELETE FROM solver", "Table::delete"),
        ("DELETE FROM solver WHERE reward < 0", "Table::exclude"),
        ("TRUNCATE TABLE solver", "Table::delete"),
        ("ALTER TABLE solver ADD COLUMN judged BOOLEAN", "Table::add_column"),
        ("ALTER TABLE solver RENAME COLUMN reward TO score", "Table::rename_column"),
        ("ALTER TABLE solver DROP COLUMN reward", "Table::retire_column"),
        ("CREATE TABLE mine AS SELECT * FROM solver", "Store::create_table"),
        ("CREATE VIEW mine AS SELECT * FROM solver", "Store::create_table"),
        ("DROP TABLE solver", "keeps its tables"),
        ("SET datafusion.execution.batch_size = 1", "Session::with_options"),
        ("INSERT INTO system.tables SELECT * FROM system.tables", "Table::insert"),
    ];
    for (sql, expected) in cases {
        let message = run.error(sql, Kind::ReadOnly);
        assert!(message.contains(expected), "{sql}: {message}");
    }
    let target = run.directory.path().join("out.csv");
    run.error(&format!("COPY solver TO '{}'", target.display()), Kind::ReadOnly);
    assert!(!target.exists());
    assert_eq!(run.store.stats().commits, commits, "nothing was written");
    assert_eq!(run.column("SELECT count(*) FROM solver"), [8]);
}

#[test]
fn a_query_that_needs_too_much_memory_says_which_limit() {
    let (run, _step, _claim) = Run::busy();
    let session =
        Session::with_options(&run.store, &Options::default().memory_bytes_max(10_000).spill_bytes_max(0))
            .unwrap();
    let sql =
        "SELECT count(DISTINCT a.sample_id || b.sample_id || c.sample_id) FROM solver a, solver b, solver c";
    let error = session.sql_blocking(sql).unwrap_err();
    assert_eq!(error.kind(), Kind::Capacity);
    assert!(error.to_string().contains("memory_bytes_max"), "{error}");
    assert_eq!(run.column(sql), [512], "the default is enough");
}
