//! Extents that are used again while somebody still holds what lay in them.

use std::ops::ControlFlow;

use arrow_array::cast::AsArray;
use forebay_store::*;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

use crate::explore::{Seen, explore};
use crate::support::*;

/// How many rows a version has. Each has a text of its own, longer than half of the smallest extent.
const ROWS: usize = 2;

fn text(version: u64, i: usize) -> String {
    format!("version {version}, row {i}; ").repeat(140)
}

fn insert(table: &Table, version: u64) {
    for i in 0..ROWS {
        table.insert(version, &format!("q_0_{i}"), [("prompt", text(version, i).as_str().into())]).unwrap();
    }
}

/// Makes the records so far stable and lets a record say so, so that what is dead below may be used again.
fn prove(store: &Store, table: &Table, version: u64) {
    store.sync().unwrap();
    table.insert(version, &format!("proof_{version}_0"), []).unwrap();
    store.sync().unwrap();
}

fn world() -> (World, Store, Table) {
    let world = World::new();
    let store = Store::open(ROOT, world.options().extent_bytes(4096, 8192)).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    insert(&table, 0);
    (world, store, table)
}

/// Deletes version after version, while new ones are written where they lay.
fn recycle(store: &Store, table: &Table) -> [thread::JoinHandle<()>; 2] {
    let retires = thread::spawn({
        let (store, table) = (store.clone(), table.clone());
        move || {
            for version in 0..2 {
                table.delete(&Delete::version(version).force()).unwrap();
                prove(&store, &table, 90 + version);
                store.run_once().unwrap();
            }
        }
    });
    let writes = thread::spawn({
        let table = table.clone();
        move || (2..5).for_each(|version| insert(&table, version))
    });
    [retires, writes]
}

// FX-95, FX-B10
#[test]
fn an_array_keeps_its_bytes_while_their_extent_is_used_again() {
    let recycled = Seen::default();
    let seen = recycled.clone();
    explore(200, move || {
        let (_world, store, table) = world();
        let holds = thread::spawn({
            let store = store.clone();
            move || {
                let snapshot = store.snapshot();
                (0..thread_rng().gen_range(0..300)).for_each(|_| thread::yield_now());
                let table = snapshot.table("solver").unwrap();
                let at = table.arrow_schema().index_of("prompt").unwrap();
                let batches = table.scan(Some(&[at]), ScanOrder::SampleId, 100).unwrap();
                let arrays: Vec<_> = batches.map(|batch| batch.unwrap().column(0).clone()).collect();
                drop(snapshot);
                let show = || -> Vec<String> {
                    arrays
                        .iter()
                        .flat_map(|array| array.as_string_view().iter().flatten().map(str::to_owned))
                        .collect()
                };
                let first = show();
                assert!(first.iter().all(|text| is_whole(text)), "{first:?}");
                for _ in 0..20 {
                    thread::yield_now();
                    assert_eq!(show(), first);
                }
            }
        });
        recycle(&store, &table).into_iter().for_each(|thread| thread.join().unwrap());
        holds.join().unwrap();
        if store.stats().extents_recycled > 0 {
            recycled.note();
        }
    });
    assert!(seen.count() > 0, "no extent was used again");
}

fn is_whole(found: &str) -> bool {
    (0..5).any(|version| (0..ROWS).any(|i| found == text(version, i)))
}

// FX-18, FX-B10
#[test]
fn a_cell_that_is_read_while_its_row_goes_is_whole_or_gone() {
    let (recycled, gone) = (Seen::default(), Seen::default());
    let seen = [recycled.clone(), gone.clone()];
    explore(200, move || {
        let (_world, store, table) = world();
        let reads = thread::spawn({
            let (table, gone) = (table.clone(), gone.clone());
            move || {
                let row = table.find(0, &"q_0_1".parse().unwrap());
                for _ in 0..4 {
                    match row.map(|row| table.cell(row, "prompt")) {
                        Some(Ok(Cell::Bytes(bytes))) => {
                            thread::yield_now();
                            assert_eq!(&*bytes, text(0, 1).as_bytes());
                        }
                        Some(Ok(Cell::Empty)) | None => gone.note(),
                        other => panic!("{other:?}"),
                    }
                }
            }
        });
        recycle(&store, &table).into_iter().for_each(|thread| thread.join().unwrap());
        reads.join().unwrap();
        if store.stats().extents_recycled > 0 {
            recycled.note();
        }
    });
    assert!(
        seen.iter().all(|seen| seen.count() > 0),
        "an extent was used again, and a row was gone: {seen:?}"
    );
}

/// Extents are used again before they are synced: whoever syncs or takes a checkpoint beside that finds what was there then.
// FX-B03, FX-B10
#[test]
fn what_is_synced_beside_extents_that_are_used_again_outlives_the_power() {
    [Durability::Memory, Durability::Logged].into_iter().for_each(keep_beside_recycling);
}

fn keep_beside_recycling(level: Durability) {
    let (recycled, kept) = (Seen::default(), Seen::default());
    let seen = [recycled.clone(), kept.clone()];
    explore(300, move || {
        let world = World::new();
        let options = world.options().extent_bytes(4096, 8192).durability(level);
        let store = Store::open(ROOT, options).unwrap();
        let table = store.create_table("solver", solver_schema()).unwrap();
        store.sync().unwrap();
        let cuts = thread::spawn({
            let disk = world.disk.clone();
            move || {
                (0..thread_rng().gen_range(0..600)).for_each(|_| thread::yield_now());
                disk.cut_power();
            }
        });
        let goes = thread::spawn({
            let (store, table) = (store.clone(), table.clone());
            move || (1..5).try_for_each(|version| come_and_go(&store, &table, version))
        });
        let keeps = thread::spawn({
            let (store, table) = (store.clone(), table.clone());
            move || keep(&store, &table)
        });
        let told = keeps.join().unwrap();
        let _ = goes.join().unwrap(); // the power has failed then
        cuts.join().unwrap();
        if store.stats().extents_recycled > 0 {
            recycled.note();
        }
        std::mem::forget((store, table));
        world.disk.restart();
        let store = world.open();
        let report = verify(ROOT, &world.options(), &mut |_| ControlFlow::Continue(())).unwrap();
        assert!(report.is_sound(), "{:?}", report.faults);
        let rows: Vec<String> = pick(&store, "solver", &["sample_id"]).concat();
        let lost: Vec<&String> = told.iter().filter(|id| !rows.contains(id)).collect();
        assert!(lost.is_empty(), "{lost:?} were synced, {rows:?} are left");
        if !told.is_empty() {
            kept.note();
        }
    });
    assert!(
        seen.iter().all(|seen| seen.count() > 0),
        "an extent was used again, and something was kept: {seen:?}"
    );
}

/// A version of rows that are gone before anybody syncs them.
fn come_and_go(store: &Store, table: &Table, version: u64) -> Result<()> {
    for i in 0..ROWS {
        table.insert(version, &format!("q_0_{i}"), [("prompt", text(version, i).as_str().into())])?;
    }
    table.delete(&Delete::version(version).force())?;
    store.run_once().map(drop)
}

/// Rows that are made stable as soon as they are there, in one way or the other. Gives those that were.
fn keep(store: &Store, table: &Table) -> Vec<String> {
    let mut told = Vec::new();
    for i in 0..2 {
        let id = format!("kept_0_{i}");
        let kept = table.insert(0, &id, [("prompt", text(0, i).as_str().into())]);
        let stable = kept.and_then(|_| match thread_rng().gen_range(0..2) {
            0 => store.sync(),
            _ => store.checkpoint().map(drop),
        });
        match stable {
            Ok(()) => told.push(id),
            Err(_) => break, // the power has failed
        }
    }
    told
}
