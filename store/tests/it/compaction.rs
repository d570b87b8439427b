//! Compaction: what it gives back, what stays, and that nothing else changes.

use std::ops::ControlFlow;

use forebay_store::*;

use crate::support::*;

const ROWS: usize = 300;

fn prompt(row: usize) -> String {
    format!("prompt {row} ").repeat(40)
}

/// A store of a version that is over, of whose rows one in eight is left.
fn sparse(world: &World) -> Store {
    let store = world.open();
    let table = store.create_table("solver", solver_schema()).unwrap();
    let insert =
        |row: usize| table.insert(0, &format!("q{row}_0_0"), [("prompt", prompt(row).as_str().into())]);
    let rows: Vec<Row> = (0..ROWS).map(|row| insert(row).unwrap()).collect();
    let train = store.create_consumer("train", Consumer::trainer(["solver"]).ready(["reward"])).unwrap();
    table.write(rows[0], [("reward", 1.0.into())]).unwrap();
    train_once(&store, &train, StepPlan::new().rows(&train, 1), "solver");
    let over = rows.iter().enumerate().filter(|(at, _)| at % 8 != 0).map(|(_, row)| *row);
    table.delete(&Delete::rows(over).force()).unwrap();
    store
}

fn prompts(store: &Store) -> Vec<String> {
    pick(store, "solver", &["prompt"]).concat()
}

#[test]
fn room_is_given_back_and_every_row_reads_as_before() {
    let world = World::new();
    let store = sparse(&world);
    let before = prompts(&store);
    assert_eq!(before.len(), ROWS.div_ceil(8));
    let extents = store.stats().extent_bytes;
    let report = store.compact().unwrap();
    assert!(store.stats().extent_bytes * 2 < extents, "{extents} bytes before, {:?}", store.stats());
    assert!(report.bytes_after < report.bytes_before, "{report:?}");
    assert!(report.values_moved > 0 && report.held_back_bytes == 0, "{report:?}");
    assert_eq!(store.stats().free_extent_bytes, 0, "nothing is kept to be used again");
    assert_eq!(prompts(&store), before);
    let again = store.compact().unwrap();
    assert_eq!(again.values_moved, 0, "{again:?}");
    let store = world.reopen(store);
    assert_eq!(prompts(&store), before);
    drop(store);
    let report = verify(ROOT, &world.options(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(report.is_sound(), "{:?}", report.faults);
}

/// A store of so many versions that are over, each with an extent of the usual size, of whose rows one in `one_in` is left.
fn few_extents(world: &World, versions: u64, one_in: usize, rule: Retention) -> Store {
    let options = world.options().extent_bytes(1 << 20, 1 << 30).retention(rule);
    let store = Store::open(ROOT, options).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    let train = store.create_consumer("train", Consumer::trainer(["solver"]).ready(["reward"])).unwrap();
    for version in 0..versions {
        let insert = |row: usize| {
            let text = prompt(row);
            let cells = [("prompt", text.as_str().into()), ("reward", 1.0.into())];
            table.insert(version, &format!("q{row}_0_0"), cells).unwrap()
        };
        let rows: Vec<Row> = (0..ROWS).map(insert).collect();
        train_once(&store, &train, StepPlan::new().rows(&train, 1), "solver");
        let over = rows.iter().enumerate().filter(|(at, _)| at % one_in != 0).map(|(_, row)| *row);
        table.delete(&Delete::rows(over).force()).unwrap();
    }
    store.run_once().unwrap(); // versions that are over are sealed, and what is thin is moved
    store
}

// What moves goes into an extent that is as large as the first of any that is begun: it must not keep what it does not need, whoever
// has moved it, also where tails are left to extents that are sealed since versions go by themselves.
#[test]
fn a_store_of_one_extent_or_two_becomes_smaller_too() {
    for rule in [Retention::default(), Retention::default().versions(1000)] {
        for (versions, one_in) in [(1, 3), (2, 3), (1, 8), (2, 8)] {
            let world = World::new();
            let store = few_extents(&world, versions, one_in, rule);
            let shown = prompts(&store);
            let report = store.compact().unwrap();
            assert!(report.bytes_after < report.bytes_before, "{versions} {one_in}: {report:?}");
            assert!(report.bytes_after < 1 << 19, "half of an extent: {versions} {one_in}: {report:?}");
            assert_eq!(report.values_moved > 0, one_in == 3, "a duty moves what is thinner: {report:?}");
            assert_eq!(shown.len(), ROWS.div_ceil(one_in) * versions as usize);
            assert_eq!(prompts(&store), shown);
        }
    }
}

#[test]
fn what_a_reader_holds_stays_and_the_report_says_how_much() {
    let world = World::new();
    let store = world.open();
    let table = store.create_table("solver", solver_schema()).unwrap();
    let insert =
        |row: usize| table.insert(0, &format!("q{row}_0_0"), [("prompt", prompt(row).as_str().into())]);
    (0..ROWS).for_each(|row| _ = insert(row).unwrap());
    let snapshot = store.snapshot_for("slow reader");
    table.delete(&Delete::all_confirmed().force()).unwrap();
    let report = store.compact().unwrap();
    assert!(report.held_back_bytes > 0, "{report:?}");
    drop(snapshot);
    let freed = store.compact().unwrap();
    assert!(freed.bytes_after + report.held_back_bytes <= report.bytes_after, "{freed:?} after {report:?}");
}

#[test]
fn a_store_that_is_read_only_is_not_compacted() {
    let world = World::new();
    drop(sparse(&world));
    let store = Store::open(ROOT, world.options().read_only(true)).unwrap();
    assert_eq!(store.compact().unwrap_err().kind(), Kind::State);
}

#[test]
fn what_many_rows_stand_for_lies_in_one_place_after_it_has_moved() {
    const MANY: usize = 5_000; // more than a chunk of rows, and more than one record moves
    let world = World::new();
    let store = Store::open(ROOT, world.options().extent_bytes(1 << 20, 1 << 20)).unwrap();
    let schema = Schema::new().data_shared("prompt", DataType::Utf8);
    let table = store.create_table("solver", schema).unwrap();
    let long = |at: usize| format!("prompt {at} ").repeat(1_000);
    let mut batch = store.batch();
    for row in 0..MANY {
        let new = NewRow::new(0, &format!("q{row}_0_0")).unwrap();
        batch.insert(&table, new, [("prompt", long(0).into())]).unwrap();
    }
    batch.commit().unwrap();
    let others: Vec<Row> = (1..20)
        .map(|at| table.insert(0, &format!("o{at}_0_0"), [("prompt", long(at).into())]).unwrap())
        .collect();
    table.delete(&Delete::rows(others).force()).unwrap();
    let store = world.reopen(store); // what was open is sealed
    let live = |store: &Store| store.extents().iter().map(|extent| extent.live_values).sum::<u64>();
    assert_eq!(live(&store), 1);
    assert_eq!(store.compact().unwrap().values_moved, MANY as u64);
    assert_eq!(live(&store), 1);
    assert!(prompts(&store).iter().all(|prompt| *prompt == long(0)));
}

/// Flips a byte of a value that is still there.
fn damage(world: &World, value: &str) {
    let image = image_of(&world.disk);
    let place = files_with(&image, "extent").into_iter().find_map(|path| {
        let at = image[&path].windows(value.len()).position(|bytes| bytes == value.as_bytes())?;
        Some((path, at))
    });
    let (path, at) = place.unwrap();
    world.disk.flip_byte(&path, at);
}

#[test]
fn a_damaged_value_keeps_nothing_else_from_moving() {
    let world = World::new();
    let store = sparse(&world);
    damage(&world, &prompt(8));
    let store = world.reopen(store);
    let before = store.stats().extent_bytes;
    assert_eq!(store.run_once().unwrap_err().kind(), Kind::Corrupt);
    assert_eq!(store.compact().unwrap_err().kind(), Kind::Corrupt);
    assert!(store.stats().extent_bytes * 2 < before, "{before} bytes before, {:?}", store.stats());
    assert_eq!(store.closed(), None);
    let rows = prompts(&store);
    assert_eq!(rows.iter().filter(|row| row.starts_with("prompt ")).count(), ROWS.div_ceil(8) - 1);
}
