//! Functions of the field, against numbers worked out by hand or by their definition.

use forebay_query::{Kind, Options, Session};
use serde_json::{Value as Json, json};

use crate::fixture::{Run, lines};

fn value(run: &Run, expression: &str) -> Json {
    run.column(&format!("SELECT {expression}"))[0].clone()
}

fn close(found: &Json, expected: f64) {
    let found = found.as_f64().unwrap_or(f64::NAN);
    assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
}

#[test]
fn kl_by_each_estimator() {
    let run = Run::empty();
    let (own, other) = ("[-1.0, -2.0]", "[-1.5, -1.0]"); // d = -0.5, 1
    let k3 = ((-0.5_f64).exp() - 1.0 + 0.5 + 1_f64.exp() - 2.0) / 2.0;
    for (estimator, expected) in [("'k1'", -0.25), ("'k2'", (0.125 + 0.5) / 2.0), ("'k3'", k3)] {
        close(&value(&run, &format!("kl({own}, {other}, {estimator})")), expected);
    }
    close(&value(&run, &format!("kl({own}, {other})")), k3);
    close(&value(&run, &format!("kl({own}, {own})")), 0.0);
    assert_eq!(value(&run, "kl(NULL, [1.0])"), Json::Null);
    let each = "SELECT kl([-1.0], [-1.5], e) AS v FROM (VALUES ('k1'), ('k2'), (NULL), ('k1')) t(e)";
    assert_eq!(
        run.column(each),
        [json!(0.5), json!(0.125), Json::Null, json!(0.5)],
        "each row by its own estimator"
    );
    let error = run.error("SELECT kl([1.0], [1.0, 2.0])", Kind::Input);
    assert!(error.contains("one list has 1, the other 2"), "{error}");
    let error = run.error("SELECT kl([1.0], [1.0], 'k9')", Kind::Input);
    assert!(error.contains("'k1', 'k2' or 'k3'"), "{error}");
    assert!(run.error("SELECT kl('a', [1.0])", Kind::Input).contains("two lists"));
    for sql in ["SELECT kl([-1.0, NULL], [-1.0, -1.0])", "SELECT kl([-1.0], [CAST(NULL AS DOUBLE)])"] {
        assert!(run.error(sql, Kind::Input).contains("holds a NULL"), "{sql}");
    }
}

/// `1 - C(n - c, k) / C(n, k)` by counting.
fn pass_at_k(n: u32, c: u32, k: u32) -> f64 {
    let subsets = (0_u32..1 << n).filter(|set| set.count_ones() == k);
    let (all, passing) =
        subsets.fold((0, 0), |(all, passing), set| (all + 1, passing + u32::from(set & ((1 << c) - 1) != 0)));
    f64::from(passing) / f64::from(all)
}

#[test]
fn pass_at_k_is_the_share_of_draws_with_a_correct_sample() {
    let run = Run::empty();
    for (n, c) in [(1, 0), (1, 1), (5, 0), (5, 2), (8, 1), (8, 7), (8, 8)] {
        for k in 1..=n {
            let samples =
                format!("SELECT i <= {c} AS correct FROM (SELECT unnest(range(1, {})) AS i)", n + 1);
            let found = &run.column(&format!("SELECT pass_at_k(correct, {k}) FROM ({samples})"))[0];
            close(found, pass_at_k(n, c, k));
        }
    }
    let groups = "SELECT i % 2 AS g, i < 3 AS correct FROM (SELECT unnest(range(0, 8)) AS i)";
    let rows =
        run.rows(&format!("SELECT g, pass_at_k(correct, 2) AS p FROM ({groups}) GROUP BY g ORDER BY g"));
    close(&rows[0]["p"], pass_at_k(4, 2, 2));
    close(&rows[1]["p"], pass_at_k(4, 1, 2));
    assert_eq!(value(&run, "pass_at_k(true, 2)"), Json::Null, "of one sample nothing is known of two tries");
    close(&value(&run, "mean_at_k(0.25, 1)"), 0.25);
    assert!(run.error("SELECT pass_at_k(1.0, 2)", Kind::Input).contains("reward > 0"));
    assert!(run.error("SELECT pass_at_k(true, 0)", Kind::Input).contains("at least 1"));
    for sql in ["SELECT pass_at_k(DISTINCT true, 1)", "SELECT mean_at_k(DISTINCT 2.0, 1)"] {
        assert!(run.error(sql, Kind::Input).contains("leave DISTINCT out"), "{sql}");
    }
}

#[test]
fn spreads_of_groups() {
    let (run, _step, _claim) = Run::busy();
    let sql = "SELECT group_key, spread(reward) AS s, zero_spread(reward) AS zero FROM solver
        WHERE reward_status GROUP BY group_key ORDER BY group_key";
    assert_eq!(
        run.rows(sql),
        [
            json!({"group_key": "q1", "s": 1.0, "zero": false}),
            json!({"group_key": "q2", "s": 0.25, "zero": false}),
            json!({"group_key": "q3", "s": 0.0, "zero": true}),
        ]
    );
    assert_eq!(value(&run, "zero_spread(CAST(NULL AS DOUBLE))"), Json::Null);
    let infinite =
        "SELECT spread(x) = 0 AS none FROM (VALUES (CAST('inf' AS DOUBLE)), (CAST('inf' AS DOUBLE))) t(x)";
    assert_eq!(run.column(infinite), [json!(true)]);
    // Rounding makes a deviation of equal numbers.
    assert_eq!(run.column("SELECT zero_spread(x) FROM (SELECT 0.1 AS x FROM range(7))"), [json!(true)]);
}

#[test]
fn advantages_by_each_estimator() {
    let run = Run::empty();
    let rewards = "SELECT * FROM (VALUES (1, 1.0), (2, 0.0), (3, 0.5), (4, 0.0), (5, NULL)) AS t(i, reward)";
    for (estimator, expected) in [
        ("'grpo'", [1.507_553_086_5, -0.904_531_851_9, 0.301_510_617_3, -0.904_531_851_9]),
        ("'grpo_sample'", [1.305_579_692_4, -0.783_347_815_4, 0.261_115_938_5, -0.783_347_815_4]),
        ("'dr_grpo'", [0.625, -0.375, 0.125, -0.375]),
        ("'rloo'", [1.0 - 0.5 / 3.0, -1.5 / 3.0, 0.5 - 1.0 / 3.0, -1.5 / 3.0]),
    ] {
        let sql = format!("SELECT advantage(reward, {estimator}) OVER () AS a FROM ({rewards}) ORDER BY i");
        let found = run.column(&sql);
        for (found, expected) in found.iter().zip(expected) {
            assert!((found.as_f64().unwrap() - expected).abs() < 1e-8, "{estimator}: {found} {expected}");
        }
        assert_eq!(found[4], Json::Null);
    }
    let grouped = "SELECT i % 2 AS g, CAST(i AS DOUBLE) AS reward FROM (SELECT unnest(range(0, 4)) AS i)";
    let sql = format!(
        "SELECT advantage(reward, 'dr_grpo') OVER (PARTITION BY g) AS a FROM ({grouped}) ORDER BY reward"
    );
    assert_eq!(run.column(&sql), [json!(-1.0), json!(-1.0), json!(1.0), json!(1.0)]);
    let error = run.error(&format!("SELECT advantage(reward, 'ppo') OVER () FROM ({rewards})"), Kind::Input);
    assert!(error.contains("'rloo'"), "{error}");
}

#[test]
fn tokens_are_read_with_the_sessions_tokenizer_alone() {
    let run = Run::empty();
    assert_eq!(value(&run, "detokenise([2, 1, 1])"), json!("four two two"));
    assert_eq!(value(&run, "detokenize([2], 'words')"), json!("four"));
    assert_eq!(value(&run, "detokenise(CAST(NULL AS BIGINT[]))"), Json::Null);
    let error = run.error("SELECT detokenise([1], '/etc/passwd')", Kind::Input);
    assert!(error.contains("no tokenizer is named") && error.contains("\"words\""), "{error}");
    assert!(run.error("SELECT detokenise([-1])", Kind::Input).contains("negative"));
    assert!(run.error("SELECT detokenise([2, NULL])", Kind::Input).contains("holds a NULL"));
}

#[test]
fn the_functions_of_a_session_are_listed() {
    let run = Run::empty();
    let functions = run.session.functions();
    assert!(functions.is_sorted());
    for name in [
        "advantage",
        "as_of",
        "avg",
        "detokenise",
        "kl",
        "lineage",
        "mean_at_k",
        "pass_at_k",
        "row_number",
        "spread",
        "substr",
        "token_length",
        "zero_spread",
    ] {
        assert!(functions.iter().any(|function| function == name), "{name}");
    }
}

// The mean over the samples, whatever k is; of fewer than k nothing is known.
#[test]
fn mean_at_k_is_the_mean_score_of_groups_with_k_samples() {
    let run = Run::empty();
    let scores = "SELECT g, CAST(s AS DOUBLE) AS s FROM (VALUES (1, 1.0), (1, 0.0), (1, 0.25), (1, 0.25), (2, 0.5), (2, 1.0), \
                  (3, 0.75), (4, NULL), (4, 0.5), (4, 0.25)) AS t(g, s)";
    for (k, expected) in [
        (1, [Some(0.375), Some(0.75), Some(0.75), Some(0.375)]),
        (2, [Some(0.375), Some(0.75), None, Some(0.375)]),
        (3, [Some(0.375), None, None, None]),
        (4, [Some(0.375), None, None, None]),
        (5, [None, None, None, None]),
    ] {
        let found = run.column(&format!("SELECT mean_at_k(s, {k}) FROM ({scores}) GROUP BY g ORDER BY g"));
        assert_eq!(found, expected.map(|mean| json!(mean)), "k = {k}");
    }
    // Parts that are merged, as groups of a large table are.
    let many = "SELECT value % 7 AS g, CAST(value % 5 AS DOUBLE) AS s FROM generate_series(1, 35000)";
    let differing =
        format!("SELECT count(*) FROM (SELECT mean_at_k(s, 8) AS m FROM ({many}) GROUP BY g) WHERE m <> 2.0");
    let several = Session::with_options(&run.store, &Options::default().partitions(4)).unwrap();
    assert_eq!(lines(&several, &differing)[1..], ["0"]);
}

// What has left a frame counts no more, NaN neither.
#[test]
fn aggregates_of_frames_forget_what_has_left_them() {
    let run = Run::empty();
    let scores = "SELECT i, CAST(s AS DOUBLE) AS s FROM (VALUES (1, '1'), (2, 'NaN'), (3, '1'), (4, '1'), (5, NULL), (6, '4'), \
                  (7, '-inf')) AS t(i, s)";
    for (function, expected) in [
        ("spread(s)", ["0.0", "NaN", "NaN", "0.0", "0.0", "0.0", "inf"]),
        ("zero_spread(s)", ["true", "false", "false", "true", "true", "true", "false"]),
        ("mean_at_k(s, 2)", ["", "NaN", "NaN", "1.0", "", "", "-inf"]),
        ("pass_at_k(s > 0, 1)", ["1.0", "1.0", "1.0", "1.0", "1.0", "1.0", "0.5"]),
    ] {
        let frame = "ORDER BY i ROWS BETWEEN 1 PRECEDING AND CURRENT ROW";
        let sql = format!("SELECT {function} OVER ({frame}) AS x FROM ({scores}) ORDER BY i");
        assert_eq!(lines(&run.session, &sql)[1..], expected, "{function}");
    }
}
