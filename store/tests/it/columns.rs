//! Columns that come, change their names and go while a run goes on.

use forebay_store::*;

use crate::support::*;

fn columns_of(store: &Store) -> Vec<String> {
    let snapshot = store.snapshot();
    let fields = snapshot.table("solver").unwrap().arrow_schema();
    fields.fields().iter().map(|field| field.name().clone()).skip(META_COLUMNS.len()).collect()
}

// FX-24
#[test]
fn a_column_added_while_running_is_empty_in_the_rows_that_are_there() {
    let world = World::new();
    let (store, table, train) = trained(&world, None);
    let old = finished(&table, 0, "a_0_0");
    let before = store.snapshot();
    let score = DataColumn::new("score", DataType::list(Element::Float32)).role(Role::Advantage).lazy();
    table.add_column(score.clone()).unwrap();
    assert_eq!(table.schema().version(), 0, "a handle shows the columns of its time");
    let new = table.insert(0, "b_0_0", [("reward", 1.0.into()), ("score", vec![0.5_f32].into())]).unwrap();
    assert_eq!(pick(&store, "solver", &["score", "score_status"]), [["null", "false"], ["0.5", "true"]]);
    assert!(
        before.table("solver").unwrap().arrow_schema().index_of("score").is_err(),
        "nor does a snapshot move"
    );
    assert_eq!(scan_of(before.table("solver").unwrap(), |name| name == "reward"), ["reward=1.0"]);
    assert_eq!(store.consumers()[0].ready_rows, 2, "nobody waits for it");
    let store = world.reopen(store);
    let table = store.table("solver").unwrap();
    assert_eq!((table.schema().version(), table.schema().data_columns().last()), (1, Some(&score)));
    table.write(old, [("score", vec![0.25_f32].into())]).unwrap();
    table.append(new, "logprobs", vec![1.0_f32].into()).unwrap();
    assert_eq!(pick(&store, "solver", &["score"]), [["0.25"], ["0.5"]]);
    let train = store.consumer(train.name()).unwrap();
    let step = store.begin_step(StepPlan::new().rows(&train, 2)).unwrap();
    let claim = step.next(&train, MicroBatch::of(2), Wait::No).unwrap().unwrap();
    assert_eq!(show_batch(&claim.columns(["score"]).unwrap()), ["score=0.25", "score=0.5"]);
}

#[test]
fn a_renamed_column_keeps_what_is_in_it_and_who_waits_for_it() {
    let world = World::new();
    let (store, table, _) = trained(&world, None);
    let row = table.insert(0, "a_0_0", [("prompt", "p".into())]).unwrap();
    table.rename_column("reward", "score").unwrap();
    table.rename_column("prompt", "question").unwrap();
    assert_eq!(columns_of(&store)[..4], ["question", "response", "logprobs", "score"]);
    assert!(columns_of(&store).contains(&"question_at".to_owned()));
    let store = world.reopen(store);
    assert_eq!(pick(&store, "solver", &["question", "score_status"]), [["p", "false"]]);
    let error = table.write(row, [("reward", 1.0.into())]).unwrap_err();
    assert_eq!(
        error.kind(),
        Kind::Input,
        "the handle is of the store before and knows of the new names: {error}"
    );
    store.table("solver").unwrap().write(row, [("score", 1.0.into())]).unwrap();
    assert_eq!(store.consumers()[0].ready_rows, 1);
}

// FX-B11: the place of a column is never used for another
#[test]
fn a_retired_column_is_gone_and_its_name_is_free() {
    let world = World::new();
    let (store, table, _) = trained(&world, None);
    let row = table.insert(0, "a_0_0", [("prompt", "an old prompt of some length".into())]).unwrap();
    let error = table.retire_column("reward").unwrap_err();
    assert!(
        matches!(error.cause(), Cause::ColumnRequired { consumer, .. } if consumer == "train"),
        "{error}"
    );
    let mut batch = store.batch();
    batch.write(&table, row, [("logprobs", vec![1.0_f32].into())]).unwrap();
    table.retire_column("logprobs").unwrap();
    assert!(
        matches!(batch.commit().unwrap_err().cause(), Cause::ColumnRetired { column, .. } if column == "logprobs")
    );
    table.retire_column("prompt").unwrap();
    assert_eq!(table.retire_column("prompt").unwrap_err().kind(), Kind::Input);
    table.add_column(DataColumn::new("prompt", DataType::Int32)).unwrap();
    table.write(row, [("prompt", 7.into())]).unwrap();
    let expected = ["response", "reward", "prompt"];
    assert_eq!(columns_of(&store)[..3], expected);
    let store = world.reopen(store);
    assert_eq!(columns_of(&store)[..3], expected);
    assert_eq!(pick(&store, "solver", &["prompt"]), [["7"]]);
    let table = store.table("solver").unwrap();
    let places: Vec<(&str, bool)> =
        table.schema().data_columns().iter().map(|c| (&*c.name, c.retired)).collect();
    let old =
        [("prompt", true), ("response", false), ("logprobs", true), ("reward", false), ("prompt", false)];
    assert_eq!(places, old);
}

#[test]
fn a_change_that_breaks_a_rule_changes_nothing() {
    let (store, table) = solver(&World::new());
    let commits = store.stats().commits;
    let results = [
        table.add_column(DataColumn::new("reward", DataType::Bool)),
        table.add_column(DataColumn::new("prompt_status", DataType::Bool)),
        table.add_column(DataColumn::new("sample_id", DataType::Bool)),
        table.add_column(DataColumn::new("a", DataType::Utf8).role(Role::Reward)),
        table.add_column(DataColumn::new("7", DataType::Utf8)),
        table.rename_column("reward", "prompt"),
        table.rename_column("rewrd", "score"),
        table.rename_column("reward", ""),
        table.retire_column("nothing"),
    ];
    for (case, result) in results.into_iter().enumerate() {
        assert_eq!(result.unwrap_err().kind(), Kind::Input, "case {case}");
    }
    assert_eq!((store.stats().commits, table.schema().version()), (commits, 0));
    for number in 4..64 {
        table.add_column(DataColumn::new(&format!("c{number}"), DataType::Bool)).unwrap();
    }
    table.retire_column("c63").unwrap();
    let error = table.add_column(DataColumn::new("again", DataType::Bool)).unwrap_err();
    assert!(matches!(error.cause(), Cause::TooMany { .. }), "retired columns keep their places: {error}");
}

#[test]
fn columns_come_and_go_under_writers_and_readers() {
    let world = World::new();
    let (store, table) = solver(&world);
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let table = &table;
            scope.spawn(move || {
                for i in 0..200 {
                    let row = table.insert(0, &format!("q{writer}_0_{i}"), [("prompt", "p".into())]).unwrap();
                    table.write(row, [("reward", 1.0.into())]).unwrap();
                }
            });
        }
        scope.spawn(|| {
            for round in 0..20 {
                table.add_column(DataColumn::new(&format!("extra{round}"), DataType::Int32)).unwrap();
                table.rename_column(&format!("extra{round}"), &format!("other{round}")).unwrap();
                table.retire_column(&format!("other{round}")).unwrap();
            }
        });
        for _ in 0..20 {
            scan(&store);
        }
    });
    let before = scan(&store);
    assert_eq!(before["solver"].len(), 400);
    let store = world.reopen(store);
    assert_eq!(scan(&store), before);
    assert_eq!(store.table("solver").unwrap().schema().version(), 60);
}
