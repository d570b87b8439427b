//! Checkpoints: what is opened from one is what the whole log gives, and goes on as that does.

use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_store::*;

use crate::support::*;

/// Enough rows for several chunks, in batches as rollouts write them, with every kind of fate.
fn fill(store: &Store, train: &ConsumerHandle, version: u64, inputs: u32) {
    roll_out(store, version, inputs);
    let keys = (0..inputs / 2).map(|input| format!("question-{version}-{input}"));
    let step = store.begin_step(StepPlan::new().groups(train, keys)).unwrap();
    while let Some(claim) = step.next(train, MicroBatch::up_to(64), Wait::No).unwrap() {
        claim.accumulated().unwrap();
    }
    let weights = store.put_object("solver", version + 1, format!("weights {version}").as_bytes()).unwrap();
    step.commit([("solver", vec![weights])]).unwrap();
}

fn roll_out(store: &Store, version: u64, inputs: u32) {
    let table = store.table("solver").unwrap();
    for input in 0..inputs {
        let mut batch = store.batch();
        for trajectory in 0..4 {
            let id = format!("question-{version}-{input}_0_{trajectory}");
            let row = NewRow::new(version, &id).unwrap().parent("nobody/at_0_all");
            let prompt = format!("{id}, a prompt of its own");
            batch
                .insert(&table, row, [("prompt", prompt.into()), ("reward", f64::from(input).into())])
                .unwrap();
        }
        let rows = batch.commit().unwrap();
        if input % 7 == 0 {
            table.exclude(rows[3], "lost").unwrap();
        }
        if input % 5 == 0 {
            table.append(rows[2], "response", vec![1, 2, 3].into()).unwrap();
        }
    }
}

fn everything(store: &Store) -> String {
    let (claims, steps, policies) = (store.claims(), store.steps(), store.policies());
    let counts = store.table("solver").unwrap().counts();
    format!("{:?}{claims:?}{steps:?}{policies:?}{:?}{counts:?}", scan_content(store), store.consumers())
}

/// Claims what is ready, in order, trains, and begins with the next version, as one who goes on would.
fn go_on(store: &Store, version: u64) -> Vec<Vec<String>> {
    let mut claimed = Vec::new();
    for name in ["score", "late"] {
        let task = store.consumer(name).unwrap();
        for _ in 0..10 {
            let claim = task.claim(MicroBatch::of(24), "somebody", Wait::No).unwrap().unwrap();
            claimed.push(ids(&claim));
            claim.finish(|_| Ok(())).unwrap();
        }
    }
    let train = store.consumer("train").unwrap();
    let step = store.begin_step(StepPlan::new().rows(&train, 300)).unwrap();
    while let Some(claim) = step.next(&train, MicroBatch::up_to(64), Wait::No).unwrap() {
        claimed.push(ids(&claim));
        claim.accumulated().unwrap();
    }
    step.commit([("solver", vec![])]).unwrap();
    roll_out(store, version + 1, 200);
    claimed
}

fn run(world: &World, checkpoints: bool) -> Store {
    let (store, _, train) = trained(world, Some(4));
    store.create_consumer("score", Consumer::task(["solver"]).ready(["prompt"])).unwrap();
    for version in 0..3 {
        fill(&store, &train, version, 700);
        if checkpoints {
            store.checkpoint().unwrap();
        }
    }
    roll_out(&store, 3, 700);
    let late = store.create_consumer("late", Consumer::task(["solver"]).group(GroupBy::Input, 4)).unwrap();
    for _ in 0..9 {
        late.claim(MicroBatch::of(8), "somebody", Wait::No).unwrap().unwrap().finish(|_| Ok(())).unwrap();
    }
    if checkpoints {
        store.checkpoint().unwrap();
    }
    // What comes after the last checkpoint is replayed.
    let table = store.table("solver").unwrap();
    let row = table.insert(3, "after_0_0", [("prompt", "written after the checkpoint".into())]).unwrap();
    table.write(row, [("reward", 1.0.into())]).unwrap();
    store
}

fn files(world: &World, folder: &str) -> Vec<PathBuf> {
    let disk: &dyn Disk = &world.disk;
    disk.list(&Path::new(ROOT).join(folder)).unwrap()
}

#[test]
fn what_is_opened_from_a_checkpoint_is_what_the_log_gives_and_goes_on_as_that_does() {
    let (plain, checkpointed) = (World::new(), World::new());
    let (a, b) = (run(&plain, false), run(&checkpointed, true));
    let before = everything(&a);
    assert_eq!(everything(&b), before);
    let (a, b) = (plain.reopen(a), checkpointed.reopen(b));
    let replayed = everything(&a);
    assert_eq!(everything(&b), replayed);
    assert_eq!(go_on(&b, 3), go_on(&a, 3));
    assert_eq!(everything(&b), everything(&a));
    b.checkpoint().unwrap();
    let (a, b) = (plain.reopen(a), checkpointed.reopen(b));
    assert_eq!(go_on(&b, 4), go_on(&a, 4));
    let found = |store: &Store, id: &str| store.table("solver").unwrap().find(1, &id.parse().unwrap());
    for id in ["question-1-0_0_0", "question-1-699_0_3", "question-1-700_0_0", "nobody_0_0"] {
        assert_eq!(found(&a, id), found(&b, id), "{id}");
    }
}

#[test]
fn the_log_before_a_checkpoint_and_files_that_nothing_names_are_removed() {
    let mut world = World::new();
    world.segment_bytes = 1 << 14;
    let store = run(&world, false);
    let segments = files(&world, "log").len();
    store.checkpoint().unwrap();
    assert!(segments > 4 && files(&world, "log").len() <= 2, "{segments} before");
    let train = store.consumer("train").unwrap();
    let mut first = files(&world, "pages");
    for version in 4..9 {
        train_once(&store, &train, StepPlan::new().rows(&train, 200), "solver");
        roll_out(&store, version, 700);
        store.checkpoint().unwrap();
    }
    first.retain(|path| files(&world, "pages").contains(path));
    let report = store.checkpoint().unwrap();
    let pages: u64 = files(&world, "pages")
        .iter()
        .map(|path| (&world.disk as &dyn Disk).read(path).unwrap().len() as u64)
        .sum();
    assert_eq!(pages, report.bytes_named);
    let before = everything(&store);
    assert_eq!(before.len(), everything(&world.reopen(store)).len());
}

#[test]
fn what_has_not_changed_is_not_written_again() {
    let world = World::new();
    let store = run(&world, false);
    let first = store.checkpoint().unwrap();
    assert_eq!(first.bytes_written + 64, first.bytes_named);
    assert_eq!(store.checkpoint().unwrap().bytes_written, 0);
    let table = store.table("solver").unwrap();
    table.insert(3, "one_more_0_0", []).unwrap();
    let second = store.checkpoint().unwrap();
    assert!(
        second.bytes_written > 0 && second.bytes_written * 3 < first.bytes_written,
        "{second:?} {first:?}"
    );
}

#[test]
fn a_checkpoint_is_due_after_so_many_records() {
    let world = World::new();
    let store = Store::open(ROOT, world.options().checkpoint_records(50)).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    let manifest = || (&world.disk as &dyn Disk).exists(&Path::new(ROOT).join("MANIFEST")).unwrap();
    for row in 0..40 {
        table.insert(0, &format!("q_{row}_0"), []).unwrap();
        store.run_once().unwrap();
    }
    assert!(!manifest());
    for row in 40..60 {
        table.insert(0, &format!("q_{row}_0"), []).unwrap();
        store.run_once().unwrap();
    }
    assert!(manifest());
}

#[test]
fn a_checkpoint_that_is_due_is_left_to_whoever_takes_them() {
    let world = World::new();
    let store = Store::open(ROOT, world.options().checkpoint_records(50)).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    let manifest = || (&world.disk as &dyn Disk).exists(&Path::new(ROOT).join("MANIFEST")).unwrap();
    assert!(store.checkpoint_if_due().unwrap() && !manifest(), "not due");
    for row in 0..60 {
        table.insert(0, &format!("q_{row}_0"), []).unwrap();
        store.tend().unwrap();
    }
    assert!(!manifest(), "the other duties take none");
    world.disk.set_capacity(world.disk.occupied());
    assert_eq!(store.checkpoint_if_due().unwrap_err().kind(), Kind::Capacity);
    assert_eq!(store.stats().duties_failed, 1);
    world.disk.set_capacity(u64::MAX);
    assert!(store.checkpoint_if_due().unwrap() && manifest());
    assert!(store.checkpoint_if_due().unwrap());
    assert_eq!(store.checkpoint().unwrap().number, 2, "it was not due any more");
}

#[test]
fn a_damaged_checkpoint_is_named_and_nothing_is_changed() {
    let world = World::new();
    let store = run(&world, true);
    std::mem::forget(store);
    let pages = files(&world, "pages").pop().unwrap();
    let cases = [Path::new(ROOT).join("MANIFEST"), pages];
    for path in cases {
        for offset in [0, 9, 20, 63] {
            world.disk.restart();
            world.disk.flip_byte(&path, offset);
            let error = world.try_open().unwrap_err();
            let named = error.to_string().contains(path.to_str().unwrap());
            assert!(named && matches!(error.kind(), Kind::Corrupt | Kind::State), "byte {offset}: {error}");
            world.disk.restart();
            world.disk.flip_byte(&path, offset);
        }
    }
    world.open();
}

fn manifest_bytes(world: &World) -> usize {
    let disk: &dyn Disk = &world.disk;
    disk.read(&Path::new(ROOT).join("MANIFEST")).unwrap().len()
}

#[test]
fn claims_that_ended_are_remembered_without_their_rows() {
    let world = World::new();
    let (store, table) = solver(&world);
    let score = store.create_consumer("score", Consumer::task(["solver"]).ready(["prompt"])).unwrap();
    (0..2000).for_each(|i| _ = finished(&table, 0, &format!("q{i}_0_0")));
    let claim = |rows| score.claim(MicroBatch::of(rows), "somebody", Wait::No).unwrap().unwrap();
    (0..50).for_each(|_| claim(2000).release().unwrap());
    let live = claim(100);
    store.checkpoint().unwrap();
    assert!(manifest_bytes(&world) < 20_000, "{} bytes", manifest_bytes(&world));
    let shown = |store: &Store| store.claims().iter().map(|claim| claim.rows).collect::<Vec<_>>();
    let rows = shown(&store);
    assert_eq!((rows.len(), rows[0], rows[50]), (51, 2000, 100));
    std::mem::forget(live);
    let store = world.reopen(store);
    assert_eq!(shown(&store), rows);
}

// A row that is deleted is not to come again, and one that would be stale cannot.
#[test]
fn deleted_rows_are_remembered_no_longer_than_they_could_come_again() {
    let world = World::new();
    let options =
        world.options().retention(Retention::default().consumed_for(Duration::ZERO)).object_versions_kept(2);
    let store = Store::open(ROOT, options).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    let train = store.create_consumer("train", Consumer::trainer(["solver"]).ready(["reward"])).unwrap();
    let mut bytes = Vec::new();
    for version in 0..12 {
        (0..500).for_each(|i| _ = finished(&table, version, &format!("q{i}_0_0")));
        let step = store.begin_step(StepPlan::new().rows(&train, 500)).unwrap();
        while let Some(claim) = step.next(&train, MicroBatch::up_to(500), Wait::No).unwrap() {
            claim.accumulated().unwrap();
        }
        let weights = store.put_object("solver", version + 1, &version.to_le_bytes()).unwrap();
        step.commit([("solver", vec![weights])]).unwrap();
        store.sync().unwrap();
        store.run_once().unwrap();
        store.checkpoint().unwrap();
        bytes.push(manifest_bytes(&world));
    }
    assert!(bytes[11] < bytes[5] + 3_000, "{bytes:?}");
    let again = table.insert(11, "q7_0_0", []).unwrap_err();
    assert!(matches!(again.cause(), Cause::RowDeleted { .. } | Cause::Stale { .. }), "{again}");
    let stale = table.insert(2, "q7_0_0", []).unwrap_err();
    assert!(matches!(stale.cause(), Cause::Stale { .. }), "{stale}");
}
