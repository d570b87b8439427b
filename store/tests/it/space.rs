//! The budget of disk of a store that was opened again.

use std::path::Path;
use std::time::Duration;

use forebay_store::*;

use crate::support::*;

const WAIT: Duration = Duration::from_secs(5);

fn options(world: &World, budget: u64) -> Options {
    world.options().extent_bytes(4096, 1 << 16).disk_bytes_max(budget).capacity_wait(WAIT)
}

fn reopen(world: &World, store: Store, budget: u64) -> Store {
    std::mem::forget(store);
    world.disk.restart();
    Store::open(ROOT, options(world, budget)).unwrap()
}

/// Rows with a prompt each, until a number of bytes is written.
fn fill(table: &Table, version: u64, bytes: usize) {
    let text = "x".repeat(5_000);
    for i in 0..bytes / text.len() {
        table.insert(version, &format!("v{version}i{i}_0_0"), [("prompt", text.as_str().into())]).unwrap();
    }
}

/// A store whose version 0 is over and deleted, and what emptied its extents proven.
fn left_behind(options: Options) -> (Store, Table) {
    let store = Store::open(ROOT, options).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    fill(&table, 0, 150_000);
    let train = store.create_consumer("train", Consumer::trainer(["solver"]).ready(["prompt"])).unwrap();
    train_once(&store, &train, StepPlan::new().rows(&train, 1), "solver");
    table.delete(&Delete::version(0).force()).unwrap();
    store.checkpoint().unwrap();
    (store, table)
}

// FX-B18
#[test]
fn what_was_dead_before_the_store_was_opened_makes_room_at_once() {
    let world = World::new();
    let budget = 300_000;
    let store = Store::open(ROOT, options(&world, budget)).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    fill(&table, 0, 150_000);
    table.delete(&Delete::version(0).force()).unwrap();
    store.checkpoint().unwrap();
    let store = reopen(&world, store, budget);
    let dead = store.extents();
    assert!(dead.iter().map(|extent| extent.bytes).sum::<u64>() > 150_000, "{dead:?}");
    assert!(dead.iter().all(|extent| extent.live_values == 0), "{dead:?}");
    let began = world.clock.now();
    fill(&store.table("solver").unwrap(), 1, 150_000);
    assert_eq!(world.clock.now(), began, "nobody waited");
}

// FX-B18
#[test]
fn a_tail_that_was_given_back_is_free_for_the_next_process_too() {
    let world = World::new();
    let store = Store::open(ROOT, options(&world, 1 << 30).extent_bytes(1 << 19, 1 << 19)).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    for version in 0..4 {
        fill(&table, version, 10_000);
    }
    let train = store.create_consumer("train", Consumer::trainer(["solver"]).ready(["prompt"])).unwrap();
    for _ in 0..4 {
        train_once(&store, &train, StepPlan::new().rows(&train, 1), "solver");
        store.run_once().unwrap(); // versions that are over are sealed
    }
    let taken = |store: &Store| store.extents().iter().map(|extent| extent.bytes).sum::<u64>();
    let before = taken(&store);
    assert!(before < 4 << 19, "tails were given back: {before}");
    let store = reopen(&world, store, 1 << 30);
    let after = taken(&store);
    assert_eq!(after, before);
}

/// Space that is proven to be nobody's is freed on a full disk too, whatever waits for the log.
// FX-B18
#[test]
fn a_full_disk_does_not_keep_from_freeing_what_is_proven() {
    let world = World::new();
    let options = world.options().extent_bytes(4096, 1 << 16).free_extent_bytes_max(0);
    let (store, table) = left_behind(options);
    let mut batch = store.batch();
    batch.durability(Durability::Memory).insert(&table, NewRow::new(1, "waits_0_0").unwrap(), []).unwrap();
    batch.commit().unwrap();
    let taken = world.disk.occupied();
    world.disk.set_capacity(taken);
    store.run_once().unwrap();
    assert_eq!(store.closed(), None);
    assert!(world.disk.occupied() + 100_000 < taken, "{} of {taken}", world.disk.occupied());
}

// FX-B18
#[test]
fn at_the_budget_a_small_value_takes_what_is_left() {
    let world = World::new();
    let budget = 400_000;
    let options = options(&world, budget).extent_bytes(4096, 1 << 20);
    let store = Store::open(ROOT, options).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    fill(&table, 0, 200_000); // the next extent is to be an eighth of that
    let small = "x".repeat(200);
    let insert =
        |i: usize| table.insert(0, &format!("small{i}_0_0"), [("prompt", small.as_str().into())]).map(drop);
    let refused = (0..10_000).find_map(|i| insert(i).err()).unwrap();
    let Cause::NoSpace { used, needed, .. } = refused.cause() else { panic!("{refused}") };
    assert!(used + 4096 > budget && *needed == 4096, "{refused}");
}

/// A log that cannot be written ends the store, so what lies around to be used again makes way for it.
// FX-B18
#[test]
fn on_a_full_disk_free_files_make_way_for_the_log() {
    let world = World::new();
    let options = world.options().extent_bytes(4096, 1 << 16).free_extent_bytes_max(1 << 30);
    let (store, table) = left_behind(options);
    store.run_once().unwrap();
    assert!(store.stats().free_extent_bytes > 100_000, "{:?}", store.stats());
    world.disk.set_capacity(world.disk.occupied());
    let mut rows = 0;
    while store.stats().free_extent_bytes > 0 {
        table.insert(1, &format!("q{rows}_0_0"), [("reward", 1.0.into())]).unwrap();
        rows += 1;
    }
    assert_eq!(store.closed(), None);
    assert!(rows > 0);
    let error = (rows..100_000).find_map(|i| table.insert(1, &format!("q{i}_0_0"), []).err()).unwrap();
    assert_eq!(error.kind(), Kind::Closed, "{error}");
    world.disk.mend();
    let store = world.reopen(store);
    let kept = scan(&store).len();
    assert!(kept >= rows, "{kept} of at least {rows}");
}

/// Space that is nobody's is freed once that is proven by the header of a segment of the log. One that a full disk has no room for
/// is no failed write of a record.
// FX-B18
#[test]
fn on_a_full_disk_a_proof_that_finds_no_room_changes_nothing() {
    let world = World::new();
    let options = world.options().extent_bytes(4096, 1 << 16).free_extent_bytes_max(0);
    let store = Store::open(ROOT, options).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    fill(&table, 0, 150_000);
    table.insert(1, "kept_0_0", [("prompt", "a prompt that does not fit a view".into())]).unwrap();
    table.delete(&Delete::version(0).force()).unwrap();
    store.sync().unwrap();
    let taken = world.disk.occupied();
    for room in [0, 1, 63] {
        world.disk.set_capacity(taken + room);
        let error = store.compact().unwrap_err();
        assert_eq!((error.kind(), store.closed()), (Kind::Capacity, None), "{error}");
        assert_eq!(world.disk.occupied(), taken, "nothing is left of what was begun");
    }
    world.disk.set_capacity(taken + 100_000);
    let freed = store.compact().unwrap();
    assert!(freed.bytes_after + 100_000 < freed.bytes_before, "{freed:?}");
    table.insert(1, "next_0_0", [("prompt", "another one that does not fit a view".into())]).unwrap();
    let seen = scan_content(&store);
    assert_eq!(scan_content(&world.reopen(store)), seen);
}

#[test]
fn an_extent_whose_last_bytes_were_not_taken_is_freed_like_any_other() {
    let world = World::new();
    let store = world.open();
    let table = store.create_table("solver", solver_schema()).unwrap();
    let text = "x".repeat(1_500);
    let mut failed = 0;
    for round in 0..30 {
        world.disk.arm(world.disk.operations() + 1 + round, DiskFault::IoError);
        let mut batch = store.batch();
        let added = (0..20).try_for_each(|i| {
            let row = NewRow::new(0, &format!("r{round}i{i}_0_0")).unwrap();
            batch.insert(&table, row, [("prompt", text.as_str().into())])
        });
        failed += usize::from(added.is_err());
        drop(batch);
        world.disk.mend();
    }
    assert!(failed > 5, "{failed}");
    assert_eq!(store.closed(), None);
    table.delete(&Delete::all_confirmed().force()).unwrap();
    store.compact().unwrap();
    let left = store.extents();
    assert!(left.len() <= 1, "{left:?}"); // the one that the next value goes to
}

// FX-B18
#[test]
fn on_a_full_disk_a_log_whose_end_was_lost_is_cut_where_it_lies() {
    let world = World::new();
    let (store, table) = solver(&world);
    (0..2000).for_each(|i| _ = table.insert(0, &format!("q{i}_0_0"), [("reward", 1.0.into())]).unwrap());
    store.sync().unwrap();
    let kept = scan(&store);
    table.insert(0, "lost_0_0", [("reward", 1.0.into())]).unwrap();
    std::mem::forget((store, table));
    let mut image = image_of(&world.disk);
    let log = image.get_mut(Path::new(ROOT).join("log/00000001.log").as_path()).unwrap();
    assert!(log.len() > 400_000, "{} bytes", log.len());
    *log.last_mut().unwrap() ^= 1;
    let disk = disk_of(&image);
    disk.reboot();
    disk.set_capacity(disk.occupied() + 20_000);
    let store = World::on(disk).open();
    assert_eq!((store.recovery().records_lost, scan(&store)), (1, kept));
}
