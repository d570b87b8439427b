//! What a session may use, and what a query beyond it is told.

use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use forebay_query::{Cause, Kind, Options, Session};
use forebay_store::{DataType, Schema};
use serde_json::json;

use crate::fixture::Run;

/// A sort of twenty megabytes.
const SORT: &str =
    "SELECT value, repeat('x', 10) AS text FROM generate_series(1, 600000) ORDER BY value * 7919 % 600011";
/// A query without an end.
const ENDLESS: &str = "SELECT count(*) FROM generate_series(1, 1000000000000) WHERE value % 7 = 3";

fn session(run: &Run, options: Options) -> Session {
    Session::with_options(&run.store, &options).unwrap()
}

#[test]
fn a_sort_beyond_the_memory_limit_spills_and_is_right() {
    let run = Run::empty();
    let spill = run.directory.path().join("spill");
    let small = Options::default().memory_bytes_max(4 << 20).spill_dir(&spill);
    let spilled = session(&run, small.clone());
    let answers = [&spilled, &run.session].map(|session| {
        let answer = session.sql_blocking(SORT).unwrap();
        arrow::compute::concat_batches(&answer.schema, &answer.batches).unwrap()
    });
    assert!(answers[0] == answers[1]);
    let files = || {
        std::fs::read_dir(&spill).unwrap().flat_map(|inner| std::fs::read_dir(inner.unwrap().path()).unwrap())
    };
    assert_eq!(files().count(), 0, "what was spilled is gone with its query");
    // Without the files the same memory does not do: so there were some.
    let error = session(&run, small.spill_bytes_max(0)).sql_blocking(SORT).unwrap_err();
    assert!(matches!(error.cause(), Cause::Memory { .. }), "{error}");
}

/// Half a million groups, each with a text.
const GROUPS: &str = "SELECT value * 7919 % 500009 AS g, count(*) AS n, max(repeat('x', 20)) AS text \
                      FROM generate_series(1, 500000) GROUP BY 1";

#[test]
fn groups_beyond_the_memory_limit_spill_and_are_right() {
    let run = Run::empty();
    let spill = run.directory.path().join("spill");
    let small = Options::default().memory_bytes_max(12 << 20).spill_dir(&spill);
    let totals = format!(
        "SELECT count(*) AS groups, sum(n) AS rows, min(g) AS low, max(g) AS high, \
                          min(length(text)) AS text FROM ({GROUPS})"
    );
    let shown = |session: &Session| crate::fixture::lines(session, &totals);
    assert_eq!(shown(&session(&run, small.clone())), shown(&run.session));
    let plan = shown_plan(&session(&run, small.clone()));
    assert!(plan.contains("AggregateExec") && !plan.contains("spill_count=0, "), "it spilled: {plan}");
    let error = session(&run, small.spill_bytes_max(0)).sql_blocking(GROUPS).unwrap_err();
    assert!(matches!(error.cause(), Cause::Memory { .. }), "{error}");
}

/// Rows that are joined with themselves: more on each side than the memory below holds.
const BESIDE: &str =
    "(SELECT value AS v, value % 1000 AS m, repeat('x', 200) || value AS t FROM generate_series(1, 60000))";

/// Joins by equality, whose smaller side does not fit.
const JOINS: [&str; 9] = [
    "SELECT count(*) AS n, sum(a.v) AS s, max(b.t) AS t FROM {} a JOIN {} b ON a.t = b.t",
    "SELECT count(*) AS n, sum(a.v - b.v) AS s FROM {} a JOIN {} b ON a.t = b.t AND a.v + b.v > 50000",
    "SELECT count(*) AS n, count(b.v) AS m FROM {} a LEFT JOIN {} b ON a.t = b.t AND b.m > 500",
    "SELECT count(*) AS n, count(a.v) AS m FROM {} a RIGHT JOIN {} b ON a.t = b.t AND a.v > b.m",
    "SELECT count(*) AS n, count(a.v) AS m, count(b.v) AS o FROM {} a FULL JOIN {} b ON a.t = b.t || CASE WHEN b.m > 9 THEN '' ELSE '-' END",
    "SELECT count(*) AS n, sum(v) AS s FROM {} a WHERE t IN (SELECT t FROM {} b WHERE m < 990)",
    "SELECT count(*) AS n, sum(v) AS s FROM {} a WHERE NOT EXISTS (SELECT 1 FROM {} b WHERE a.t = b.t AND b.m < 990)",
    "SELECT a.m, count(*) AS n, min(b.t) AS t FROM {} a JOIN {} b ON a.t = b.t GROUP BY a.m ORDER BY n DESC, a.m LIMIT 7",
    "SELECT a.v, b.t FROM {} a JOIN {} b ON a.t = b.t ORDER BY a.v DESC LIMIT 5",
];

// B2 of issue 4: a limit of memory, with spill.
#[test]
fn joins_beyond_the_memory_limit_spill_and_are_right() {
    let run = Run::empty();
    let spill = run.directory.path().join("spill");
    let small = Options::default().memory_bytes_max(8 << 20).spill_dir(&spill);
    let none = small.clone().spill_bytes_max(0);
    for (partitions, joins) in [(1, &JOINS[..]), (2, &JOINS[..]), (5, &JOINS[..3])] {
        let spilled = session(&run, small.clone().partitions(partitions));
        let unspilled = session(&run, none.clone().partitions(partitions));
        for join in joins {
            let sql = join.replace("{}", BESIDE);
            let shown = |session: &Session| crate::fixture::lines(session, &sql);
            assert_eq!(shown(&spilled), shown(&run.session), "{partitions} {join}");
            let error = unspilled.sql_blocking(&sql).unwrap_err();
            assert!(matches!(error.cause(), Cause::Memory { .. }), "{partitions} {join}: {error}");
        }
    }
    let left = std::fs::read_dir(&spill)
        .unwrap()
        .flat_map(|inner| std::fs::read_dir(inner.unwrap().path()).unwrap());
    assert_eq!(left.count(), 0, "what was spilled is gone with its query");
    let plan = crate::fixture::lines(
        &session(&run, small),
        &format!("EXPLAIN ANALYZE {}", JOINS[0].replace("{}", BESIDE)),
    );
    assert!(plan.iter().any(|line| line.contains("SortMergeJoin")), "{plan:?}");
}

#[test]
fn joins_that_cannot_spill_name_the_limit_and_the_session_goes_on() {
    let run = Run::empty();
    let small = session(&run, Options::default().memory_bytes_max(8 << 20));
    for join in [
        "SELECT max(a.t || b.t) AS t FROM {} a CROSS JOIN {} b",
        "SELECT count(*) AS n FROM {} a WHERE t NOT IN (SELECT nullif(t, 'x') FROM {} b)",
        // Sorted rows are not merged by floats: NaN has no place there, -0 and 0 are one.
        "SELECT count(*) AS n, max(a.t) AS t FROM {} a WHERE a.v::double IN (SELECT CASE WHEN b.m < 9 THEN 'NaN'::double ELSE b.v END FROM {} b)",
        "SELECT count(*) AS n, max(a.t) AS t FROM {} a WHERE NOT EXISTS (SELECT 1 FROM {} b WHERE CASE WHEN a.m < 9 THEN 'NaN'::float ELSE a.v::float END = b.v::float AND b.t > a.t)",
        "SELECT count(*) AS n, max(a.t || b.t) AS t FROM {} a JOIN {} b ON arrow_cast(a.v, 'Float16') = arrow_cast(b.v, 'Float16')",
    ] {
        let error = small.sql_blocking(&join.replace("{}", BESIDE)).unwrap_err();
        assert_eq!(error.kind(), Kind::Capacity, "{error}");
        let told = error.to_string();
        assert!(told.contains("memory_bytes_max") && told.contains("--memory-bytes-max"), "{told}");
        assert_eq!(small.sql_blocking("SELECT 1").unwrap().row_count(), 1);
    }
}

// The side that is gone through once more from a file is seen by each partition: those of a join have to agree on what matched.
#[test]
fn joins_without_an_equality_are_right_however_many_threads_spill_them() {
    let run = Run::empty();
    let few = "(SELECT value AS v, repeat('y', 900) AS t FROM generate_series(1, 3000))";
    let none = "(SELECT value AS v FROM generate_series(1, 60))";
    for join in [
        format!(
            "SELECT count(*) AS n, count(b.v) AS m, sum(length(a.t)) AS l FROM {few} a LEFT JOIN {none} b ON a.v < b.v"
        ),
        format!("SELECT count(*) AS n, count(a.v) AS m FROM {none} b RIGHT JOIN {few} a ON a.v < b.v"),
        format!(
            "SELECT count(*) AS n, sum(length(t)) AS l FROM {few} a WHERE EXISTS (SELECT 1 FROM {none} b WHERE a.v < b.v)"
        ),
        format!(
            "SELECT count(*) AS n, sum(length(t)) AS l FROM {few} a WHERE NOT EXISTS (SELECT 1 FROM {none} b WHERE a.v < b.v)"
        ),
        format!(
            "SELECT count(*) AS n, count(a.v) AS m, count(b.v) AS o FROM {few} a FULL JOIN {none} b ON a.v < b.v"
        ),
    ] {
        let expected = crate::fixture::lines(&run.session, &join);
        for partitions in [1, 3] {
            let options = Options::default().memory_bytes_max(1 << 20).partitions(partitions);
            let answer = session(&run, options).sql_blocking(&join);
            match answer {
                Ok(_) => assert_eq!(
                    crate::fixture::lines(
                        &session(&run, Options::default().memory_bytes_max(1 << 20).partitions(partitions)),
                        &join
                    ),
                    expected,
                    "{partitions} {join}"
                ),
                Err(error) => assert_eq!(error.kind(), Kind::Capacity, "{partitions} {join}: {error}"),
            }
        }
    }
}

/// What it took to group.
fn shown_plan(session: &Session) -> String {
    let lines = crate::fixture::lines(session, &format!("EXPLAIN ANALYZE {GROUPS}"));
    let groups = lines.iter().filter(|line| line.contains("AggregateExec"));
    groups.cloned().collect()
}

#[test]
fn a_sort_beyond_the_spill_limit_ends_and_the_session_goes_on() {
    let run = Run::empty();
    let options = Options::default().memory_bytes_max(4 << 20).spill_bytes_max(1 << 20);
    let session = session(&run, options);
    for _ in 0..2 {
        let error = session.sql_blocking(SORT).unwrap_err();
        assert_eq!(error.kind(), Kind::Capacity);
        assert!(matches!(error.cause(), Cause::Spill { .. }), "{error}");
        assert!(error.to_string().contains("`spill_bytes_max`"), "{error}");
    }
    let one = session.sql_blocking("SELECT max(value) FROM generate_series(1, 10)").unwrap();
    assert_eq!(one.row_count(), 1);
}

#[test]
fn a_directory_that_cannot_take_files_is_told_at_once() {
    let run = Run::empty();
    let file = run.directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error =
        Session::with_options(&run.store, &Options::default().spill_dir(file.join("below"))).unwrap_err();
    assert_eq!(error.kind(), Kind::Input);
    assert!(error.to_string().contains("spill_dir"), "{error}");
}

#[test]
fn a_query_without_an_end_ends_in_its_time() {
    let run = Run::empty();
    let limited = session(&run, Options::default().statement_time_max(Duration::from_millis(20)));
    let error = limited.sql_blocking(ENDLESS).unwrap_err();
    assert!(matches!(error.cause(), Cause::Time { .. }), "{error:?}");
    let roomy = session(&run, Options::default().statement_time_max(Duration::from_secs(3600)));
    assert_eq!(roomy.sql_blocking("SELECT 1").unwrap().row_count(), 1);
}

#[test]
fn an_answer_beyond_the_row_limit_is_cut_and_says_so() {
    let (run, _step, _claim) = Run::busy();
    let looking = run.session.with_rows_max(Some(3));
    for (sql, rows, cut) in [
        ("SELECT sample_id FROM solver", 3, true),
        ("SELECT sample_id FROM solver LIMIT 3", 3, false),
        ("SELECT sample_id FROM solver LIMIT 2", 2, false),
        ("SELECT value FROM generate_series(1, 1000000000000)", 3, true),
        ("EXPLAIN SELECT 1", 2, false),
        ("DESCRIBE solver", 3, true),
    ] {
        let answer = looking.sql_blocking(sql).unwrap();
        assert_eq!((answer.row_count(), answer.cut), (rows, cut), "{sql}");
    }
    let sorted = looking.sql_blocking("SELECT sample_id FROM solver ORDER BY sample_id DESC").unwrap();
    let all = run.column("SELECT sample_id FROM solver ORDER BY sample_id DESC LIMIT 3");
    let mut json = Vec::new();
    sorted.render(forebay_query::Format::Json, &mut json, None).unwrap();
    let shown: Vec<serde_json::Value> = serde_json::from_slice(&json).unwrap();
    assert_eq!(shown.iter().map(|row| row["sample_id"].clone()).collect::<Vec<_>>(), all);
}

// Values lie in windows of mapped files; what goes out is as large as what it shows.
#[test]
fn an_answer_ships_its_own_bytes_and_no_window() {
    let run = Run::empty();
    let table = run.store.create_table("solver", Schema::new().data("prompt", DataType::Utf8)).unwrap();
    for sample in 0..200 {
        let prompt = format!("{sample:05000}");
        table.insert(0, format!("q{sample}_0_0").as_str(), [("prompt", prompt.as_str().into())]).unwrap();
    }
    let sql = "SELECT prompt, [prompt] AS listed FROM solver WHERE sample_id = 'q7_0_0'";
    let answer = run.session.sql_blocking(sql).unwrap();
    let bytes: usize = answer.batches.iter().map(arrow_array::RecordBatch::get_array_memory_size).sum();
    assert_eq!(answer.row_count(), 1);
    assert!((10_000..30_000).contains(&bytes), "{bytes} bytes for two texts of 5000");
}

#[test]
fn a_query_takes_in_what_another_process_has_written_where_it_is_asked_to() {
    let run = Run::with_tables();
    let path = run.store.path().to_owned();
    let beside = forebay_store::Store::open_read_only(path).unwrap();
    let fresh = Session::with_options(&beside, &Options::default().refresh(true)).unwrap();
    let count = |session: &Session| {
        let answer = session.sql_blocking("SELECT count(*) AS n FROM solver").unwrap();
        let mut json = Vec::new();
        answer.render(forebay_query::Format::Json, &mut json, None).unwrap();
        serde_json::from_slice::<serde_json::Value>(&json).unwrap()[0]["n"].clone()
    };
    let still = Session::new(&beside).unwrap();
    run.store.table("solver").unwrap().insert(0, "q1_0_0", [("prompt", "a".into())]).unwrap();
    assert_eq!(count(&still), json!(0));
    assert_eq!(count(&fresh), json!(1));
    run.store.table("solver").unwrap().insert(0, "q1_0_1", [("prompt", "b".into())]).unwrap();
    assert_eq!(count(&fresh), json!(2));
}

// Values are views over windows of mapped files, which are far larger than a batch's share of them.
#[test]
fn a_sort_of_rows_with_values_in_files_spills_and_is_right() {
    let run = Run::empty();
    let schema = Schema::new().data("prompt", DataType::Utf8).data("reward", DataType::Float32);
    let table = run.store.create_table("solver", schema).unwrap();
    let samples = 4000;
    for sample in 0..samples {
        let prompt = format!("{sample:05000}");
        let values = [("prompt", prompt.as_str().into()), ("reward", f64::from(sample * 7919 % 4001).into())];
        table.insert(0, format!("q{sample}_0_0").as_str(), values).unwrap();
    }
    let sql = "SELECT reward, prompt FROM solver ORDER BY reward";
    let small = session(&run, Options::default().memory_bytes_max(12 << 20));
    let sorted = small.sql_blocking(sql).unwrap();
    assert_eq!(sorted.row_count(), samples as usize);
    let mut last = -1.0;
    for batch in &sorted.batches {
        let rewards = batch.column(0).as_primitive::<Float32Type>();
        for (row, reward) in rewards.values().iter().enumerate() {
            assert!(*reward > last);
            last = *reward;
            let sample: i64 = batch.column(1).as_string_view().value(row).parse().unwrap();
            assert_eq!((sample * 7919 % 4001) as f32, *reward);
        }
    }
}
