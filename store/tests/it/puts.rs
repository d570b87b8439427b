//! Objects that are put for a step, by more than one who believes that the step is his.

use std::path::Path;

use forebay_store::*;

use crate::support::*;

/// A step with a row that is accumulated.
fn step(store: &Store, table: &Table, train: &ConsumerHandle) -> Step {
    finished(table, 0, "q_0_0");
    let step = store.begin_step(StepPlan::new().rows(train, 1)).unwrap();
    step.next(train, MicroBatch::of(1), Wait::No).unwrap().unwrap().accumulated().unwrap();
    step
}

fn objects(world: &World, folder: &str) -> Vec<std::path::PathBuf> {
    let disk: &dyn Disk = &world.disk;
    disk.list(&Path::new(ROOT).join("objects").join(folder)).unwrap_or_default()
}

// FX-29
#[test]
fn a_commit_names_what_was_put_for_it_and_nothing_that_another_has_put_since() {
    let world = World::new();
    let (store, table, train) = trained(&world, None);
    let step = step(&store, &table, &train);
    let stale = store.put_object("solver", 1, b"of one that lost its step").unwrap();
    let mine = store.put_object("solver", 1, b"of one that has the step:").unwrap();
    assert_eq!(stale.bytes, mine.bytes, "or their lengths would tell them apart");
    let refused = step.commit([("solver", vec![stale])]).unwrap_err();
    assert!(matches!(refused.cause(), Cause::PutByOther { version: 1, .. }), "{refused}");
    assert_eq!(refused.kind(), Kind::State);
    step.commit([("solver", vec![mine.clone()])]).unwrap();
    let late = store.put_object("solver", 1, b"of one that lost its step").unwrap_err();
    assert!(matches!(late.cause(), Cause::Exists { .. }), "{late}");
    assert_eq!(store.put_object("solver", 1, b"of one that has the step:").unwrap(), mine);
    assert_eq!(store.object(&mine).unwrap(), b"of one that has the step:");
    assert_eq!(objects(&world, "solver").len(), 1, "nothing is left beside it");
}

#[test]
fn what_an_earlier_process_has_put_is_read_before_it_is_named() {
    let world = World::new();
    let (store, table, train) = trained(&world, None);
    drop(step(&store, &table, &train));
    let first = store.put_object("solver", 1, b"first").unwrap();
    let other = store.put_object("solver", 1, b"other").unwrap();
    let store = world.reopen(store);
    let (table, train) = (store.table("solver").unwrap(), store.consumer("train").unwrap());
    let _same_row = table;
    let step = store.begin_step(StepPlan::new().rows(&train, 1)).unwrap();
    step.next(&train, MicroBatch::of(1), Wait::No).unwrap().unwrap().accumulated().unwrap();
    let refused = step.commit([("solver", vec![first])]).unwrap_err();
    assert!(matches!(refused.cause(), Cause::PutByOther { .. }), "{refused}");
    step.commit([("solver", vec![other.clone()])]).unwrap();
    assert_eq!(store.object(&other).unwrap(), b"other");
}

#[test]
fn two_policies_do_not_name_different_objects_by_one_key() {
    let world = World::new();
    let (store, table, train) = trained(&world, None);
    let step = step(&store, &table, &train);
    let one = store.put_object("weights", 1, b"one").unwrap();
    let two = store.put_object("weights", 1, b"two").unwrap();
    let refused = step.commit([("solver", vec![one]), ("judge", vec![two.clone()])]).unwrap_err().to_string();
    for named in ["\"solver\"", "\"judge\"", "\"weights\"", "version 1"] {
        assert!(refused.contains(named), "{refused}");
    }
    step.commit([("solver", vec![two])]).unwrap();
}

#[test]
fn what_was_being_written_when_a_process_ended_is_swept_and_a_full_disk_leaves_nothing() {
    let world = World::new();
    let (store, ..) = trained(&world, None);
    store.put_object("solver", 1, b"put").unwrap();
    let disk: &dyn Disk = &world.disk;
    let left = Path::new(ROOT).join("objects/solver/00000000000000000002.9.tmp");
    disk.create(&left).unwrap().append(b"half of").unwrap();
    let store = world.reopen(store);
    store.put_object("solver", 2, b"whole").unwrap();
    assert_eq!(objects(&world, "solver").len(), 2);
    world.disk.set_capacity(world.disk.occupied() + 100);
    let full = store.put_object("solver", 3, &[7; 1000]).unwrap_err();
    assert_eq!(full.kind(), Kind::Capacity, "{full}");
    assert_eq!(objects(&world, "solver").len(), 2);
}
