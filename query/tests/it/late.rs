//! The first rows of an order, with values of just these.

use forebay_query::{Options, Session};
use forebay_store::{CHUNK_ROWS, DataType, Delete, Element, NewRow, Schema, Value};

use crate::fixture::{Run, lines};

/// Rows of several partitions with texts and lists in extents, some of them absent, null or deleted.
fn prompts() -> Run {
    let run = Run::empty();
    let schema = Schema::new()
        .data("prompt", DataType::Utf8)
        .data("response", DataType::list(Element::Int32))
        .data("reward", DataType::Float32);
    let solver = run.store.create_table("solver", schema).unwrap();
    let mut batch = run.store.batch();
    for row in 0..9 * CHUNK_ROWS as u32 + 3 {
        let prompt = format!("What is {row} times {row}? Think step by step, then say it.");
        let response: Vec<i32> = (0..row as i32 % 7).collect();
        let reward: Value<'_> =
            if row % 101 == 0 { Value::Null } else { f64::from(row * 7919 % 5003).into() };
        let cells =
            [("reward", reward), ("prompt", prompt.as_str().into()), ("response", (&response[..]).into())];
        let there = if row % 13 == 0 { 1 } else { 3 };
        let id = format!("q{}_0_{}", row / 8, row % 8);
        batch
            .insert(&solver, NewRow::new(u64::from(row / 9_000), &id).unwrap(), cells.into_iter().take(there))
            .unwrap();
    }
    batch.commit().unwrap();
    solver.delete(&Delete::version(1).force()).unwrap();
    run
}

/// Questions that end in a limit, each with how many values it takes.
const QUESTIONS: [(&str, usize, u64); 7] = [
    ("SELECT sample_id, reward, prompt FROM solver ORDER BY reward, sample_id", 20, 20),
    ("SELECT prompt, reward FROM solver WHERE reward IS NOT NULL ORDER BY reward DESC, sample_id", 20, 20),
    (
        "SELECT reward, length(prompt) AS characters, prompt, response FROM solver WHERE prompt_status \
         ORDER BY reward, policy_version DESC, sample_id",
        9,
        18,
    ),
    ("SELECT * FROM solver WHERE prompt_status ORDER BY sample_id", 3, 6),
    (
        "SELECT upper(prompt) AS p, reward + 1 AS r FROM solver WHERE prompt_status ORDER BY r DESC, sample_id",
        5,
        5,
    ),
    ("SELECT response, prompt FROM solver WHERE prompt_status ORDER BY reward, sample_id OFFSET 4", 5, 18),
    (
        "SELECT prompt FROM solver WHERE prompt_status AND policy_version = 2 ORDER BY reward, sample_id",
        3_000,
        3_000,
    ),
];

#[test]
fn the_first_rows_of_an_order_are_those_of_the_whole_and_no_other_value_is_read() {
    let run = prompts();
    let many = Session::with_options(&run.store, &Options::default().partitions(2).batch_rows(64)).unwrap();
    for (question, limit, values) in QUESTIONS {
        let whole = lines(&run.session, question);
        for session in [&run.session, &many] {
            let limited = format!("{question} LIMIT {limit}");
            let plan = lines(session, &format!("EXPLAIN {limited}")).join("\n");
            assert!(plan.contains("Retrieve: table=solver"), "{limited}\n{plan}");
            let before = run.store.stats().value_reads;
            assert_eq!(lines(session, &limited), whole[..=limit], "{limited}");
            let read = run.store.stats().value_reads - before;
            assert!(read <= values, "{limited}: {read} values");
        }
    }
}

#[test]
fn an_order_by_values_reads_them() {
    let run = prompts();
    for (sql, first) in [
        (
            "SELECT prompt FROM solver WHERE prompt_status ORDER BY prompt DESC LIMIT 1",
            "What is 999 times 999?",
        ),
        (
            "SELECT prompt FROM solver WHERE prompt_status ORDER BY reverse(prompt), sample_id LIMIT 1",
            "What is ",
        ),
        ("SELECT sample_id, reward FROM solver ORDER BY reward, sample_id LIMIT 1", "q"),
    ] {
        let plan = lines(&run.session, &format!("EXPLAIN {sql}")).join("\n");
        assert!(!plan.contains("Retrieve"), "{sql}\n{plan}");
        let found = lines(&run.session, sql);
        assert!(found[1].contains(first), "{sql}: {}", found[1]);
    }
}
