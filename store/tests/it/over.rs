//! A version that is over leaves the store, if it still is what a snapshot showed.

use forebay_store::*;

use crate::support::*;

/// A store whose policy stands at version 2, with a trained row of version 0, and beside it a row for evaluation that
/// may still be written to.
fn two_versions_on(world: &World) -> (Store, Table, Row) {
    let store = Store::open(ROOT, world.options().object_versions_kept(1)).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    let train = store.create_consumer("train", Consumer::trainer(["solver"]).ready(["reward"])).unwrap();
    finished(&table, 0, "q10_0_0");
    let open = NewRow::new(0, "q2_0_0").unwrap().purpose(Purpose::Eval);
    let open = table.insert_row(open, [("prompt", "p".into())]).unwrap();
    train_once(&store, &train, StepPlan::new().rows(&train, 1), "solver");
    finished(&table, 1, "q1_0_0");
    train_once(&store, &train, StepPlan::new().rows(&train, 1), "solver");
    (store, table, open)
}

fn rows(store: &Store) -> usize {
    store.snapshot().table("solver").unwrap().row_count()
}

#[test]
fn a_version_is_read_in_the_order_of_its_numbers_and_deleted_whole() {
    let world = World::new();
    let (store, table, _) = two_versions_on(&world);
    assert_eq!([1, 2, 3].map(|kept| table.newest_version_over(kept)), [Some(1), Some(0), None]);
    let snapshot = store.snapshot();
    let seen = snapshot.table("solver").unwrap();
    let counted = |last| seen.versions_up_to(last).into_iter().collect::<Vec<_>>();
    let expected = [(0, VersionRows { rows: 2, open: 0 }), (1, VersionRows { rows: 1, open: 0 })];
    assert_eq!((counted(9), counted(0)), (expected.to_vec(), expected[..1].to_vec()));
    assert_eq!([0, 1, 2].map(|version| seen.has_version(version)), [true, true, false]);
    let position = seen.arrow_schema().index_of("sample_id").unwrap();
    let ids = seen.read(&seen.rows_of_version(0), &[ScanColumn::Value(position)]).unwrap();
    assert_eq!(show_batch(&ids), ["sample_id=q2_0_0", "sample_id=q10_0_0"]);
    assert_eq!(table.delete_unchanged(0, seen).unwrap().rows, 2);
    assert_eq!(rows(&store), 1);
    let error = table.insert(0, "late_0_0", []).unwrap_err();
    assert!(matches!(error.cause(), Cause::Retired { version: 0, .. }), "{error}");
    assert_eq!(table.delete_unchanged(0, store.snapshot().table("solver").unwrap()).unwrap().rows, 0);
    let store = world.reopen(store);
    assert_eq!(rows(&store), 1);
}

#[test]
fn a_row_that_may_be_trained_on_is_open() {
    let (store, table, _) = trained(&World::new(), None);
    finished(&table, 0, "q1_0_0");
    let seen = store.snapshot().table("solver").unwrap().versions_up_to(0);
    assert_eq!(seen[&0], VersionRows { rows: 1, open: 1 });
    assert_eq!(table.newest_version_over(0), None, "the current version stays");
}

#[test]
fn what_has_changed_since_stays() {
    type Change = fn(&Store, &Table, Row);
    let changes: [(&str, Change); 6] = [
        ("a cell of it was written", |_, table, row| table.write(row, [("reward", 1.0.into())]).unwrap()),
        ("it was left out", |_, table, row| table.exclude(row, "cut").unwrap()),
        ("it went on under another version", |_, table, row| table.span(row, 4, 1).unwrap()),
        ("2 rows then, 1 now", |_, table, row| {
            table.delete(&Delete::rows([row])).unwrap();
        }),
        ("it has come since", |_, table, _| {
            let origin = Origin { peer: "berlin".to_owned(), round: 1 };
            table.insert_row(NewRow::new(0, "q3_0_0").unwrap().external(&origin), []).unwrap();
        }),
        ("the table has other columns now", |_, table, _| {
            table.add_column(DataColumn::new("score", DataType::Float32)).unwrap();
        }),
    ];
    for (reason, change) in changes {
        let world = World::new();
        let (store, table, row) = two_versions_on(&world);
        let snapshot = store.snapshot();
        let seen = snapshot.table("solver").unwrap();
        change(&store, &table, row);
        let there = rows(&store);
        let told = table.check_unchanged(0, seen).unwrap_err();
        let error = table.delete_unchanged(0, seen).unwrap_err();
        assert_eq!(told.to_string(), error.to_string(), "it is told beforehand");
        assert!(matches!(error.cause(), Cause::VersionChanged { version: 0, .. }), "{reason}: {error}");
        assert!(error.to_string().contains(reason), "{reason}: {error}");
        assert_eq!(rows(&store), there, "{reason}");
        let again = store.snapshot();
        table.check_unchanged(0, again.table("solver").unwrap()).unwrap();
        assert_eq!(rows(&store), there, "{reason}: who asks deletes nothing");
        let deleted = table.delete_unchanged(0, again.table("solver").unwrap()).unwrap();
        assert_eq!(rows(&store) + deleted.rows as usize, there, "{reason}: as it is seen now it may go");
    }
}

/// Whether the store says of versions 0 and 1 that they were moved out.
fn moved_out(store: &Store) -> [bool; 2] {
    let snapshot = store.snapshot();
    [0, 1].map(|version| snapshot.table("solver").unwrap().is_moved_out(version))
}

#[test]
fn what_was_taken_elsewhere_is_told_from_what_was_only_deleted() {
    let world = World::new();
    let (store, table, _) = two_versions_on(&world);
    assert_eq!(moved_out(&store), [false, false]);
    let before = store.snapshot();
    table.delete_unchanged(0, before.table("solver").unwrap()).unwrap();
    table.delete(&Delete::version(1)).unwrap();
    assert_eq!(moved_out(&store), [true, false]);
    assert!(!before.table("solver").unwrap().is_moved_out(0), "not at an instant before");
    drop((table, before));
    let store = world.reopen(store);
    assert_eq!(moved_out(&store), [true, false], "from the log");
    store.checkpoint().unwrap();
    let store = world.reopen(store);
    assert_eq!((moved_out(&store), rows(&store)), ([true, false], 0), "from a checkpoint");
}

#[test]
fn what_retention_deletes_was_not_moved_out() {
    let world = World::new();
    let (store, _, _) = two_versions_on(&world);
    store.change_retention(Retention::default().versions(1)).unwrap();
    store.run_once().unwrap();
    assert_eq!((moved_out(&store), rows(&store)), ([false, false], 0));
}

#[test]
fn a_version_that_is_not_over_stays() {
    let world = World::new();
    let (store, table, _) = two_versions_on(&world);
    finished(&table, 2, "q1_0_0");
    let error = table.delete_unchanged(2, store.snapshot().table("solver").unwrap()).unwrap_err();
    assert!(matches!(error.cause(), Cause::VersionCurrent { version: 2, .. }), "{error}");
}
