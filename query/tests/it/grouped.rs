//! Groups by what the store knows of rows: the same answers as by a look at every row.

use forebay_query::{Options, Session};
use forebay_store::{CHUNK_ROWS, DataType, Delete, NewRow, Origin, Purpose, Schema, Value};

use crate::fixture::{Run, sorted_lines};

/// Rows of several partitions and versions in all states: final cells, absent ones, deleted and left-out rows, rows of peers.
fn states() -> Run {
    let run = Run::empty();
    let schema = Schema::new()
        .data("reward", DataType::Float64)
        .data("note", DataType::Utf8)
        .data("short", DataType::Float32);
    let solver = run.store.create_table("solver", schema).unwrap();
    let origin = Origin { peer: "berlin".to_owned(), round: 3 };
    let mut batch = run.store.batch();
    for row in 0..9 * CHUNK_ROWS as u32 + 5 {
        let id = format!("q{}_{}_{}", row / 8, row % 2, row % 8);
        let cells: [(&str, Value<'_>); 3] = [
            ("reward", if row % 17 == 0 { Value::Null } else { f64::from(row % 3).into() }),
            ("note", "ok".into()),
            ("short", ((row % 7) as f32).into()),
        ];
        let new = NewRow::new(u64::from(row / 6_000), &id).unwrap();
        let new = if row % 4_001 == 0 { new.external(&origin) } else { new };
        let new = if row % 29 == 0 { new.purpose(Purpose::Eval) } else { new };
        batch.insert(&solver, new, cells.into_iter().take((row as usize / 5) % 4)).unwrap();
    }
    batch.commit().unwrap();
    let left_out = solver.insert(3, "left_0_0", []).unwrap();
    solver.exclude(left_out, "too_long").unwrap();
    solver.delete(&Delete::version(2).force()).unwrap();
    run
}

/// Each question groups by what the store knows; over a sorted subquery it is answered the other way.
const QUESTIONS: [&str; 20] = [
    "SELECT reward_status, count(*) AS n FROM solver GROUP BY 1",
    "SELECT reward_status, note_status, count(*) AS n, count(1) AS m FROM solver GROUP BY note_status, reward_status",
    "SELECT policy_version, count(*) AS n FROM solver GROUP BY 1",
    "SELECT agent, policy_version, note_status, count(*) AS n FROM solver WHERE reward > 0 GROUP BY 1, 2, 3",
    "SELECT excluded_reason AS why, step, count(*) AS n FROM solver GROUP BY 1, 2",
    "SELECT group_key, count(*) AS n FROM solver GROUP BY 1 HAVING count(*) <> 8",
    "SELECT turn, trajectory_id, attempt, purpose, count(*) AS n FROM solver GROUP BY 1, 2, 3, 4",
    "SELECT note_status, count(*) AS n FROM solver WHERE policy_version BETWEEN 1 AND 3 AND note = 'ok' GROUP BY 1",
    "SELECT DISTINCT policy_version, reward_status FROM solver",
    "SELECT reward_status, count(DISTINCT turn) AS n FROM solver GROUP BY 1",
    "SELECT reward_status, count(*) AS n FROM solver WHERE policy_version > 1000 GROUP BY 1",
    "SELECT policy_version, agent, avg(reward) AS mean, round(stddev_pop(reward), 9) AS deviation, count(*) AS n \
     FROM solver GROUP BY 1, 2",
    "SELECT policy_version, group_key, count(*) AS n FROM solver GROUP BY 1, 2 HAVING min(reward) = max(reward)",
    "SELECT input_id, sum(reward) AS s, count(reward) AS n, min(turn) AS low, max(sample_id) AS last FROM solver GROUP BY 1",
    "SELECT note_status, sum(reward * turn + 1) AS s, bool_or(reward > 1) AS any FROM solver GROUP BY 1",
    "SELECT turn, max(turn) AS same, avg(trajectory_id) AS mean FROM solver WHERE note IS NOT NULL GROUP BY turn",
    "SELECT purpose, sum(reward) AS s FROM solver WHERE reward IS NULL GROUP BY 1",
    // What several functions are over is made below them, once.
    "SELECT policy_version, agent, avg(short) AS mean, round(stddev_pop(short), 9) AS deviation, count(*) AS n \
     FROM solver GROUP BY 2, 1",
    "SELECT note_status, avg(turn + short) AS mean, round(var_samp(turn + short), 9) AS deviation FROM solver GROUP BY 1",
    "SELECT kind, avg(double) AS mean, round(stddev_pop(double), 9) AS deviation, max(short) AS most FROM \
     (SELECT purpose AS kind, CAST(short * 2 AS DOUBLE) AS double, short FROM solver) AS x GROUP BY 1",
];

#[test]
fn groups_by_kind_are_those_of_rows_one_by_one() {
    let run = states();
    let many = Session::with_options(&run.store, &Options::default().partitions(2).batch_rows(100)).unwrap();
    let alone = Session::with_options(&run.store, &Options::default().partitions(1)).unwrap();
    for question in QUESTIONS {
        let by_rows =
            question.replace(" FROM solver", " FROM (SELECT * FROM solver ORDER BY sample_id LIMIT 1000000)");
        let plan = sorted_lines(&run.session, &format!("EXPLAIN {by_rows}")).join("\n");
        assert!(!plan.contains("GroupedScan"), "{by_rows}\n{plan}");
        let wanted = sorted_lines(&run.session, &by_rows);
        for session in [&run.session, &many, &alone] {
            let plan = sorted_lines(session, &format!("EXPLAIN {question}")).join("\n");
            assert!(plan.contains("GroupedScan: by="), "{question}\n{plan}");
            assert_eq!(sorted_lines(session, question), wanted, "{question}");
        }
    }
}

#[test]
fn what_asks_for_more_is_grouped_by_the_planner() {
    let run = states();
    for sql in [
        "SELECT reward_status, min(note) FROM solver GROUP BY 1",
        "SELECT turn, first_value(reward ORDER BY sample_id) FROM solver GROUP BY 1",
        "SELECT turn, sum(DISTINCT reward), max(reward) FROM solver GROUP BY 1",
        "SELECT reward_status, count(*) FILTER (WHERE turn = 1) FROM solver GROUP BY 1",
        "SELECT reward, count(*) FROM solver GROUP BY 1",
        "SELECT turn + 1, count(*) FROM solver GROUP BY 1",
        "SELECT turn, note_status, count(*) FROM solver GROUP BY GROUPING SETS ((turn), (note_status))",
        "SELECT turn, attempt, purpose, step, agent, count(*) FROM solver GROUP BY 1, 2, 3, 4, 5",
    ] {
        let plan = sorted_lines(&run.session, &format!("EXPLAIN {sql}")).join("\n");
        assert!(!plan.contains("GroupedScan"), "{sql}\n{plan}");
        sorted_lines(&run.session, sql);
    }
}

#[test]
fn grouping_by_kind_touches_no_value() {
    let run = states();
    let before = run.store.stats().value_reads;
    sorted_lines(&run.session, QUESTIONS[1]);
    assert_eq!(run.store.stats().value_reads, before); // FX-23
}

/// Each question with whether no more of its groups are kept than it shows.
#[test]
fn the_first_groups_alone_are_kept_where_none_is_a_float() {
    let (run, _step, _claim) = Run::busy();
    for (sql, few) in [
        ("SELECT input_id, max(policy_version) AS m FROM solver GROUP BY 1 ORDER BY m DESC LIMIT 2", true),
        ("SELECT input_id, min(created_at) AS m FROM solver GROUP BY 1 ORDER BY m LIMIT 2", true),
        ("SELECT sample_id, max(turn) AS m FROM solver GROUP BY 1 ORDER BY m DESC LIMIT 2", true),
        ("SELECT step FROM solver GROUP BY step ORDER BY step DESC LIMIT 2", true),
        ("SELECT input_id, max(reward) AS m FROM solver GROUP BY 1 ORDER BY m DESC LIMIT 2", false),
        ("SELECT reward FROM solver GROUP BY reward ORDER BY reward LIMIT 2", false),
        ("SELECT reward, max(turn) AS m FROM solver GROUP BY 1 ORDER BY m DESC LIMIT 2", false),
        (
            "SELECT m FROM (SELECT max(reward * 2.0) AS m FROM solver GROUP BY turn) ORDER BY m DESC LIMIT 2",
            false,
        ),
    ] {
        let plans = run.rows(&format!("EXPLAIN {sql}"));
        let plan = plans[1]["plan"].as_str().unwrap();
        assert!(plan.contains("AggregateExec"), "{plan}");
        assert_eq!(plan.contains("lim=[2]"), few, "{sql}: {plan}");
    }
}
