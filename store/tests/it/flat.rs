//! A run that goes on and on: versions are written, trained on and retired, and the store stays as large as it is.

use std::path::Path;

use forebay_store::*;

use crate::support::*;

/// Rows of a version: chunks of rows begin and end within versions.
const ROWS: usize = 6_000;
const BATCH: usize = 500;
const GROUP: usize = 8;
/// Rows of a version that a step trains on, in one claim.
const TRAINED: usize = 256;

/// A store whose versions go when two newer ones are there.
fn open(world: &World) -> (Store, Table, ConsumerHandle) {
    let options = world.options().extent_bytes(4096, 1 << 20).object_versions_kept(1);
    let store = Store::open(ROOT, options.retention(Retention::default().versions(2))).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    let trainer = Consumer::trainer(["solver"]).ready(["reward"]).group(GroupBy::Input, GROUP as u32);
    let train = store.create_consumer("train", trainer).unwrap();
    (store, table, train)
}

/// Writes a version, trains on a part of it, and does what is due. Gives the gradient's name.
fn version(store: &Store, table: &Table, train: &ConsumerHandle, version: u64) -> GradientId {
    for first in (0..ROWS).step_by(BATCH) {
        let mut batch = store.batch();
        for number in first..first + BATCH {
            let id = format!("q{}_0_{}", number / GROUP, number % GROUP);
            let cells = [("prompt", "a prompt of more than twelve bytes".into()), ("reward", 1.0.into())];
            batch.insert(table, NewRow::new(version, &id).unwrap(), cells).unwrap();
        }
        batch.commit().unwrap();
    }
    let groups = (0..TRAINED / GROUP).map(|group| format!("q{group}"));
    let step = store.begin_step(StepPlan::new().groups(train, groups)).unwrap();
    let claim = step.next(train, MicroBatch::of(TRAINED), Wait::No).unwrap().unwrap();
    let gradient = claim.gradient_id().unwrap();
    claim.accumulated().unwrap();
    assert_eq!(step.commit([("solver", vec![])]).unwrap().rows, TRAINED as u64);
    store.sync().unwrap();
    store.run_once().unwrap();
    gradient
}

/// Bytes that the store takes of memory, and its manifest of the disk.
fn size(world: &World, store: &Store) -> [usize; 2] {
    store.checkpoint().unwrap();
    let manifest = image_of(&world.disk).remove(&Path::new(ROOT).join("MANIFEST")).unwrap();
    [store.stats().memory_bytes as usize, manifest.len()]
}

// Not exactly nothing: a claim is remembered until 65,536 newer ones have ended, a step is a line of history for ever.
#[test]
fn versions_that_come_and_go_leave_less_than_a_byte_a_row() {
    let world = World::new();
    let (store, table, train) = open(&world);
    (0..20).for_each(|at| drop(version(&store, &table, &train, at)));
    let before = size(&world, &store);
    (20..60).for_each(|at| drop(version(&store, &table, &train, at)));
    let after = size(&world, &store);
    for (what, before, after) in [("memory", before[0], after[0]), ("manifest", before[1], after[1])] {
        assert!(after < before + 40 * ROWS, "{what}: {before} bytes, {after} forty versions later");
    }
}

#[test]
fn a_step_whose_rows_are_gone_is_a_line_of_history() {
    let world = World::new();
    let (store, table, train) = open(&world);
    let gradients: Vec<GradientId> = (0..4).map(|at| version(&store, &table, &train, at)).collect();
    let check = |store: &Store, how: &str| {
        for (number, gradient) in (1..).zip(&gradients) {
            let step = store.steps().into_iter().find(|step| step.step == number).unwrap();
            assert_eq!(
                (step.rows, step.updates),
                (TRAINED as u64, vec![("solver".to_owned(), number)]),
                "{how}"
            );
            let (replayed, again) = (store.replay(number), store.accumulate(gradient));
            if number <= 3 {
                assert_eq!(replayed.unwrap_err().kind(), Kind::State, "{how}: step {number}");
                assert_eq!(again.unwrap_err().kind(), Kind::Input, "{how}: step {number}");
            } else {
                assert_eq!(replayed.unwrap()[0].gradient_id(), gradient, "{how}");
                assert!(!again.unwrap(), "{how}: a repetition changes nothing");
            }
        }
    };
    check(&store, "live");
    let store = world.reopen(store);
    check(&store, "replayed");
    store.checkpoint().unwrap();
    check(&world.reopen(store), "restored");
}
