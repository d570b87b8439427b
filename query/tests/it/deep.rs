//! Statements that are as deep, or as long, as somebody likes to make them: answered or refused with their measure, and the process
//! goes on. A test's thread has two mebibytes of stack, as a server's workers have.

use std::time::{Duration, Instant};

use forebay_query::{Cause, Kind, Options, Session};

use crate::fixture::Run;

/// Chains of so many links.
fn chains(length: usize) -> Vec<(&'static str, String)> {
    let chain = |first: &str, link: &str| format!("SELECT {first}{} AS x", link.repeat(length));
    let rows = |first: &str, link: &str| {
        format!("SELECT count(*) AS x FROM solver WHERE {first}{}", link.repeat(length))
    };
    let nested = |open: &str, inner: &str, close: &str| {
        format!("SELECT {}{inner}{} AS x", open.repeat(length), close.repeat(length))
    };
    let tables = (0..length).map(|at| format!("(SELECT 1) t{at}")).collect::<Vec<_>>();
    let builds = (1..=length).map(|at| format!(", a{at} AS (SELECT x + 1 AS x FROM a{})", at - 1));
    vec![
        ("+", chain("1", "+1")),
        (
            "+ of columns",
            rows("policy_version", "+policy_version").replace("count(*)", "sum(policy_version)") + " > 0",
        ),
        ("||", chain("'a'", "||'a'")),
        ("::int", chain("1", "::int")),
        ("IS NULL", chain("1", " IS NULL")),
        ("OR", rows("reward = 0", " OR reward = 7")),
        ("OR of ids", rows("sample_id = 'q1_0_0'", " OR sample_id = 'q2_0_0'")),
        ("AND", rows("reward >= 0", " AND reward < 7")),
        ("NOT", format!("SELECT {} true AS x", "NOT ".repeat(length))),
        ("-", format!("SELECT {} 1 AS x", "- ".repeat(length))),
        ("()", nested("(", "1", ")")),
        ("CASE", nested("CASE WHEN true THEN ", "1", " END")),
        ("a long CASE", format!("SELECT CASE 1 {} END AS x", "WHEN 1 THEN 2 ".repeat(length))),
        ("functions", nested("abs(", "1", ")")),
        ("sub-queries", format!("{}SELECT 1 AS x{}", "SELECT x FROM (".repeat(length), ") s".repeat(length))),
        ("UNION ALL", format!("SELECT 1 AS x{}", " UNION ALL SELECT 1".repeat(length))),
        ("EXCEPT", format!("SELECT 1 AS x{}", " EXCEPT SELECT 2".repeat(length))),
        ("joins", format!("SELECT count(*) AS x FROM solver{}", " NATURAL JOIN solver".repeat(length))),
        ("tables", format!("SELECT 1 AS x FROM {}", tables.join(", "))),
        ("WITH", format!("WITH a0 AS (SELECT 1 AS x){} SELECT x FROM a{length}", builds.collect::<String>())),
    ]
}

#[test]
fn chains_of_any_length_are_answered_or_refused_and_the_process_goes_on() {
    let (run, _step, _claim) = Run::busy();
    for length in [100, 3_000, 10_000] {
        for (name, sql) in chains(length) {
            let begun = Instant::now();
            let answered = run.session.sql_blocking(&sql);
            println!("{length} {name}: {:?} {}", begun.elapsed(), answered.is_ok());
            if let Err(error) = answered {
                assert_eq!(error.kind(), Kind::Input, "{length} {name}: {error}");
                let told = error.to_string();
                // The parser refuses what nests by more than some tens of levels, in words of its own.
                assert!(length <= 1_000 || told.contains("levels deep"), "{length} {name}: {told}");
            }
        }
    }
    assert_eq!(run.session.sql_blocking("SELECT 1").unwrap().row_count(), 1);
}

// A turn of a thread has 128 shares, and each join may take one on the way down.
#[test]
fn chains_of_joins_beyond_a_turn_come_to_their_end() {
    let (run, _step, _claim) = Run::busy();
    let session = run.session.with_statement_time_max(Some(Duration::from_secs(300)));
    let tables = (0..150).map(|at| format!("(SELECT turn FROM checker LIMIT 1) t{at}")).collect::<Vec<_>>();
    for sql in [
        format!("SELECT 1 AS x{}", " EXCEPT SELECT 2".repeat(150)),
        format!("SELECT 1 AS x{}", " INTERSECT SELECT 1".repeat(150)),
        format!("SELECT 1 AS x FROM {}", tables.join(", ")),
    ] {
        let answer = session.sql_blocking(&sql).unwrap_or_else(|error| panic!("{}: {error}", &sql[..60]));
        assert_eq!(answer.row_count(), 1, "{}", &sql[..60]);
    }
}

#[test]
fn what_is_deep_is_answered_alike_wherever_it_runs() {
    let (run, _step, _claim) = Run::busy();
    let columns = run.session.with_rows_max(Some(1));
    let many = Session::with_options(&run.store, &Options::default().partitions(2)).unwrap();
    for (name, sql) in chains(40) {
        let begun = Instant::now();
        let here = columns.sql_blocking(&sql).map(|answer| answer.row_count()).map_err(|error| error.kind());
        let there = many.sql_blocking(&sql).map(|_| 1).map_err(|error| error.kind());
        println!("{name}: {:?} {here:?}", begun.elapsed());
        assert_eq!(here.map(|_| ()), there.map(|_| ()), "{name}");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let prepared = runtime.block_on(async {
            let prepared = columns.prepare(&sql).await?;
            prepared.stream(None).await?.collect().await
        });
        assert_eq!(prepared.map(|answer| answer.row_count()).map_err(|error| error.kind()), here, "{name}");
    }
}

#[test]
fn a_long_list_is_no_chain() {
    let (run, _step, _claim) = Run::busy();
    let ids: Vec<String> = (0..10_000).map(|at| format!("'q{at}_0_0'")).collect();
    let begun = Instant::now();
    let answer = run.rows(&format!("SELECT sample_id FROM solver WHERE sample_id IN ({})", ids.join(", ")));
    assert!(!answer.is_empty());
    println!("IN of 10,000: {:?}", begun.elapsed());
}

#[test]
fn a_statement_has_so_many_bytes_at_most() {
    let run = Run::empty();
    let long = format!("SELECT '{}'", "x".repeat(1 << 20));
    assert!(run.error(&long, Kind::Input).contains("1048576"));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let error = runtime.block_on(run.session.prepare(&long)).unwrap_err();
    assert_eq!(error.kind(), Kind::Input);
    let shorter = format!("SELECT '{}'", "x".repeat(1 << 19));
    assert_eq!(
        run.session
            .with_statement_time_max(Some(Duration::from_secs(3600)))
            .sql_blocking(&shorter)
            .unwrap()
            .row_count(),
        1
    );
}

// Rules of the planner take the square of a list's length, and none can be ended midway: so a list has an end.
#[test]
fn what_is_listed_is_answered_or_ended_by_its_time_and_too_much_is_refused() {
    let (run, _step, _claim) = Run::busy();
    let session = run.session.with_statement_time_max(Some(Duration::from_millis(500)));
    let list = |count: usize, one: &str| {
        (0..count).map(|at| one.replace('#', &at.to_string())).collect::<Vec<_>>().join(", ")
    };
    for (one, before, after) in [
        ("#", "SELECT ", ""),
        ("turn + #", "SELECT ", " FROM solver"),
        ("sum(turn + #)", "SELECT ", " FROM solver"),
        ("sum(turn + #) OVER ()", "SELECT ", " FROM solver"),
        ("CASE turn WHEN # THEN 1 END", "SELECT ", " FROM solver"),
        ("(#)", "SELECT count(*) FROM (VALUES ", ") t(a)"),
        ("turn + #", "SELECT [", "] FROM solver"),
        ("'#'", "SELECT concat(", ")"),
    ] {
        let begun = Instant::now();
        let answered = session.sql_blocking(&format!("{before}{}{after}", list(400, one)));
        println!("{one}: {:?} {}", begun.elapsed(), answered.is_ok());
        if let Err(error) = answered {
            assert!(matches!(error.cause(), Cause::Time { .. }), "{one}: {error}");
        }
        let more = format!("{before}{}{after}", list(2_002, one));
        assert!(run.error(&more, Kind::Input).contains("2000 are the most"), "{one}");
    }
}

#[test]
fn a_cube_has_so_many_columns_at_most() {
    let (run, _step, _claim) = Run::busy();
    let cube = |columns: usize| {
        let columns: Vec<String> = (0..columns).map(|at| format!("turn + {at}")).collect();
        format!("SELECT count(*) FROM (SELECT count(*) FROM solver GROUP BY CUBE ({}))", columns.join(", "))
    };
    assert_eq!(run.rows(&cube(6)).len(), 1);
    for columns in [13, 40, 63] {
        assert!(run.error(&cube(columns), Kind::Input).contains("12 columns are the most"), "{columns}");
    }
}
