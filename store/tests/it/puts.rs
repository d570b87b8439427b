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

#[test]
fn what_is_put_in_parts_is_what_is_put_whole_and_what_is_not_finished_is_not_there() {
    let world = World::new();
    let (store, table, train) = trained(&world, None);
    let bytes: Vec<u8> = (0..10_000_u32).map(|at| (at % 251) as u8).collect();
    let mut given_up = store.begin_put("solver", 1).unwrap();
    given_up.write(&bytes[..5_000]).unwrap();
    assert_eq!((given_up.bytes(), objects(&world, "solver").len()), (5_000, 1));
    drop(given_up);
    assert!(objects(&world, "solver").is_empty());
    let mut put = store.begin_put("solver", 1).unwrap();
    bytes.chunks(999).for_each(|part| put.write(part).unwrap());
    let object = put.finish().unwrap();
    assert_eq!(object, ObjectRef::of("solver", 1, &bytes));
    let step = step(&store, &table, &train);
    step.commit([("solver", vec![object.clone()])]).unwrap();
    // Once a step names it, the same is welcome and another is not.
    for (last, may) in [(bytes[9_999], true), (bytes[9_999] ^ 1, false)] {
        let mut again = store.begin_put("solver", 1).unwrap();
        again.write(&bytes[..9_999]).unwrap();
        again.write(&[last]).unwrap();
        assert_eq!(again.finish().ok(), may.then(|| object.clone()));
    }
    assert_eq!(objects(&world, "solver").len(), 1, "nothing is left beside it");
    for name in ["../solver", "/etc", "", "a/b"] {
        assert_eq!(store.begin_put(name, 1).unwrap_err().kind(), Kind::Input, "{name:?}");
    }
}

#[test]
fn what_is_read_in_parts_is_whole_only_where_it_is_what_was_committed() {
    let world = World::new();
    let store = trained(&world, None).0;
    let bytes: Vec<u8> = (0..10_000_u32).map(|at| (at % 251) as u8).collect();
    let object = store.put_object("solver", 1, &bytes).unwrap();
    let read = |object: &ObjectRef| -> Result<Vec<u8>> {
        let (mut parts, mut all) = (store.object_parts(object)?, Vec::new());
        while let Some(part) = parts.next_part(999)? {
            all.extend(part);
        }
        Ok(all)
    };
    assert_eq!(read(&object).unwrap(), bytes);
    let empty = store.put_object("empty", 1, b"").unwrap();
    assert_eq!(read(&empty).unwrap(), b"");
    let of = |bytes, crc32c| ObjectRef { bytes, crc32c, ..object.clone() };
    for (wrong, why) in [(of(9_999, object.crc32c), "length"), (of(10_000, !object.crc32c), "checksum")] {
        assert_eq!(read(&wrong).unwrap_err().kind(), Kind::Corrupt, "{why}");
        assert_eq!(store.object(&wrong).unwrap_err().kind(), Kind::Corrupt, "{why}");
    }
    // A name is no way out of the folder.
    for key in ["../objects/solver", "/etc", "solver/", ".."] {
        let elsewhere = ObjectRef { key: key.to_owned(), ..object.clone() };
        assert_eq!(read(&elsewhere).unwrap_err().kind(), Kind::Input, "{key}");
        assert_eq!(store.object(&elsewhere).unwrap_err().kind(), Kind::Input, "{key}");
    }
}

#[test]
fn a_commit_is_looked_at_before_its_objects_are_brought() {
    let world = World::new();
    let (store, table, train) = trained(&world, None);
    finished(&table, 0, "q_0_0");
    let idle = store.begin_step(StepPlan::new().rows(&train, 1)).unwrap();
    let (mine, other) = (ObjectRef::of("solver", 1, b"mine"), ObjectRef::of("solver", 1, b"other"));
    let refused = idle.check_commit([("solver", vec![mine.clone()])]).unwrap_err();
    assert!(matches!(refused.cause(), Cause::PolicyIdle { .. }), "{refused}");
    drop(idle);
    let step = store.begin_step(StepPlan::new().rows(&train, 1)).unwrap();
    step.next(&train, MicroBatch::of(1), Wait::No).unwrap().unwrap().accumulated().unwrap();
    let refused = step.check_commit([("solver", vec![mine.clone(), other.clone()])]).unwrap_err();
    assert!(refused.to_string().contains("name different objects by the key \"solver\""), "{refused}");
    assert_eq!(step.check_commit([("solvr", vec![])]).unwrap_err().kind(), Kind::Input);
    step.check_commit([("solver", vec![mine.clone()])]).unwrap();
    assert!(objects(&world, "solver").is_empty(), "it looks, and no more");
    store.put_object("solver", 1, b"mine").unwrap();
    step.commit([("solver", vec![mine])]).unwrap();
    assert!(matches!(step.check_commit([("solver", vec![])]).unwrap_err().cause(), Cause::StepClosed { .. }));
    finished(&table, 1, "r_0_0");
    let next = store.begin_step(StepPlan::new().rows(&train, 1)).unwrap();
    next.next(&train, MicroBatch::of(1), Wait::No).unwrap().unwrap().accumulated().unwrap();
    let refused = next.check_commit([("solver", vec![other])]).unwrap_err();
    assert!(matches!(refused.cause(), Cause::Exists { .. }), "{refused}");
}
