//! Functions that make much of little: what is within their bounds is what it was, what is beyond is refused before it is made.

use std::time::Duration;

use forebay_query::{Cause, Kind, Options, Session};
use serde_json::{Value as Json, json};

use crate::fixture::Run;

/// Each would take gigabytes, or more than there are.
const BEYOND: &[(&str, &str)] = &[
    ("repeat", "SELECT length(repeat('x', 2000000000))"),
    ("repeat", "SELECT length(repeat('x', 9223372036854775807))"),
    ("repeat", "SELECT max(length(repeat('x', value * 1000000))) FROM generate_series(1, 8000)"),
    ("lpad", "SELECT length(lpad('x', 2000000000))"),
    ("rpad", "SELECT length(rpad('x', 500000000, 'é'))"),
    ("rpad", "SELECT max(length(rpad('x', value * 1000000, 'é'))) FROM generate_series(1, 8000)"),
    ("range", "SELECT array_length(range(0, 500000000))"),
    ("range", "SELECT array_length(range(-9223372036854775807, 9223372036854775807))"),
    ("range", "SELECT count(*) FROM (SELECT unnest(range(value * 1000000)) FROM generate_series(1, 8000))"),
    ("generate_series", "SELECT array_length(generate_series(0, -500000000, -1))"),
    (
        "generate_series",
        "SELECT array_length(generate_series(DATE '0001-01-01', DATE '9999-12-31', INTERVAL '1' DAY))",
    ),
    (
        "range",
        "SELECT array_length(range(TIMESTAMP '2000-01-01', TIMESTAMP '2020-01-01', INTERVAL '1 nanosecond'))",
    ),
    ("array_repeat", "SELECT array_length(array_repeat(1, 2000000000))"),
    ("array_repeat", "SELECT array_length(list_repeat([1, 2, 3], 100000000))"),
    ("array_resize", "SELECT array_length(array_resize([1], 2000000000))"),
    ("array_resize", "SELECT array_length(list_resize([1], 2000000000, 7))"),
    ("replace", "SELECT length(replace(repeat('x', 100000), 'x', repeat('y', 100000)))"),
    ("replace", "SELECT length(replace(repeat('x', 100000), '', repeat('y', 100000)))"),
    ("regexp_replace", "SELECT length(regexp_replace(repeat('x', 100000), 'x', repeat('y', 100000), 'g'))"),
    ("regexp_match", "SELECT regexp_match(repeat('x', 100000), '((((x*))))')"),
    ("array_to_string", "SELECT length(array_to_string(range(0, 10000), repeat('-', 100000)))"),
    ("concat_ws", "SELECT length(concat_ws(repeat('-', 100000), 'a', 'b', 'c'))"),
    ("concat", "SELECT length(concat(repeat('x', 100000), repeat('x', 100000)))"),
    ("||", "SELECT length(repeat('x', 100000) || repeat('x', 100000))"),
    ("encode", "SELECT length(encode(repeat('x', 100000), 'hex'))"),
    ("make_array", "SELECT array_length([repeat('x', 100000), repeat('x', 100000)])"),
    ("arrow_cast", "SELECT arrow_cast([1], 'FixedSizeList(2000000000, Int64)')"),
    ("arrow_cast", "SELECT arrow_cast(NULL, 'FixedSizeBinary(2000000000)')"),
    ("levenshtein", "SELECT levenshtein(repeat('x', 100000), repeat('y', 100000))"),
];

#[test]
fn what_would_take_too_much_is_refused_and_the_session_goes_on() {
    let run = Run::empty();
    for (function, sql) in BEYOND {
        let error = run.session.sql_blocking(sql).unwrap_err();
        assert!(matches!(error.cause(), Cause::Memory { .. }), "{sql}: {error}");
        let told = error.to_string();
        assert!(
            told.contains(&format!("{function} ")) && told.contains("--memory-bytes-max"),
            "{sql}: {told}"
        );
    }
    assert_eq!(run.column("SELECT repeat('ab', 3)"), [json!("ababab")]);
}

/// Twice as long again and again: each is refused where it would be too long, whatever it grew through.
#[test]
fn what_grows_again_and_again_is_refused_where_it_is_too_much() {
    let run = Run::empty();
    let small = Session::with_options(&run.store, &Options::default().memory_bytes_max(1 << 20)).unwrap();
    for step in ["t || t", "concat(t, t)", "encode(t, 'hex')", "replace(t, 'x', 'xx')"] {
        let first = "t0 AS (SELECT repeat('x', 1000 + value) AS t FROM generate_series(1, 2))".to_owned();
        let others = (0..12).map(|at| format!("t{} AS (SELECT {step} AS t FROM t{at})", at + 1));
        let steps: Vec<String> = std::iter::once(first).chain(others).collect();
        let sql = format!("WITH {} SELECT max(length(t)) FROM t12", steps.join(", "));
        let error = small.sql_blocking(&sql).unwrap_err();
        assert_eq!(error.kind(), Kind::Capacity, "{step}: {error}");
    }
}

#[test]
fn a_larger_limit_allows_more() {
    let run = Run::empty();
    let sql = "SELECT length(repeat('x', 200000))";
    assert_eq!(run.error(sql, Kind::Capacity).matches("131072").count(), 1);
    let roomy = Session::with_options(&run.store, &Options::default().memory_bytes_max(4 << 30)).unwrap();
    assert_eq!(crate::fixture::lines(&roomy, sql).last().unwrap(), "200000");
}

/// Where everything might match, what does is counted.
#[test]
fn what_is_replaced_seldom_is_not_taken_for_much() {
    let run = Run::empty();
    let small = Session::with_options(&run.store, &Options::default().memory_bytes_max(1 << 20)).unwrap();
    let long = "repeat('x', 5000 + value) || 'a'";
    for (sql, expected) in [
        (format!("replace({long}, 'a', repeat('y', 900))"), 5_901),
        (format!("regexp_replace({long}, 'a', repeat('y', 900), 'g')"), 5_901),
        (format!("regexp_replace({long}, 'A', repeat('y', 900), 'gi')"), 5_901),
        (format!("regexp_replace({long}, 'x', repeat('y', 900))"), 5_901),
    ] {
        let sql = format!("SELECT max(length({sql})) AS n FROM generate_series(1, 1)");
        assert_eq!(crate::fixture::lines(&small, &sql).last().unwrap(), &expected.to_string(), "{sql}");
    }
    let many = format!(
        "SELECT length(regexp_replace({long}, 'x', repeat('y', 900), 'gi')) FROM generate_series(1, 1)"
    );
    assert_eq!(small.sql_blocking(&many).unwrap_err().kind(), Kind::Capacity);
}

/// The same as without a bound: types, names, NULL, constants beside columns.
#[test]
fn what_is_within_the_bounds_is_what_it_was() {
    let run = Run::empty();
    for (expression, expected) in [
        ("'a' || 'b'", json!("ab")),
        ("'a' || NULL", Json::Null),
        ("1 || 'b'", json!("1b")),
        ("'n' || 2.5", json!("n2.5")),
        ("[1] || [2]", json!([1, 2])),
        ("'a' || 'b' || 'c' || (1 + 1)", json!("abc2")),
        ("concat('a', NULL, 'b')", json!("ab")),
        ("concat_ws('-', 'a', NULL, 'b')", json!("a-b")),
        ("repeat('ab', -1)", json!("")),
        ("repeat(NULL, 3)", Json::Null),
        ("repeat('ab', CAST(NULL AS BIGINT))", Json::Null),
        ("lpad('abc', 2)", json!("ab")),
        ("lpad('abc', 5, 'éü')", json!("éüabc")),
        ("rpad('abc', 5)", json!("abc  ")),
        ("range(3)", json!([0, 1, 2])),
        ("range(3, 0, -2)", json!([3, 1])),
        ("generate_series(1, 3)", json!([1, 2, 3])),
        ("range(1, 3, CAST(NULL AS BIGINT))", Json::Null),
        ("array_length(range(DATE '2024-01-01', DATE '2024-03-01', INTERVAL '1' MONTH))", json!(2)),
        ("array_repeat('a', 2)", json!(["a", "a"])),
        ("array_resize([1, 2], 3, 9)", json!([1, 2, 9])),
        ("array_resize([1, 2], 1)", json!([1])),
        ("arrow_cast([1, 2], 'FixedSizeList(2, Int64)')", json!([1, 2])),
        ("replace('banana', 'an', 'AN')", json!("bANANa")),
        ("regexp_replace('banana', '(a)n', '\\1m', 'g')", json!("bamama")),
        ("regexp_match('banana', '(b)(a)')", json!(["b", "a"])),
        ("array_to_string([1, 2, NULL], ',', '?')", json!("1,2,?")),
        ("encode('ab', 'hex')", json!("6162")),
        ("[1, 2]", json!([1, 2])),
        ("array_append([1], 2)", json!([1, 2])),
        ("levenshtein('kitten', 'sitting')", json!(3)),
        ("levenshtein('kitten', CAST(NULL AS VARCHAR))", Json::Null),
    ] {
        assert_eq!(
            run.column(&format!("SELECT {expression} AS made")),
            std::slice::from_ref(&expected),
            "{expression}"
        );
        // The same under a condition, where it is one column of several rows.
        let computed = format!(
            "SELECT made FROM (SELECT {expression} AS made, value FROM generate_series(1, 3)) WHERE value = 2"
        );
        assert_eq!(run.column(&computed), [expected], "{expression}");
    }
    let named = &run
        .rows("SELECT 'a' || x, x || x FROM (SELECT CAST(value AS VARCHAR) AS x FROM generate_series(7, 7))")
        [0];
    assert_eq!(named.as_object().unwrap().values().collect::<Vec<_>>(), [&json!("a7"), &json!("77")]);
    let grouped = "SELECT 'v' || (value % 2) AS k, count(*) AS n FROM generate_series(1, 5) GROUP BY 'v' || (value % 2) ORDER BY k";
    assert_eq!(run.rows(grouped), [json!({"k": "v0", "n": 2}), json!({"k": "v1", "n": 3})]);
}

#[test]
fn a_series_that_goes_both_ways_and_a_list_of_less_than_nothing_are_refused() {
    let run = Run::empty();
    assert!(run.error("SELECT array_resize([1], -1)", Kind::Input).contains("no list has -1 values"));
    for step in ["1 month -31 days", "1 day -86400 seconds"] {
        let sql = format!("SELECT range(DATE '2024-01-01', DATE '2023-01-01', INTERVAL '{step}')");
        assert!(run.error(&sql, Kind::Input).contains("forward and backward"), "{step}");
    }
}

#[test]
fn texts_are_compared_until_the_statement_is_over() {
    let run = Run::empty();
    let words = "SELECT repeat('x', 8000 + value % 7) AS a, repeat('y', 8000 + value % 5) AS b FROM generate_series(1, 8000)";
    let limited = run.session.with_statement_time_max(Some(Duration::from_millis(300)));
    let error = limited.sql_blocking(&format!("SELECT max(levenshtein(a, b)) FROM ({words})")).unwrap_err();
    assert!(matches!(error.cause(), Cause::Time { .. }), "{error}");
    // In several turns, all rows are there.
    let rows = "SELECT sum(levenshtein(repeat('x', 2000 + value % 3), repeat('x', 2000))) FROM generate_series(0, 59)";
    assert_eq!(run.column(rows), [json!(60)]);
}
