//! Backups: they are on stable storage, and are the store in another run of the machine too.

use std::path::Path;

use forebay_store::*;

use crate::support::*;

const COPY: &str = "/copy";

fn long(i: u64) -> String {
    format!("row {i}: {}", "a value that fills more than one view ".repeat(8))
}

/// What a copy shows that is opened in another run of the machine, where nothing of it is taken for lost.
fn content_elsewhere(world: &World) -> std::collections::BTreeMap<String, Vec<String>> {
    world.disk.reboot();
    let store = Store::open(COPY, world.options()).unwrap();
    let found = store.recovery();
    assert_eq!((found.checked, found.records_lost, found.cut_at.as_ref()), (true, 0, None));
    scan_content(&store)
}

#[test]
fn a_value_that_was_deleted_behind_a_live_one_is_not_missed_in_a_copy() {
    for checkpointed in [false, true] {
        let world = World::new();
        let (store, table) = solver(&world);
        if checkpointed {
            store.checkpoint().unwrap();
        }
        let insert = |i: u64| table.insert(0, &format!("q_0_{i}"), [("prompt", (&*long(i)).into())]).unwrap();
        insert(0);
        let gone = insert(1);
        table.delete(&Delete::rows([gone]).force()).unwrap();
        finished(&table, 0, "q_0_2");
        let report = store.backup(COPY).unwrap();
        assert_eq!(report.records, store.commits());
        let before = scan_content(&store);
        drop((store, table));
        assert_eq!(content_elsewhere(&world), before);
    }
}

#[test]
fn an_object_of_a_step_that_was_undone_is_not_missed_in_a_copy() {
    let world = World::new();
    let (store, table, train) = trained(&world, None);
    finished(&table, 0, "q_0_0");
    let weights = store.put_object("solver", 1, b"the weights of the step that is undone").unwrap();
    let step = store.begin_step(StepPlan::new().rows(&train, 1)).unwrap();
    step.next(&train, MicroBatch::of(1), Wait::No).unwrap().unwrap().accumulated().unwrap();
    step.commit([("solver", vec![weights])]).unwrap();
    store.rewind(0, Rewind::TrainAgain).unwrap();
    finished(&table, 0, "q_0_1");
    store.backup(COPY).unwrap();
    let before = scan_content(&store);
    drop((store, table, train));
    assert_eq!(content_elsewhere(&world), before);
}

/// In the same run too, also for who only reads, and for the copy of a copy.
#[test]
fn a_copy_is_opened_read_and_copied_like_any_store() {
    let world = World::new();
    let (store, table) = solver(&world);
    finished(&table, 0, "q_0_0");
    store.backup(COPY).unwrap();
    let before = scan_content(&store);
    let read = Store::open(COPY, world.options().read_only(true)).unwrap();
    assert_eq!(scan_content(&read), before);
    read.backup("/second").unwrap();
    drop(read);
    for copy in [COPY, "/second"] {
        let store = Store::open(copy, world.options()).unwrap();
        assert!(!store.recovery().checked, "this run of the machine wrote it");
        assert_eq!(scan_content(&store), before);
        let table = store.table("solver").unwrap();
        finished(&table, 0, "q_0_1");
        let longer = scan_content(&store);
        drop((store, table));
        let store = Store::open(copy, world.options()).unwrap();
        assert_eq!(scan_content(&store), longer);
    }
}

#[test]
fn a_copy_outlives_a_power_failure_right_after_it_was_made() {
    for seed in 0..30 {
        for to in [COPY, "/far/away/copy", "/there"] {
            let world = World::on(SimulatedDisk::seeded(seed));
            world.disk.create_directory(Path::new("/there")).unwrap();
            let (store, table) = solver(&world);
            finished(&table, 0, "q_0_0");
            store.backup(to).unwrap();
            let before = scan_content(&store);
            world.disk.cut_power();
            std::mem::forget((store, table));
            world.disk.restart();
            let copy = Store::open(to, world.options().create(false));
            let copy = copy.unwrap_or_else(|error| panic!("seed {seed}, {to}: {error}"));
            assert_eq!(scan_content(&copy), before, "seed {seed}, {to}");
            assert_eq!(copy.recovery().records_lost, 0, "seed {seed}, {to}");
        }
    }
}
