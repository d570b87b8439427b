//! Snapshots against steps, deletion and retention: what was seen stays as it was, and no table is ahead of another.

use std::collections::BTreeMap;

use forebay_store::*;
use shuttle::thread;

use crate::explore::{Seen, explore};
use crate::support::*;

const TABLES: [&str; 2] = ["solver", "verifier"];
const VERSIONS: u64 = 3;

/// Two tables of one policy whose rows are inserted, trained on and retired together.
fn started(world: &World) -> (Store, [Table; 2], [ConsumerHandle; 2]) {
    let options = world.options().object_versions_kept(1).retention(Retention::default().versions(1));
    let store = Store::open(ROOT, options.extent_bytes(4096, 8192)).unwrap();
    store.create_policy("shared", 0, &[]).unwrap();
    let tables = TABLES.map(|name| store.create_table(name, solver_schema().policy("shared")).unwrap());
    let trains = TABLES.map(|name| {
        let declared = Consumer::trainer([name]).ready(["reward"]);
        store.create_consumer(&format!("train-{name}"), declared).unwrap()
    });
    (store, tables, trains)
}

/// A row in each table in one batch, then a step over both.
fn train(store: &Store, tables: &[Table; 2], trains: &[ConsumerHandle; 2]) {
    for version in 0..VERSIONS {
        let mut batch = store.batch();
        for table in tables {
            let row = NewRow::new(version, &format!("q{version}_0_0")).unwrap();
            let prompt = format!("a prompt of version {version} that lies in an extent").repeat(30);
            batch.insert(table, row, [("prompt", prompt.as_str().into()), ("reward", 1.0.into())]).unwrap();
        }
        batch.commit().unwrap();
        let plan = trains.iter().fold(StepPlan::new(), |plan, train| plan.rows(train, 1));
        let step = store.begin_step(plan).unwrap();
        for train in trains {
            step.next(train, MicroBatch::of(1), Wait::No).unwrap().unwrap().accumulated().unwrap();
        }
        step.commit([("shared", vec![])]).unwrap();
    }
}

/// Version, sample, step and prompt of every row of each table, as a snapshot shows them.
fn rows(snapshot: &Snapshot) -> BTreeMap<&'static str, Vec<String>> {
    let wanted = |name: &str| ["policy_version", "sample_id", "step", "prompt"].contains(&name);
    TABLES.map(|name| (name, scan_of(snapshot.table(name).unwrap(), wanted))).into()
}

// FX-91, FX-95
#[test]
fn a_snapshot_stays_as_it_was_and_shows_all_of_a_step_or_nothing() {
    let retired = Seen::default();
    let seen = retired.clone();
    explore(200, move || {
        let world = World::new();
        let (store, tables, trains) = started(&world);
        let looks = thread::spawn({
            let (store, retired) = (store.clone(), retired.clone());
            move || {
                let mut held = Vec::new();
                for _ in 0..4 {
                    let snapshot = store.snapshot();
                    let first = rows(&snapshot);
                    assert_eq!(first["solver"], first["verifier"], "torn at commit {}", snapshot.commit());
                    held.push((snapshot, first));
                    thread::yield_now();
                }
                for (snapshot, first) in &held {
                    assert_eq!(&rows(snapshot), first, "commit {}", snapshot.commit());
                }
                let gone = |row: &String| !held[3].1["solver"].contains(row);
                if held[0].1["solver"].iter().any(gone) {
                    retired.note();
                }
            }
        });
        let trains = thread::spawn({
            let store = store.clone();
            move || train(&store, &tables, &trains)
        });
        let tends = thread::spawn({
            let store = store.clone();
            move || {
                for _ in 0..3 {
                    store.run_once().unwrap();
                    store.sync().unwrap();
                }
            }
        });
        [looks, trains, tends].into_iter().for_each(|thread| thread.join().unwrap());
        for name in TABLES {
            let counts = store.table(name).unwrap().counts();
            assert_eq!((counts.written, counts.consumed, counts.open()), (VERSIONS, VERSIONS, 0));
        }
    });
    assert!(seen.count() > 0, "nothing was retired while a snapshot of it was held");
}

// FX-95
#[test]
fn a_checkpoint_beside_writers_is_one_instant() {
    explore(100, || {
        let world = World::new();
        let (store, tables, trains) = started(&world);
        let checkpoints = thread::spawn({
            let store = store.clone();
            move || (0..2).for_each(|_| _ = store.checkpoint().unwrap())
        });
        let trains = thread::spawn({
            let store = store.clone();
            move || train(&store, &tables, &trains)
        });
        [checkpoints, trains].into_iter().for_each(|thread| thread.join().unwrap());
        let before = scan(&store);
        let store = world.reopen(store);
        assert_eq!(scan(&store), before);
        assert!(store.recovery().records < store.stats().commits, "it was opened from a checkpoint");
    });
}
