//! Names that a power failure may take: the store's own, and those of segments that go.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_store::*;

use crate::probe::*;
use crate::support::*;

fn ids_in(store: &Store) -> Vec<String> {
    pick(store, "solver", &["sample_id"]).into_iter().flatten().collect()
}

fn segments(world: &World) -> Vec<PathBuf> {
    world.disk.list(&Path::new(ROOT).join("log")).unwrap()
}

/// Somebody made the directory before, and its name is nobody's care but ours.
#[test]
fn the_first_synced_write_stays_in_a_directory_that_was_there_before() {
    for seed in 0..40 {
        let world = World::on(SimulatedDisk::seeded(seed));
        world.disk.create_directory(Path::new(ROOT)).unwrap();
        let (store, table) = solver(&world);
        finished(&table, 0, "q_0_0");
        store.sync().unwrap();
        world.disk.cut_power();
        std::mem::forget(table);
        let store = world.reopen(store);
        assert_eq!(store.tables(), ["solver"], "seed {seed}");
        assert_eq!(ids_in(&store), ["q_0_0"], "seed {seed}");
    }
}

/// A segment goes for the next one, which holds nothing yet that the checkpoint does not, and is not on stable storage.
#[test]
fn a_segment_does_not_go_before_the_one_behind_it_is_on_stable_storage() {
    for seed in 0..100 {
        let world = World { segment_bytes: 1, ..World::on(SimulatedDisk::seeded(seed)) };
        let probe = Probe::new(&world.disk);
        let store = Store::open(ROOT, world.options().disk(Arc::new(probe.clone()))).unwrap();
        let table = store.create_table("solver", solver_schema()).unwrap();
        finished(&table, 0, "q_0_0");
        let (late, came) = (table.clone(), AtomicBool::new(false));
        probe.hook(move |verb, path| {
            if verb == "rename" && path.ends_with("MANIFEST") && !came.swap(true, Ordering::Relaxed) {
                finished(&late, 0, "q_0_1");
            }
            Ok(())
        });
        store.checkpoint().unwrap();
        probe.hook(|_, _| Ok(()));
        world.disk.cut_power();
        std::mem::forget((store, table));
        world.disk.restart();
        let store = world.try_open().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(ids_in(&store).contains(&"q_0_0".to_owned()), "seed {seed}");
    }
}

/// What a process that died, or found the disk full, leaves of a segment that it was about to begin.
#[test]
fn a_segment_that_was_never_begun_keeps_none_behind_it() {
    let world = World { segment_bytes: 512, ..World::new() };
    let (store, table) = solver(&world);
    (0..10).for_each(|i| _ = finished(&table, 0, &format!("a{i}_0_0")));
    drop((store, table));
    let short = segments(&world).len() as u32 + 1;
    let path = Path::new(ROOT).join(format!("log/{short:08}.log"));
    world.disk.create(&path).unwrap();
    let store = world.open();
    assert!(!store.recovery().checked, "the same run of the machine");
    let table = store.table("solver").unwrap();
    for round in 0..2 {
        (0..10).for_each(|i| _ = finished(&table, 0, &format!("b{i}_{round}_0")));
        store.checkpoint().unwrap();
    }
    let left = segments(&world);
    assert!(left.len() <= 2 && left[0] > path, "{left:?}");
    std::mem::forget(table);
    assert_eq!(ids_in(&world.reopen(store)).len(), 30);
}

/// Whoever closes a store that is sound loses nothing, at any level.
#[test]
fn what_was_acknowledged_at_memory_stays_when_the_store_is_closed() {
    let world = World::new();
    let store = Store::open(ROOT, world.options().durability(Durability::Memory)).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    finished(&table, 0, "q_0_0");
    store.close("a part of the process cannot go on");
    assert!(table.insert(0, "q_0_1", []).is_err());
    drop((store, table));
    let store = world.open();
    assert_eq!(store.tables(), ["solver"]);
    assert_eq!(ids_in(&store), ["q_0_0"]);
}
