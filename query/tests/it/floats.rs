//! Numbers that are hostile to plans: two zeros, NaN of either sign, infinities, and 0.1 as a float32. A query answers the same
//! for rows that are in the store, that are archived, and however they come in batches.

use forebay_query::{Archive, Kind, Options, Session};
use forebay_store::NewRow;

use crate::archive::fixture::{STEPS, in_memory, move_all};
use crate::fixture::{Run, finished_group, lines};

const NAN: f32 = f32::NAN;
/// By version. x86 makes the NaN with a sign of 0/0.
const REWARDS: [[f32; 2]; STEPS as usize] =
    [[0.5, NAN], [-0.0, 0.25], [0.0, 1.0], [-NAN, 0.1], [f32::INFINITY, f32::NEG_INFINITY], [0.75, 0.1]];

/// A run with these rewards, of which nothing is archived yet.
fn run() -> Run {
    assert!((-NAN).is_sign_negative());
    let run = Run::with_tables();
    let solver = run.store.table("solver").unwrap();
    for (version, rewards) in (0..STEPS).zip(REWARDS) {
        finished_group(&solver, version, &format!("q{version}"), rewards);
        run.commit_step("solver", &[&format!("q{version}")]);
    }
    run
}

/// Sessions over the same rows: all of them live, most archived, each with rows one by one as well, and with threads.
fn sessions(run: &Run, archive: Option<&Archive>) -> Vec<Session> {
    let options = || match archive {
        Some(archive) => Options::default().archive(archive),
        None => Options::default(),
    };
    let all = [options(), options().batch_rows(1), options().batch_rows(3).partitions(4)];
    all.iter().map(|options| Session::with_options(&run.store, options).unwrap()).collect()
}

/// Asks live and archived.
fn ask(questions: &[(&str, &[&str])]) {
    let run = run();
    let differing = |sessions: &[Session], place: &str| {
        let found = questions.iter().flat_map(|(sql, expected)| {
            let answers = sessions.iter().map(|session| lines(session, sql)[1..].to_vec());
            let wrong = answers.filter(|answer| answer != expected);
            wrong.map(|answer| format!("{place}: {sql}\n  {answer:?}, not {expected:?}")).collect::<Vec<_>>()
        });
        found.collect::<Vec<_>>()
    };
    let mut found = differing(&sessions(&run, None), "live");
    let (archive, _) = in_memory();
    assert_eq!(move_all(&run.store, &archive).len() as u64, STEPS - 1, "the newest version stays");
    found.extend(differing(&sessions(&run, Some(&archive)), "archived"));
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn what_is_no_number_is_found_as_the_greatest_of_all() {
    ask(&[
        ("SELECT count(*) FROM solver WHERE reward > 9", &["3"]),
        ("SELECT count(*) FROM solver WHERE reward = 'NaN'", &["2"]),
        ("SELECT count(*) FROM solver WHERE isnan(reward)", &["2"]),
        ("SELECT count(*) FROM solver WHERE reward < 0", &["1"]),
        ("SELECT count(*) FROM solver WHERE reward <= 'inf'", &["10"]),
        (
            "SELECT sample_id, reward FROM solver ORDER BY reward DESC, policy_version LIMIT 3",
            &["q0_0_1,NaN", "q3_0_0,NaN", "q4_0_0,inf"],
        ),
        ("SELECT sample_id FROM solver ORDER BY reward LIMIT 1", &["q4_0_1"]),
        (
            "SELECT policy_version, sample_id FROM solver WHERE reward > 0.6 ORDER BY reward, sample_id",
            &["5,q5_0_0", "2,q2_0_1", "4,q4_0_0", "0,q0_0_1", "3,q3_0_0"],
        ),
    ]);
}

#[test]
fn extremes_do_not_depend_on_the_order_of_rows() {
    ask(&[
        ("SELECT min(reward), max(reward) FROM solver", &["-inf,NaN"]),
        (
            "SELECT policy_version, min(reward), max(reward) FROM solver GROUP BY 1 ORDER BY 1",
            &["0,0.5,NaN", "1,0.0,0.25", "2,0.0,1.0", "3,0.1,NaN", "4,-inf,inf", "5,0.1,0.75"],
        ),
        (
            "SELECT substr(sample_id, 4, 3) AS t, min(reward), max(reward) FROM solver GROUP BY 1 ORDER BY 1",
            &["0_0,0.0,NaN", "0_1,-inf,NaN"],
        ),
        (
            "SELECT max(CAST(-reward AS DOUBLE)) FROM solver WHERE reward IN ('inf', 1) GROUP BY policy_version ORDER BY 1",
            &["-inf", "-1.0"],
        ),
        (
            "SELECT max(reward) OVER w AS high, min(reward) OVER w AS low FROM solver WHERE policy_version < 2
             WINDOW w AS (ORDER BY sample_id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) ORDER BY sample_id",
            &["0.5,0.5", "NaN,0.5", "NaN,0.0", "0.25,0.0"],
        ),
        (
            "SELECT policy_version, (SELECT max(b.reward) FROM solver b WHERE b.policy_version = a.policy_version) AS m
             FROM solver a WHERE trajectory_id = 0 AND policy_version IN (0, 3) ORDER BY 1",
            &["0,NaN", "3,NaN"],
        ),
        ("SELECT max(x), min(x) FROM (VALUES (1, 'NaN'::DOUBLE), (1, 2.0), (1, -0.0)) AS t(g, x) GROUP BY g", &["NaN,0.0"]),
    ]);
}

#[test]
fn zero_is_one_value_and_so_is_what_is_no_number() {
    ask(&[
        ("SELECT count(*) FROM solver WHERE reward = 0", &["2"]),
        ("SELECT count(*) FROM solver WHERE reward = -0.0", &["2"]),
        ("SELECT count(*) FROM solver WHERE reward IN (0, 1, 0.75)", &["4"]),
        ("SELECT count(*) FROM solver WHERE reward IN (-0.0, 3, 4, 5)", &["2"]),
        ("SELECT count(*) FROM solver WHERE reward NOT IN (0, 0.25, 1)", &["8"]),
        ("SELECT count(*) FROM solver WHERE reward IN (SELECT 0.0)", &["2"]),
        ("SELECT count(*) FROM solver s JOIN (SELECT 0.0 AS z) t ON s.reward = t.z", &["2"]),
        ("SELECT count(*) FROM solver a JOIN solver b ON a.reward = b.reward", &["18"]),
        ("SELECT count(*) FROM (SELECT DISTINCT reward FROM solver) t", &["9"]),
        ("SELECT count(DISTINCT reward) FROM solver", &["9"]),
        ("SELECT count(*) FROM (SELECT reward, turn, count(*) FROM solver GROUP BY 1, 2) t", &["9"]),
        (
            "SELECT count(DISTINCT reward) FROM solver WHERE policy_version IN (0, 1, 2, 3) GROUP BY turn",
            &["6"],
        ),
        (
            "SELECT count(*) FROM (SELECT rank() OVER (ORDER BY reward) AS r FROM solver) t WHERE r = 2",
            &["2"],
        ),
        ("SELECT reward FROM solver GROUP BY reward ORDER BY reward DESC LIMIT 2", &["NaN", "inf"]),
        (
            "SELECT policy_version, max(reward) AS m FROM solver GROUP BY 1 ORDER BY m DESC, 1 LIMIT 3",
            &["0,NaN", "3,NaN", "4,inf"],
        ),
        (
            "SELECT policy_version, max(reward) AS m FROM solver WHERE policy_version IN (3, 5) GROUP BY 1 ORDER BY m DESC LIMIT 1",
            &["3,NaN"],
        ),
        (
            "SELECT count(*) OVER (PARTITION BY reward) AS n FROM solver ORDER BY n DESC LIMIT 7",
            &["2", "2", "2", "2", "2", "2", "1"],
        ),
        (
            "SELECT sample_id, reward FROM solver WHERE reward < 0.2 ORDER BY reward, sample_id DESC LIMIT 4 OFFSET 1",
            &["q2_0_0,0.0", "q1_0_0,0.0", "q5_0_1,0.1", "q3_0_1,0.1"],
        ),
    ]);
}

#[test]
fn a_number_in_a_statement_is_of_the_type_that_it_is_compared_with() {
    ask(&[
        ("SELECT count(*) FROM solver WHERE reward = 0.1", &["2"]),
        ("SELECT count(*) FROM solver WHERE 0.1 = reward", &["2"]),
        ("SELECT count(*) FROM solver WHERE reward IN (0.1)", &["2"]),
        ("SELECT count(*) FROM solver WHERE reward IN (0.1, 0.5, 7, 8)", &["3"]),
        ("SELECT count(*) FROM solver WHERE reward <> 0.1", &["10"]),
        ("SELECT count(*) FROM solver WHERE reward NOT IN (0.1, 0.25, 3)", &["9"]),
        ("SELECT count(*) FROM solver WHERE reward > 0.1", &["7"]),
        ("SELECT count(*) FROM solver WHERE 0.1 >= reward", &["5"]),
        ("SELECT count(*) FROM solver WHERE reward BETWEEN 0.1 AND 0.25", &["3"]),
        ("SELECT count(*) FROM solver WHERE round(reward, 1) = 0.1", &["2"]),
        ("SELECT count(*) FROM solver WHERE -reward = -0.1", &["2"]),
        ("SELECT count(*) FROM solver WHERE reward IS NOT DISTINCT FROM 0.1", &["2"]),
        ("SELECT sum(CASE reward WHEN 0.1 THEN 1 ELSE 0 END) FROM solver", &["2"]),
        (
            "SELECT reward = 0.1 AS same, count(*) FROM solver GROUP BY reward = 0.1 ORDER BY 1",
            &["false,10", "true,2"],
        ),
        // A cast means what it says, and what no float32 holds is none of them.
        ("SELECT count(*) FROM solver WHERE reward = CAST(0.1 AS DOUBLE)", &["0"]),
        ("SELECT count(*) FROM solver WHERE reward >= 1e300", &["3"]),
        ("SELECT count(*) FROM solver WHERE reward = 1e300", &["0"]),
    ]);
}

// Which rows are one batch is an accident.
#[test]
fn spreads_are_exact_and_do_not_depend_on_batches() {
    let numbers = "VALUES (1, 1.0), (2, 'NaN'::DOUBLE), (3, 1.0)";
    let (most, less) = (i64::MAX, i64::MAX - 1);
    ask(&[
        ("SELECT spread(reward), zero_spread(reward) FROM solver", &["NaN,false"]),
        ("SELECT zero_spread(reward) FROM solver WHERE reward = 0", &["true"]),
        ("SELECT zero_spread(reward) FROM solver WHERE reward = 'NaN'", &["true"]),
        (
            "SELECT zero_spread(reward) FROM solver WHERE policy_version IN (0, 5) GROUP BY policy_version ORDER BY policy_version",
            &["false", "false"],
        ),
        (&format!("SELECT spread(x), zero_spread(x) FROM ({numbers}) AS t(i, x)"), &["NaN,false"]),
        (
            &format!("SELECT spread(x), zero_spread(x) FROM (VALUES ({most}), ({less}), ({most})) AS t(x)"),
            &["1.0,false"],
        ),
        (
            &format!("SELECT spread(x), zero_spread(x) FROM (VALUES ({most}), ({})) AS t(x)", i64::MIN),
            &["1.8446744073709552e19,false"],
        ),
        ("SELECT spread(x), zero_spread(x) FROM (SELECT CAST(NULL AS BIGINT) AS x) t", &[","]),
    ]);
}

#[test]
fn sums_of_whole_numbers_do_not_wrap() {
    let run = Run::with_tables();
    let solver = run.store.table("solver").unwrap();
    for at in 0..20 {
        solver.insert_row(NewRow::new(at % 2, &format!("q{at}_0_0")).unwrap(), []).unwrap();
    }
    let most = i64::MAX;
    let rising = format!("SELECT policy_version AS g, {most} AS x, turn AS t FROM solver");
    for session in sessions(&run, None) {
        let error = |sql: &str| {
            let error = session.sql_blocking(sql).expect_err(sql);
            assert_eq!(error.kind(), Kind::Input, "{sql}: {error}");
            error.to_string()
        };
        for sql in [
            format!("SELECT sum(x) FROM ({rising})"),
            format!("SELECT g, sum(x) FROM ({rising}) GROUP BY g"),
            format!(
                "SELECT sum(CAST(x AS BIGINT UNSIGNED) + CAST({most} AS BIGINT UNSIGNED)) FROM ({rising})"
            ),
            format!(
                "SELECT sum(x) OVER (ORDER BY g, t ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM ({rising})"
            ),
        ] {
            let message = error(&sql);
            assert!(message.contains("64 bits") && message.contains("DECIMAL(38, 0)"), "{sql}: {message}");
        }
        // What fits in the end is right whatever was on the way, and wider sums are exact.
        let back = format!("SELECT sum(CASE WHEN g = 0 THEN x ELSE -x END) AS s FROM ({rising})");
        assert_eq!(lines(&session, &back)[1..], ["0"]);
        let wide = format!("SELECT sum(CAST(x AS DECIMAL(38, 0))) AS s FROM ({rising})");
        assert_eq!(lines(&session, &wide)[1..], [(20 * i128::from(most)).to_string()]);
        assert_eq!(
            lines(&session, "SELECT sum(policy_version), sum(DISTINCT policy_version) FROM solver")[1..],
            ["10,1"]
        );
        let none = "SELECT sum(policy_version) FROM solver WHERE turn > 7";
        assert_eq!(lines(&session, none)[1..], [""]);
    }
}

#[test]
fn what_is_computed_is_one_zero_and_one_nan_as_well() {
    // -0.0 and 0.0 of version 1 and 2; NaN of 0/0, which has a sign on x86; the mean of infinities.
    let zeros =
        "SELECT sample_id, reward * -1.0 AS x, -reward AS y FROM solver WHERE reward = 0 OR reward = 1";
    let mixed = "SELECT 0.0 AS z, 1 AS n UNION ALL SELECT -reward, 2 FROM solver WHERE reward = 0";
    let nans = "SELECT reward, CASE WHEN reward = 0 THEN reward / reward ELSE reward END AS x FROM solver";
    let means = "SELECT turn AS g, avg(reward) AS x FROM solver WHERE policy_version = 4 GROUP BY 1
        UNION ALL SELECT 7, 3.0 UNION ALL SELECT 8, CAST('NaN' AS DOUBLE)";
    ask(&[
        (&format!("SELECT count(*) FROM (SELECT DISTINCT x FROM ({zeros}) t) u"), &["2"]),
        (&format!("SELECT x, count(*) FROM ({zeros}) t GROUP BY x ORDER BY x"), &["-1.0,1", "0.0,2"]),
        (&format!("SELECT count(DISTINCT y) FROM ({zeros}) t"), &["2"]),
        (&format!("SELECT count(*) FROM ({zeros}) t WHERE x IN (0, 7, 8, 9)"), &["2"]),
        (&format!("SELECT count(*) FROM ({zeros}) t WHERE x BETWEEN 0 AND 9"), &["2"]),
        (&format!("SELECT count(*) FROM ({zeros}) t WHERE 0 NOT BETWEEN x AND y"), &["1"]),
        (&format!("SELECT sum(CASE x WHEN 0 THEN 1 ELSE 0 END) FROM ({zeros}) t"), &["2"]),
        (&format!("SELECT count(*) FROM (SELECT z FROM ({mixed}) t GROUP BY ROLLUP(z)) u"), &["2"]),
        (
            &format!("SELECT count(*) FROM (SELECT z FROM ({mixed}) t GROUP BY GROUPING SETS ((z), ())) u"),
            &["2"],
        ),
        (
            &format!(
                "SELECT z, grouping(z) AS g, count(*) AS n FROM ({mixed}) t GROUP BY CUBE(z) ORDER BY g, z"
            ),
            &["0.0,0,3", ",1,3"],
        ),
        (&format!("SELECT first_value(n ORDER BY z, n) FROM ({mixed}) t"), &["1"]),
        (&format!("SELECT count(*) FROM ({zeros}) t JOIN solver s ON s.reward = t.y"), &["4"]),
        (&format!("SELECT count(*) FROM solver WHERE reward IN (SELECT y FROM ({zeros}) t)"), &["2"]),
        (
            &format!("SELECT max(n) FROM (SELECT count(*) OVER (PARTITION BY x) AS n FROM ({zeros}) t) u"),
            &["2"],
        ),
        (&format!("SELECT count(*) FROM ({nans}) t WHERE x > 9"), &["5"]),
        (&format!("SELECT count(*) FROM ({nans}) t WHERE x < 0"), &["1"]),
        (&format!("SELECT count(*) FROM ({nans}) t WHERE x = 'NaN'"), &["4"]),
        (&format!("SELECT x FROM ({nans}) t GROUP BY x ORDER BY x DESC LIMIT 2"), &["NaN", "inf"]),
        (&format!("SELECT reward FROM ({nans}) t ORDER BY x DESC, reward LIMIT 2"), &["0.0", "0.0"]),
        (&format!("SELECT g FROM ({means}) t ORDER BY x, g"), &["7", "0", "8"]),
        (&format!("SELECT count(*) FROM (SELECT x FROM ({means}) t GROUP BY x) u"), &["2"]),
        (
            "SELECT sum(reward) > 9 AS s, count(*) FROM solver GROUP BY policy_version = 4 ORDER BY 2",
            &["true,2", "true,10"],
        ),
    ]);
}
