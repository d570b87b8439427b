//! Tables, rows and their identity, columns by class, order.

use std::collections::BTreeSet;
use std::sync::Arc;

use forebay_store::*;

use crate::support::*;

// FX-10
#[test]
fn a_table_is_created_once() {
    let (store, _) = solver(&World::new());
    let error = store.create_table("solver", solver_schema()).unwrap_err();
    assert_eq!(error.kind(), Kind::Input);
    assert!(error.to_string().contains("exists already"), "{error}");
    assert_eq!(store.tables(), ["solver"]);
}

// FX-10
#[test]
fn agents_that_write_at_the_same_time_stay_apart() {
    let store = World::new().open();
    let agents = ["solver", "checker", "judge"];
    agents.iter().for_each(|agent| drop(store.create_table(agent, solver_schema()).unwrap()));
    std::thread::scope(|scope| {
        for agent in agents {
            let table = store.table(agent).unwrap();
            scope.spawn(move || (0..50).for_each(|i| _ = finished(&table, 0, &format!("{agent}_0_{i}"))));
        }
    });
    for agent in agents {
        let rows = pick(&store, agent, &["input_id", "agent", "prompt"]);
        assert_eq!(rows.len(), 50);
        assert!(rows.iter().all(|row| row[0] == agent && row[1] == agent && row[2].starts_with(agent)));
    }
    check_counts(&store);
}

#[test]
fn tables_created_at_the_same_time_may_share_a_policy() {
    let store = World::new().open();
    std::thread::scope(|scope| {
        for name in ["a", "b", "c", "d"] {
            let store = store.clone();
            scope.spawn(move || store.create_table(name, solver_schema().policy("shared")).unwrap());
        }
    });
    assert_eq!(store.policies().len(), 1);
}

// FX-11, FX-17
#[test]
fn every_column_says_its_class() {
    let (store, table) = solver(&World::new());
    let snapshot = store.snapshot();
    let shown = snapshot.table("solver").unwrap().arrow_schema();
    let declared: Vec<(String, ColumnClass)> = table.schema().columns().collect();
    let found: Vec<(String, String)> =
        shown.fields().iter().map(|f| (f.name().clone(), f.metadata()["class"].clone())).collect();
    let expected: Vec<(String, String)> =
        declared.into_iter().map(|(name, class)| (name, class.as_str().to_owned())).collect();
    assert_eq!(found, expected);
    assert_eq!(found.iter().filter(|(_, class)| class == "meta").count(), META_COLUMNS.len());
}

// FX-12
#[test]
fn is_processing_is_true_from_the_claim_to_the_commit() {
    let world = World::new();
    let (store, table, train) = trained(&world, None);
    finished(&table, 0, "q_0_0");
    let processing = || pick(&store, "solver", &["is_processing", "state", "step"]).remove(0);
    assert_eq!(processing(), ["false", "ready", "null"]);
    let step = store.begin_step(StepPlan::new().rows(&train, 1)).unwrap();
    let claim = step.next(&train, MicroBatch::of(1), Wait::No).unwrap().unwrap();
    assert_eq!(processing(), ["true", "leased", "null"]);
    claim.accumulated().unwrap();
    assert_eq!(processing(), ["true", "accumulated", "null"]);
    step.commit([("solver", vec![])]).unwrap();
    assert_eq!(processing(), ["false", "consumed", "1"]);
}

// FX-14
#[test]
fn a_row_is_unique_by_version_and_sample() {
    let world = World::new();
    let (store, table) = solver(&world);
    let row = table.insert_row(NewRow::new(0, "q_0_0").unwrap().token(7), []).unwrap();
    let again =
        table.insert_row(NewRow::new(0, "q_0_0").unwrap().token(7), [("reward", 1.0.into())]).unwrap();
    assert_eq!(row, again);
    assert!(matches!(table.cell(row, "reward").unwrap(), Cell::Empty), "the row is returned as it is");
    for token in [0, 8] {
        let error = table.insert_row(NewRow::new(0, "q_0_0").unwrap().token(token), []).unwrap_err();
        assert!(matches!(error.cause(), Cause::DuplicateRow { version: 0, .. }), "{error}");
    }
    let later = table.insert(1, "q_0_0", []).unwrap();
    assert_ne!(row, later, "the same id under another version is another row");
    assert_eq!(table.counts().written, 2);
    check_counts(&store);
}

// FX-14
#[test]
fn the_token_of_the_live_attempt_counts() {
    let (_, table) = solver(&World::new());
    let row = |token| NewRow::new(0, "q_0_0").unwrap().token(token);
    let first = table.insert_row(row(1), []).unwrap();
    let second = table.insert_row(row(2).next_attempt(), []).unwrap();
    assert_ne!(first, second);
    assert_eq!(table.insert_row(row(2).next_attempt(), []).unwrap(), second, "repeating it opens no third");
    assert!(table.insert_row(row(1), []).is_err());
    assert_eq!(table.counts().written, 2);
}

// FX-14
#[test]
fn a_next_attempt_supersedes_and_fences_the_one_before() {
    let world = World::new();
    let (store, table) = solver(&world);
    let again = || NewRow::new(0, "q_0_0").unwrap().next_attempt();
    assert_eq!(
        table.insert_row(again(), []).unwrap_err().kind(),
        Kind::Input,
        "there is nothing to supersede"
    );
    let old = table.insert(0, "q_0_0", [("prompt", "a".into())]).unwrap();
    let new = table.insert_row(again(), [("prompt", "b".into())]).unwrap();
    let error = table.write(old, [("reward", 1.0.into())]).unwrap_err();
    assert!(matches!(error.cause(), Cause::RowExcluded { .. }), "{error}");
    table.write(old, [("prompt", "a".into())]).unwrap();
    assert_eq!(table.find(0, &"q_0_0".parse().unwrap()), Some(new));
    assert_eq!(
        pick(&store, "solver", &["attempt", "prompt", "excluded_reason"]),
        [["0", "a", "superseded"], ["1", "b", "null"]]
    );
    assert_eq!((table.counts().open(), table.counts().excluded["superseded"]), (1, 1));
}

#[test]
fn a_next_attempt_is_for_the_same_purpose() {
    let (_, table) = solver(&World::new());
    table.insert(0, "q_0_0", []).unwrap();
    let eval = NewRow::new(0, "q_0_0").unwrap().purpose(Purpose::Eval).next_attempt();
    assert_eq!(table.insert_row(eval, []).unwrap_err().kind(), Kind::Input);
    assert_eq!(table.counts().open(), 1);
}

// FX-14, FX-26
#[test]
fn rows_of_a_version_left_behind_are_refused_and_those_there_are_counted() {
    let world = World::new();
    let (store, table, train) = trained(&world, None);
    finished(&table, 0, "q_0_0");
    let late = table.insert_row(NewRow::new(0, "q_0_1").unwrap().token(5), []).unwrap();
    assert_eq!(train_once(&store, &train, StepPlan::new().rows(&train, 1), "solver"), 1);
    let error = table.insert(0, "q_0_2", []).unwrap_err();
    assert!(matches!(error.cause(), Cause::Stale { version: 0, current: 1, .. }), "{error}");
    let again = table.insert_row(NewRow::new(0, "q_0_1").unwrap().token(5), []).unwrap();
    assert_eq!(again, late, "an insert that was acknowledged may be repeated at any time");
    assert!(matches!(
        table.write(late, [("reward", 1.0.into())]).unwrap_err().cause(),
        Cause::RowExcluded { .. }
    ));
    table.insert(1, "q_0_0", []).unwrap();
    table.insert(2, "q_0_0", []).unwrap();
    assert_eq!(table.counts().excluded["stale"], 1);
    check_counts(&store);
}

#[test]
fn rows_of_every_earlier_version_are_stale_after_a_commit() {
    let store = World::new().open();
    let a = store.create_table("a", solver_schema().policy("p")).unwrap();
    let b = store.create_table("b", solver_schema().policy("p")).unwrap();
    let train_a = store.create_consumer("ta", Consumer::trainer(["a"]).ready(["reward"])).unwrap();
    finished(&b, 0, "old_0_0");
    finished(&a, 0, "q_0_0");
    train_once(&store, &train_a, StepPlan::new().rows(&train_a, 1), "p");
    assert_eq!(b.counts().open(), 1, "nobody trains on b yet");
    store.create_consumer("tb", Consumer::trainer(["b"]).ready(["reward"])).unwrap();
    finished(&a, 1, "q_0_0");
    train_once(&store, &train_a, StepPlan::new().rows(&train_a, 1), "p");
    assert_eq!((b.counts().open(), b.counts().excluded["stale"]), (0, 1));
    check_counts(&store);
}

// FX-15
#[test]
fn order_is_numeric_by_version_input_turn_trajectory_and_attempt() {
    let (store, table) = solver(&World::new());
    let sorted = [
        (0, "2_0_2"),
        (0, "2_0_10"),
        (0, "2_1_0"),
        (0, "10_0_0"),
        (0, "q2_0_0"),
        (0, "q10_0_0"),
        (1, "1_0_0"),
    ];
    for (version, id) in sorted.iter().rev() {
        table.insert(*version, id, []).unwrap();
    }
    table.insert_row(NewRow::new(0, "2_0_2").unwrap().next_attempt(), []).unwrap();
    let found = pick(&store, "solver", &["policy_version", "sample_id", "attempt"]);
    let mut expected: Vec<[String; 3]> =
        sorted.iter().map(|(v, id)| [v.to_string(), (*id).to_owned(), "0".to_owned()]).collect();
    expected.insert(1, ["0".to_owned(), "2_0_2".to_owned(), "1".to_owned()]);
    assert_eq!(found, expected);
}

// FX-15
#[test]
fn eight_shuffled_writers_give_the_same_scan() {
    let mut scans = BTreeSet::new();
    for seed in 0..4_u64 {
        let (store, table) = solver(&World::new());
        let random = SeededRandomness::new(seed);
        let mut order: Vec<u32> = (0..400).collect();
        (1..order.len()).rev().for_each(|i| order.swap(i, (random.next_u64() % (i as u64 + 1)) as usize));
        std::thread::scope(|scope| {
            for part in order.chunks(50) {
                let table = &table;
                scope.spawn(move || part.iter().for_each(|&i| write_row(table, i)));
            }
        });
        check_counts(&store);
        scans.insert(scan(&store)["solver"].join("\n"));
    }
    assert_eq!(scans.len(), 1);
}

fn write_row(table: &Table, i: u32) {
    let id = format!("q{}_{}_{}", i / 8, i % 2, i % 8 / 2);
    let prompt = "a prompt that does not fit into a view ".repeat(i as usize % 3);
    let row = table.insert(u64::from(i % 3), &id, [("prompt", prompt.into())]).unwrap();
    let tokens: Vec<i32> = (0..i as i32 % 40).collect();
    table.append(row, "response", (&tokens[..tokens.len() / 2]).into()).unwrap();
    table.append(row, "response", (&tokens[tokens.len() / 2..]).into()).unwrap();
    table.finalize(row, "response").unwrap();
    if i.is_multiple_of(5) {
        table.exclude(row, "every fifth").unwrap();
    } else {
        table.write(row, [("reward", f64::from(i).into()), ("logprobs", Value::Null)]).unwrap();
    }
}

#[test]
fn a_batch_over_tables_is_one_record_or_none() {
    let world = World::new();
    let (store, solver) = solver(&world);
    let judge = store.create_table("judge", Schema::new().data("prompt", DataType::Utf8)).unwrap();
    let row = solver.insert(0, "q_0_0", []).unwrap();
    let before = (store.stats().commits, scan(&store));
    let mut batch = store.batch();
    batch
        .insert(&judge, NewRow::new(0, "q_1_0").unwrap().parent("solver/q_0_0"), [("prompt", "x".into())])
        .unwrap();
    batch.write(&solver, row, [("reward", 1.0.into())]).unwrap();
    batch.insert(&solver, NewRow::new(0, "q_0_0").unwrap(), []).unwrap(); // a duplicate
    assert!(matches!(batch.commit().unwrap_err().cause(), Cause::DuplicateRow { .. }));
    assert_eq!((store.stats().commits, scan(&store)), before);

    let mut batch = store.batch();
    batch
        .insert(&judge, NewRow::new(0, "q_1_0").unwrap().parent("solver/q_0_0"), [("prompt", "x".into())])
        .unwrap();
    batch.write(&solver, row, [("reward", 1.0.into())]).unwrap();
    assert_eq!(batch.commit().unwrap().len(), 1);
    assert_eq!(store.stats().commits, before.0 + 1);
    assert_eq!(pick(&store, "judge", &["parent"]), [["solver/q_0_0"]]);
}

#[test]
fn an_empty_batch_writes_nothing() {
    let (store, _) = solver(&World::new());
    let before = store.stats();
    assert!(store.batch().commit().unwrap().is_empty());
    assert_eq!(store.stats(), before);
}

#[test]
fn the_changes_of_a_batch_are_checked_against_each_other() {
    let (store, table) = solver(&World::new());
    let row = table.insert(0, "q_0_0", []).unwrap();
    let reward = |value: f64| [("reward", value.into())];

    let mut batch = store.batch();
    batch.write(&table, row, reward(1.0)).unwrap();
    batch.write(&table, row, reward(2.0)).unwrap();
    assert!(matches!(batch.commit().unwrap_err().cause(), Cause::CellFinal { .. }));

    let mut batch = store.batch();
    batch.exclude(&table, row, "broken").unwrap();
    batch.write(&table, row, reward(1.0)).unwrap();
    assert!(matches!(batch.commit().unwrap_err().cause(), Cause::RowExcluded { .. }));

    let mut batch = store.batch();
    batch.insert(&table, NewRow::new(0, "q_0_0").unwrap().next_attempt(), []).unwrap();
    batch.write(&table, row, reward(1.0)).unwrap();
    assert!(matches!(batch.commit().unwrap_err().cause(), Cause::RowExcluded { .. }));

    assert!(matches!(table.cell(row, "reward").unwrap(), Cell::Empty));
    let mut batch = store.batch();
    batch.write(&table, row, reward(1.0)).unwrap();
    batch.write(&table, row, reward(1.0)).unwrap();
    batch.exclude(&table, row, "first").unwrap();
    batch.exclude(&table, row, "second").unwrap();
    batch.commit().unwrap();
    assert_eq!(pick(&store, "solver", &["reward", "excluded_reason"]), [["1.0", "first"]]);
    check_counts(&store);
}

#[test]
fn eval_and_warm_up_rows_are_not_counted_and_never_trained_on() {
    let (store, table, train) = trained(&World::new(), None);
    for (id, purpose) in [("e_0_0", Purpose::Eval), ("w_0_0", Purpose::WarmUp)] {
        let row = NewRow::new(0, id).unwrap().purpose(purpose);
        let row = table.insert_row(row, [("reward", 1.0.into())]).unwrap();
        table.exclude(row, "no longer wanted").unwrap();
    }
    table
        .insert_row(NewRow::new(0, "e_0_1").unwrap().purpose(Purpose::Eval), [("reward", 1.0.into())])
        .unwrap();
    assert_eq!(table.counts(), TableCounts::default());
    let step = store.begin_step(StepPlan::new().rows(&train, 1)).unwrap();
    assert!(step.next(&train, MicroBatch::up_to(1), Wait::No).unwrap().is_none());
    check_counts(&store);
}

#[test]
fn what_belongs_to_another_store_is_refused() {
    let (ours, table) = solver(&World::new());
    let row = table.insert(0, "q_0_0", []).unwrap();
    let (theirs, _, train) = trained(&World::new(), None);
    let mut batch = theirs.batch();
    assert_eq!(batch.insert(&table, NewRow::new(0, "q_0_0").unwrap(), []).unwrap_err().kind(), Kind::Input);
    assert_eq!(batch.write(&table, row, []).unwrap_err().kind(), Kind::Input);
    assert_eq!(ours.begin_step(StepPlan::new().rows(&train, 1)).unwrap_err().kind(), Kind::Input);
    let step = ours.begin_step(StepPlan::new()).unwrap();
    assert_eq!(step.next(&train, MicroBatch::of(1), Wait::No).unwrap_err().kind(), Kind::Input);
}

#[test]
fn an_exclusion_needs_a_reason() {
    let (store, table) = solver(&World::new());
    let row = table.insert(0, "q_0_0", []).unwrap();
    assert_eq!(table.exclude(row, "").unwrap_err().kind(), Kind::Input);
    let silent = NewRow::new(0, "q_0_1").unwrap().excluded("");
    assert_eq!(table.insert_row(silent, []).unwrap_err().kind(), Kind::Input);
    table.insert_row(NewRow::new(0, "q_0_1").unwrap().excluded("parent gone"), []).unwrap();
    assert_eq!(table.counts().excluded["parent gone"], 1);
    check_counts(&store);
}

#[test]
fn sixty_four_columns_use_every_bit_of_the_status_word() {
    let world = World::new();
    let store = world.open();
    let names: Vec<String> = (0..64).map(|i| format!("c{i}")).collect();
    let schema = names.iter().fold(Schema::new(), |schema, name| schema.data(name, DataType::Int32));
    let table = store.create_table("wide", schema).unwrap();
    let task = store.create_consumer("last", Consumer::task(["wide"]).ready(["c63"])).unwrap();
    let all = Consumer::task(["wide"]).ready(names.iter().map(String::as_str));
    let all = store.create_consumer("all", all).unwrap();
    let row = table.insert(0, "q_0_0", [("c62", 62.into())]).unwrap();
    assert!(task.claim(MicroBatch::of(1), "me", Wait::No).unwrap().is_none());
    table.write(row, [("c63", Value::Null)]).unwrap();
    assert_eq!(task.claim(MicroBatch::of(1), "me", Wait::No).unwrap().unwrap().len(), 1);
    assert!(all.claim(MicroBatch::of(1), "me", Wait::No).unwrap().is_none());
    table.write(row, (0..62).map(|i| (names[i].as_str(), (i as i32).into()))).unwrap();
    assert_eq!(all.claim(MicroBatch::of(1), "me", Wait::No).unwrap().unwrap().len(), 1);
    let store = world.reopen(store);
    let found = pick(&store, "wide", &["c0", "c61", "c62", "c63", "c63_status"]);
    assert_eq!(found, [["0", "61", "62", "null", "true"]]);
}

#[test]
fn a_tensor_has_a_size() {
    let store = World::new().open();
    for shape in [vec![0], vec![2, 0], vec![1 << 31, 1 << 31, 4], vec![1 << 28, 2]] {
        let schema = Schema::new().data("t", DataType::tensor(Element::Float32, shape.clone()));
        assert_eq!(store.create_table("t", schema).unwrap_err().kind(), Kind::Input, "{shape:?}");
    }
    let scalar = Schema::new().data("t", DataType::tensor(Element::Float32, []));
    let table = store.create_table("t", scalar).unwrap();
    table.insert(0, "q_0_0", [("t", (&[0.5_f32][..]).into())]).unwrap();
    assert_eq!(pick(&store, "t", &["t"]), [["0.5"]]);
}

// FX-23
#[test]
fn meta_and_status_queries_read_no_value() {
    let (store, table) = solver(&World::new());
    for i in 0..20 {
        let row = finished(&table, 0, &format!("an-input-id-longer-than-a-view_{i}_0"));
        table.write(row, [("response", vec![1_i32; 40].into())]).unwrap();
    }
    let snapshot = store.snapshot();
    let shown = snapshot.table("solver").unwrap();
    let light: Vec<String> = table
        .schema()
        .columns()
        .filter(|(_, class)| *class != ColumnClass::Data)
        .map(|(name, _)| name)
        .collect();
    assert_eq!(scan_of(shown, |name| light.iter().any(|l| l == name)).len(), 20);
    assert_eq!(scan_of(shown, |name| name == "reward").len(), 20);
    table.counts();
    assert_eq!(store.stats().value_reads, 0);
    scan_of(shown, |name| name == "response");
    assert_eq!(store.stats().value_reads, 20);
}

#[test]
fn a_snapshot_of_a_table_without_data_columns_still_counts_rows() {
    let store = World::new().open();
    let table = store.create_table("bare", Schema::new()).unwrap();
    table.insert(0, "q_0_0", []).unwrap();
    let snapshot = store.snapshot();
    let batch =
        snapshot.table("bare").unwrap().scan(Some(&[]), ScanOrder::Arrival, 8).unwrap().next().unwrap();
    assert_eq!(batch.unwrap().num_rows(), 1);
    drop(Arc::new(snapshot));
}

#[test]
fn a_table_has_sixteen_consumers_at_most_and_every_one_of_them_works() {
    let world = World::new();
    let (store, table) = solver(&world);
    let declare = |store: &Store, at: usize| {
        store.create_consumer(&format!("task{at}"), Consumer::task(["solver"]).ready(["reward"]))
    };
    (0..16).for_each(|at| _ = declare(&store, at).unwrap());
    let error = declare(&store, 16).unwrap_err();
    assert!(matches!(error.cause(), Cause::TooMany { what: "consumers", limit: 16, .. }), "{error}");
    finished(&table, 0, "q_0_0");
    let store = world.reopen(store);
    for at in 0..16 {
        let task = store.consumer(&format!("task{at}")).unwrap();
        let claim = task.claim(MicroBatch::of(1), "me", Wait::No).unwrap().unwrap();
        claim.finish(|_| Ok(())).unwrap();
    }
    assert!(declare(&store, 16).is_err());
    check_counts(&store);
}
