//! A look at rows that claims none.

use forebay_store::*;

use crate::support::*;

fn ids_of(batch: &arrow_array::RecordBatch) -> Vec<String> {
    let column = batch.column_by_name("sample_id").unwrap();
    (0..batch.num_rows()).map(|at| show(column, at)).collect()
}

fn look(store: &Store, peek: Peek) -> Vec<String> {
    ids_of(&store.peek("solver", &peek).unwrap())
}

#[test]
fn the_rows_that_came_first_or_last_are_shown_and_nothing_is_claimed() {
    let (store, table, train) = trained(&World::new(), None);
    let rows: Vec<Row> = (0..12).map(|at| finished(&table, 0, &format!("q{at}_0_0"))).collect();
    table.delete(&Delete::rows([rows[11]]).force()).unwrap();
    let (before, ready) = (store.commits(), store.consumers()[0].ready_rows);
    assert_eq!(look(&store, Peek::new()), (0..10).map(|at| format!("q{at}_0_0")).collect::<Vec<_>>());
    assert_eq!(look(&store, Peek::new().newest().rows_max(2)), ["q10_0_0", "q9_0_0"]);
    assert_eq!(look(&store, Peek::new().rows_max(1000)).len(), 11);
    let few = store.peek("solver", &Peek::new().columns(["reward", "sample_id"]).rows_max(1)).unwrap();
    assert_eq!((few.num_columns(), few.schema().field(0).name().as_str()), (2, "reward"));
    assert_eq!((store.commits(), store.consumers()[0].ready_rows), (before, ready));
    assert!(store.pins().is_empty(), "nothing is held afterwards");
    let step = store.begin_step(StepPlan::new().rows(&train, 2)).unwrap();
    let claim = step.next(&train, MicroBatch::of(2), Wait::No).unwrap().unwrap();
    assert_eq!(look(&store, Peek::new().rows_max(2)), ["q0_0_0", "q1_0_0"], "whoever holds them");
    assert_eq!(look(&store, Peek::new().ready_for("train").rows_max(2)), ["q2_0_0", "q3_0_0"]);
    drop(claim);
}

#[test]
fn what_is_ready_for_a_consumer_is_what_its_depth_counts() {
    let (store, table) = solver(&World::new());
    let task = Consumer::task(["solver"]).ready(["prompt"]);
    store.create_consumer("judge", task).unwrap();
    table.insert(0, "empty_0_0", []).unwrap();
    let spoilt = finished(&table, 0, "spoilt_0_0");
    finished(&table, 0, "now_0_0");
    finished(&table, 3, "future_0_0");
    table.exclude(spoilt, "bad").unwrap();
    assert_eq!(look(&store, Peek::new().ready_for("judge")), ["now_0_0"]);
    let info = &store.consumers()[0];
    assert_eq!((info.ready_rows, info.future_rows), (1, 1));
}

#[test]
fn what_cannot_be_looked_at_is_named() {
    let (store, _) = solver(&World::new());
    store.create_table("checker", Schema::new().data("verdict", DataType::Utf8)).unwrap();
    store.create_consumer("judge", Consumer::task(["checker"]).ready(["verdict"])).unwrap();
    for (table, peek, named) in [
        ("solvr", Peek::new(), "solver"),
        ("solver", Peek::new().columns(["rewrd"]), "reward"),
        ("solver", Peek::new().rows_max(0), "1 to 1000"),
        ("solver", Peek::new().rows_max(1001), "SQL"),
        ("solver", Peek::new().ready_for("juge"), "judge"),
        ("solver", Peek::new().ready_for("judge"), "takes no rows of table \"solver\""),
    ] {
        let error = store.peek(table, &peek).unwrap_err();
        assert_eq!(error.kind(), Kind::Input, "{error}");
        assert!(error.to_string().contains(named), "{error}");
    }
}

#[test]
fn a_look_is_bounded_by_columns_and_by_bytes() {
    let (store, table) = solver(&World::new());
    let twice = store.peek("solver", &Peek::new().columns(["prompt", "reward", "prompt"])).unwrap_err();
    assert!(
        twice.kind() == Kind::Input && twice.to_string().contains("\"prompt\" is named twice"),
        "{twice}"
    );
    let long = "x".repeat(60_000);
    for at in 0..300 {
        table.insert(0, &format!("q{at}_0_0"), [("prompt", long.as_str().into())]).unwrap();
    }
    let shown = look(&store, Peek::new().columns(["sample_id"]).rows_max(300));
    assert_eq!(shown.len(), (16 << 20) / 60_000, "values count whichever columns are shown");
}
