//! Groups and joins by texts that the store has numbers for: the same answers as by the texts.

use forebay_query::{Options, Session};
use forebay_store::{CHUNK_ROWS, DataType, Delete, GroupBy, NewRow, Schema, Value};

use crate::fixture::{Run, sorted_lines};

/// Two agents whose rows fill more than one partition: three rows an input, every fifth without a parent.
fn agents() -> Run {
    let run = Run::empty();
    let solver = run.store.create_table("solver", Schema::new().data("reward", DataType::Float64)).unwrap();
    let checker = run.store.create_table("checker", Schema::new().data("reward", DataType::Float64)).unwrap();
    let mut batch = run.store.batch();
    for row in 0..5 * CHUNK_ROWS as u32 + 7 {
        let id = format!("an input with a long name, {}_0_{}", row / 3, row % 3);
        let cells: [(&str, Value<'_>); 1] = [("reward", f64::from(row % 11).into())];
        let new = NewRow::new(u64::from(row / 9_000), &id).unwrap();
        batch.insert(&solver, new, cells.iter().take(usize::from(row % 13 != 0)).cloned()).unwrap();
        if row % 7 == 0 {
            let new = NewRow::new(0, &format!("an input with a long name, {row}_0_0")).unwrap();
            let parent = format!("solver/{id}");
            let new = if row % 5 == 0 { new } else { new.parent(&parent) };
            batch.insert(&checker, new, cells).unwrap();
        }
    }
    batch.commit().unwrap();
    run
}

/// Each question by a key, `KEY`, which is a column; with an empty text behind it there is no number for it.
const QUESTIONS: [(&str, &str); 12] = [
    ("group_key", "SELECT policy_version, KEY AS k, count(*), sum(reward) FROM solver GROUP BY 1, 2"),
    ("input_id", "SELECT KEY AS k FROM solver GROUP BY 1 HAVING min(reward) < 3 AND max(reward) > 3"),
    ("agent", "SELECT agent AS a, count(*), avg(reward) FROM solver GROUP BY KEY, agent"),
    (
        "parent",
        "SELECT KEY AS k, count(*), count(parent_there) FROM (SELECT *, 1 AS parent_there FROM checker) GROUP BY 1",
    ),
    ("input_id", "SELECT 'all' AS what, count(DISTINCT KEY) AS n FROM solver"),
    ("input_id", "SELECT DISTINCT KEY AS k FROM checker"),
    ("input_id", "SELECT KEY AS k, sum(reward) AS s FROM solver GROUP BY 1 ORDER BY k LIMIT 20"),
    (
        "s.input_id",
        "SELECT count(*), sum(s.reward - c.reward) FROM solver s JOIN checker c ON KEY = c.input_id",
    ),
    (
        "s.input_id",
        "SELECT s.input_id, c.group_key, s.reward FROM solver s LEFT JOIN checker c ON KEY = c.group_key",
    ),
    (
        "c.input_id",
        "SELECT count(*) FROM solver s FULL JOIN checker c ON s.input_id = KEY AND s.agent = c.agent",
    ),
    (
        "s.input_id",
        "SELECT count(*) FROM solver s WHERE NOT EXISTS (SELECT 1 FROM checker c WHERE c.input_id = KEY)",
    ),
    (
        "s.input_id",
        "SELECT KEY AS k, n, reward FROM (SELECT input_id, count(*) AS n FROM solver GROUP BY 1) s JOIN checker c ON KEY = c.input_id",
    ),
];

#[test]
fn answers_by_number_are_those_by_text() {
    let run = agents();
    let many = Session::with_options(&run.store, &Options::default().partitions(2)).unwrap();
    for (key, question) in QUESTIONS {
        let by_number = question.replace("KEY", key);
        let by_text = question.replace("KEY", &format!("({key} || '')"));
        let wanted = sorted_lines(&run.session, &by_text);
        assert!(wanted.len() > 1, "{by_text}");
        for session in [&run.session, &many] {
            let plan = sorted_lines(session, &format!("EXPLAIN {by_number}")).join("\n");
            assert!(plan.contains(" by number"), "{by_number}\n{plan}");
            assert_eq!(sorted_lines(session, &by_number), wanted, "{by_number}");
        }
    }
}

#[test]
fn a_text_that_is_more_than_compared_is_read() {
    let run = agents();
    for sql in [
        "SELECT input_id, max(input_id) FROM solver GROUP BY 1",
        "SELECT input_id, count(*) FILTER (WHERE input_id > 'q') FROM solver GROUP BY 1",
        "SELECT upper(input_id), count(*) FROM solver GROUP BY 1",
    ] {
        let plan = sorted_lines(&run.session, &format!("EXPLAIN {sql}")).join("\n");
        assert!(!plan.contains(" by number"), "{sql}\n{plan}");
        sorted_lines(&run.session, sql);
    }
}

#[test]
fn groups_that_several_texts_name_are_told_apart() {
    let run = Run::empty();
    let solver = run.store.create_table("solver", Schema::new().data("reward", DataType::Float64)).unwrap();
    let trainer = forebay_store::Consumer::trainer(["solver"]).ready(["reward"]);
    run.store.create_consumer("train", trainer.group(GroupBy::InputAndTurn, 2)).unwrap();
    for id in ["q_0_0", "q_0_1", "q_1_0", "r_0_0"] {
        solver.insert(0, id, [("reward", 1.0.into())]).unwrap();
    }
    let rows = sorted_lines(&run.session, "SELECT group_key, count(*) AS n FROM solver GROUP BY 1");
    assert_eq!(rows, ["group_key,n", "q_0,2", "q_1,1", "r_0,1"]);
}

#[test]
fn an_input_and_a_parent_of_one_text_are_told_apart() {
    let run = Run::empty();
    let solver = run.store.create_table("solver", Schema::new().data("reward", DataType::Float64)).unwrap();
    let trainer = forebay_store::Consumer::trainer(["solver"]).ready(["reward"]);
    run.store.create_consumer("train", trainer.group(GroupBy::Parent, 2)).unwrap();
    for (id, parent) in [("solver/q_0_0_1_0", ""), ("q_1_0", "solver/q_0_0"), ("q_1_1", "solver/q_0_0")] {
        let new = NewRow::new(0, id).unwrap().parent(parent);
        solver.insert_row(new, [("reward", 1.0.into())]).unwrap();
    }
    let rows = sorted_lines(&run.session, "SELECT group_key, count(*) AS n FROM solver GROUP BY 1");
    assert_eq!(rows, ["/solver/q_0_0,1", "group_key,n", "solver/q_0_0,2"], "as characters come");
    let one = "SELECT sample_id FROM solver WHERE group_key = '/solver/q_0_0'";
    assert_eq!(sorted_lines(&run.session, one), ["sample_id", "solver/q_0_0_1_0"]);
}

#[test]
fn a_group_whose_texts_are_left_by_deleted_rows_is_gone() {
    let run = agents();
    run.store.table("solver").unwrap().delete(&Delete::version(0).force()).unwrap();
    let left = "SELECT count(*) FROM (SELECT input_id FROM solver GROUP BY 1)";
    assert_eq!(
        sorted_lines(&run.session, left),
        sorted_lines(&run.session, &left.replace("input_id FROM", "input_id || '' FROM"))
    );
}
