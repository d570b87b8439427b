//! Queries that cannot be answered, and what they are told.

use forebay_query::{Kind, Options, Session};
use forebay_store::{DataType, Schema};

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
fn what_is_meant_otherwise_is_told_what_to_write() {
    let (run, _step, _claim) = Run::busy();
    let cases = [
        (
            "SELECT advantage(reward) FROM solver",
            "advantage is a function of windows, and wants OVER: advantage(…) OVER",
        ),
        ("SELECT rank() FROM solver", "rank is a function of windows, and wants OVER"),
        (
            "SELECT pass_at_kk(reward > 0, 1) FROM solver",
            "no function is named pass_at_kk; did you mean pass_at_k?",
        ),
        ("SELECT nothing_like_it(1)", "no function is named nothing_like_it"),
        ("SELECT * FROM nothing(1)", "no function that gives a table is named nothing; there are as_of, "),
        ("SELECT * FROM lineage('solvr/q1_0_0')", "no table is named solvr; did you mean solver?"),
        ("SELECT * FROM lineage('unlike/q1_0_0')", "no table is named unlike; SHOW TABLES lists all"),
        ("SELECT * FROM as_of('solvr', step => 1)", "no table is named solvr; did you mean solver?"),
        (
            "SELECT * FROM as_of('system.steps', step => 1)",
            "system.steps has no past; as_of takes the table of an agent",
        ),
        ("SELECT * FROM as_of('forebay.system.steps', step => 1)", "system.steps has no past"),
        (
            "SELECT * FROM as_of('system.step', step => 1)",
            "no table is named system.step; did you mean system.steps?",
        ),
        ("SELECT state FROM as_of('solver', step => 1)", "no column is named state in a table as it was"),
        (
            "SELECT s.claim FROM as_of('solver', step => 1) s",
            "(is_processing, state, claim, excluded_reason, version_spans) is not kept",
        ),
        ("EXPLAIN SELECT * FROM as_of('solver', step => 1) WHERE is_processing", "is not kept"),
        ("SELECT rewrd FROM as_of('solver', step => 1)", "no column is named rewrd; did you mean reward?"),
        ("DESCRIBE solvr", "no table is named solvr; did you mean solver?"),
        ("DESCRIBE unlike", "no table is named unlike; SHOW TABLES lists all"),
    ];
    for (sql, expected) in cases {
        let message = run.error(sql, Kind::Input);
        assert!(message.contains(expected), "{sql}: {message}");
    }
    for full in ["public.solver", "forebay.public.solver"] {
        let count = |name: &str| run.column(&format!("SELECT count(*) FROM as_of('{name}', step => 1)"));
        assert_eq!(count(full), count("solver"), "{full}");
    }
}

#[test]
fn what_is_too_wide_to_be_planned_is_refused_with_its_measure() {
    let run = Run::empty();
    let columns = (0..60).map(|at| (format!("c{at}"), DataType::Float32));
    let schema = columns.fold(Schema::new(), |schema, (name, of)| schema.data(&name, of));
    run.store.create_table("wide", schema).unwrap();
    let tables = |count: usize| (0..count).map(|at| format!("wide w{at}")).collect::<Vec<_>>().join(", ");
    assert_eq!(run.column(&format!("SELECT count(*) FROM {}", tables(3))), [0]);
    let message = run.error(&format!("SELECT count(*) FROM {}", tables(30)), Kind::Input);
    assert!(message.contains("5000 are the most"), "{message}");
    // Each as often as it is named.
    let again = format!(
        "WITH all_of AS (SELECT * FROM wide) SELECT count(*) FROM {}",
        tables(30).replace("wide", "all_of")
    );
    assert!(run.error(&again, Kind::Input).contains("5000 are the most"));
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
        ("WITH x AS (DELETE FROM solver) SELECT 1", "Table::delete"),
        (
            "SELECT 1 UNION ALL SELECT * FROM (WITH x AS (UPDATE solver SET reward = 1) SELECT 2) y",
            "Table::write",
        ),
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

#[test]
fn a_regular_expression_that_cannot_be_used_is_the_query_s_fault() {
    let run = Run::with_tables();
    for (condition, told) in [
        ("'a' ~ '('", "unclosed group"),
        ("regexp_like('a', '[')", "unclosed character class"),
        ("regexp_replace('a', '*', 'b') = 'a'", "repetition operator missing"),
        ("'a' ~ '(((a{1000}){1000}){1000})'", "10485760 bytes"),
        ("regexp_like('a', '(((a{1000}){1000}){1000})')", "10485760 bytes"),
        ("'a' SIMILAR TO '('", "unclosed group"),
    ] {
        let error = run.error(&format!("SELECT {condition}"), Kind::Input);
        assert!(
            error.contains("regular expression cannot be used") && error.contains(told),
            "{condition}: {error}"
        );
        assert!(!error.contains("~~~"), "{error}");
    }
}

#[test]
fn an_argument_of_a_wrong_type_is_no_bug_of_the_engine() {
    let error = Run::empty().error("SELECT approx_median('a')", Kind::Input);
    assert!(error.contains("approx_median") && error.contains("Float") && !error.contains("bug"), "{error}");
}
