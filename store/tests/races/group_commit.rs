//! Group commit: many writers of `synced`, one leader, and a disk that stops or fails in between.

use std::sync::{Arc, Mutex};

use forebay_store::*;
use shuttle::rand::Rng;
use shuttle::thread;

use crate::explore::{Seen, explore};
use crate::support::*;

const WRITERS: usize = 3;
const EACH: usize = 2;

/// A text that lies in an extent and is carried by its record, and one that is too long for that.
fn text(i: usize) -> String {
    format!("what row {i} says, again and again. ").repeat(if i.is_multiple_of(2) { 2 } else { 200 })
}

/// What writers were told.
#[derive(Default)]
struct Told {
    acknowledged: Vec<usize>,
    refused: Vec<Error>,
}

/// Writers of rows of their own at `synced`; beside them one that writes at `logged` and takes a checkpoint.
fn write(store: &Store, table: &Table) -> Told {
    let told: Arc<Mutex<Told>> = Arc::default();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (store, table, told) = (store.clone(), table.clone(), told.clone());
            thread::spawn(move || {
                for i in writer * EACH..(writer + 1) * EACH {
                    write_one(&store, &table, i, &told);
                }
            })
        })
        .collect();
    let beside = thread::spawn({
        let (store, table) = (store.clone(), table.clone());
        move || {
            let _ = table.insert(0, "beside_0_0", [("prompt", text(1).as_str().into())]);
            let _ = store.checkpoint(); // which syncs for itself
        }
    });
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    beside.join().unwrap();
    Arc::into_inner(told).unwrap().into_inner().unwrap()
}

fn write_one(store: &Store, table: &Table, i: usize, told: &Mutex<Told>) {
    let closed_before = store.closed().is_some();
    let before = store.snapshot().commit();
    let mut batch = store.batch();
    let row = NewRow::new(0, &format!("q_0_{i}")).unwrap();
    let asked =
        batch.durability(Durability::Synced).insert(table, row, [("prompt", text(i).as_str().into())]);
    let outcome = asked.and_then(|()| batch.commit());
    match outcome {
        Ok(_) => {
            assert!(!closed_before, "row {i} was accepted by a store that was closed");
            assert!(store.stats().durable_commits > before, "acknowledged and not durable");
            told.lock().unwrap().acknowledged.push(i);
        }
        Err(error) => told.lock().unwrap().refused.push(error),
    }
}

/// Every acknowledged row is there after the power has failed, whole.
fn check(world: &World, store: Store, told: &Told) {
    std::mem::forget(store);
    world.disk.cut_power();
    world.disk.restart();
    let store = world.open();
    for &i in &told.acknowledged {
        let table = store.table("solver").unwrap();
        let row = table.find(0, &format!("q_0_{i}").parse().unwrap());
        let cell = row.map(|row| table.cell(row, "prompt").unwrap());
        let found = cell.map(|cell| match cell {
            Cell::Bytes(bytes) => bytes.to_vec(),
            other => panic!("{other:?}"),
        });
        assert_eq!(found, Some(text(i).into_bytes()), "row {i} was acknowledged");
    }
}

fn opened(world: &World) -> (Store, Table) {
    let (store, table) = solver(world);
    store.sync().unwrap();
    (store, table)
}

// FX-B03
#[test]
fn whoever_is_acknowledged_at_synced_outlives_the_power() {
    let shared = Seen::default();
    let seen = shared.clone();
    explore(200, move || {
        let world = World::new();
        let (store, table) = opened(&world);
        let before = store.stats().syncs;
        let told = write(&store, &table);
        assert_eq!(told.acknowledged.len(), WRITERS * EACH, "{:?}", told.refused);
        if store.stats().syncs - before < (WRITERS * EACH) as u64 {
            shared.note();
        }
        check(&world, store, &told);
    });
    assert!(seen.count() > 0, "no schedule had two writers share a sync");
}

// FX-B03
#[test]
fn the_power_may_fail_between_any_two_steps() {
    explore(300, || {
        let world = World::new();
        let (store, table) = opened(&world);
        let disk = world.disk.clone();
        let cut = thread::spawn(move || {
            (0..shuttle::rand::thread_rng().gen_range(0..60)).for_each(|_| thread::yield_now());
            disk.cut_power();
        });
        let told = write(&store, &table);
        cut.join().unwrap();
        check(&world, store, &told);
    });
}

// FX-B03
#[test]
fn a_sync_that_fails_refuses_all_that_it_covered() {
    let struck = Seen::default();
    let seen = struck.clone();
    explore(300, move || {
        let world = World::new();
        let (store, table) = opened(&world);
        let mut random = shuttle::rand::thread_rng();
        let fault = [DiskFault::SyncFails, DiskFault::SyncFailsAndForgets][random.gen_range(0..2)];
        world.disk.arm(world.disk.operations() + random.gen_range(1..30), fault);
        let told = write(&store, &table);
        // A checkpoint that cannot sync its own pages is given up, and nothing else.
        if store.closed().is_some() {
            struck.note();
            let late = table.insert(0, "late_0_0", []).unwrap_err();
            assert_eq!(late.kind(), Kind::Closed);
        } else {
            assert!(told.refused.is_empty(), "{:?}", told.refused);
        }
        for error in &told.refused {
            assert_eq!(error.kind(), Kind::Closed, "{error}");
        }
        check(&world, store, &told);
    });
    assert!(seen.count() > 0, "no sync that mattered failed");
}
