//! After a sync that failed the same run of the machine goes on, and nobody takes the kernel's word for what the disk holds.

use std::ops::ControlFlow;
use std::path::Path;

use forebay_store::*;

use crate::support::*;

const SYNCED: usize = 3;
const LOGGED: usize = 5;

fn long(i: usize) -> String {
    format!("row {i}: {}", "a value that fills a sector or two ".repeat(30))
}

/// Synced rows, then logged ones, then a sync that fails and leaves the kernel taking for written what the disk lacks.
fn failed(seed: u64) -> World {
    let world = World::on(SimulatedDisk::seeded(seed));
    let (store, table) = solver(&world);
    let insert =
        |i: usize| _ = table.insert(0, &format!("q_0_{i}"), [("prompt", (&*long(i)).into())]).unwrap();
    (0..SYNCED).for_each(insert);
    store.sync().unwrap();
    (SYNCED..SYNCED + LOGGED).for_each(insert);
    world.disk.arm(world.disk.operations() + 1, DiskFault::SyncFailsAndForgets);
    let error = store.sync().unwrap_err();
    assert_eq!(error.kind(), Kind::Closed, "{error}");
    assert!(is_in_doubt(&world));
    std::mem::forget((store, table));
    world.disk.restart();
    world
}

fn is_in_doubt(world: &World) -> bool {
    world.disk.exists(&Path::new(ROOT).join("DOUBT")).unwrap()
}

/// The rows, which are as they were written, the first ones and no others.
fn rows(store: &Store, when: &str) -> usize {
    let found = pick(store, "solver", &["sample_id", "prompt"]);
    for (i, row) in found.iter().enumerate() {
        assert_eq!(row, &[format!("q_0_{i}"), long(i)], "{when}");
    }
    assert!((SYNCED..=SYNCED + LOGGED).contains(&found.len()), "{when}: {}", found.len());
    found.len()
}

#[test]
fn after_a_sync_that_failed_the_next_opening_in_the_same_boot_looks_closely() {
    let (mut least, mut most) = (usize::MAX, 0);
    for seed in 0..60 {
        let world = failed(seed);
        let store = world.open();
        let report = store.recovery().clone();
        assert!(report.checked, "seed {seed}");
        let left = rows(&store, &format!("seed {seed}, the next process"));
        assert_eq!(report.rows_lost, (SYNCED + LOGGED - left) as u64, "seed {seed}: {report:?}");
        assert!(!is_in_doubt(&world), "seed {seed}: it is whole again");
        let verified = verify(ROOT, &world.options(), &mut |_| ControlFlow::Continue(())).unwrap();
        assert!(verified.is_sound(), "seed {seed}: {:?}", verified.faults);
        // What was kept was brought to stable storage, and not only synced once more.
        world.disk.cut_power();
        let store = world.reopen(store);
        assert_eq!(rows(&store, &format!("seed {seed}, after the power failed")), left);
        let store = world.reopen(store);
        assert!(
            !store.recovery().checked,
            "seed {seed}: this run of the machine wrote it, and no sync failed"
        );
        (least, most) = (least.min(left), most.max(left));
    }
    assert!(least < SYNCED + LOGGED && most > SYNCED, "{least} to {most}");
}

/// The opening that mends dies, or its own sync fails, anywhere: the one after it finds what was acknowledged as synced.
#[test]
fn an_opening_after_a_failed_sync_that_fails_itself_leaves_the_doubt() {
    let mut interrupted = 0;
    for seed in 0..12 {
        for fault in [DiskFault::ProcessDies, DiskFault::SyncFailsAndForgets] {
            for at in (1..).step_by(3) {
                let world = failed(seed);
                world.disk.arm(world.disk.operations() + at, fault);
                let opened = world.try_open();
                let whole = opened.is_ok();
                if let Err(error) = &opened {
                    assert_ne!(error.kind(), Kind::Corrupt, "seed {seed}, {fault:?} at {at}: {error:?}");
                }
                drop(opened);
                world.disk.restart();
                let when = format!("seed {seed}, {fault:?} at {at}");
                let store = world.open();
                let left = rows(&store, &when);
                world.disk.cut_power();
                assert_eq!(rows(&world.reopen(store), &when), left, "{when}");
                if whole {
                    break;
                }
                interrupted += 1;
            }
        }
    }
    assert!(interrupted > 100, "{interrupted}");
}

/// A machine that went down behind a sync whose proof is in no record: all that the log names has to be looked at.
fn synced_and_down(seed: u64) -> World {
    let world = World::on(SimulatedDisk::seeded(seed));
    let (store, table) = solver(&world);
    for i in 0..SYNCED {
        table.insert(0, &format!("q_0_{i}"), [("prompt", (&*long(i)).into())]).unwrap();
    }
    store.sync().unwrap();
    std::mem::forget((store, table));
    world.disk.cut_power();
    world.disk.restart();
    world
}

#[test]
fn an_opening_that_cannot_look_gives_nothing_up() {
    let mut refused = 0;
    for fault in [DiskFault::IoError, DiskFault::NoHandles] {
        for at in 1.. {
            let world = synced_and_down(at);
            world.disk.arm(world.disk.operations() + at, fault);
            let opened = world.try_open();
            let (when, struck) = (format!("{fault:?} at {at}"), world.disk.struck().is_some());
            if let Ok(store) = &opened {
                assert_eq!((rows(store, &when), store.recovery().records_lost), (SYNCED, 0), "{when}");
            }
            refused += u64::from(opened.is_err());
            drop(opened);
            world.disk.restart();
            assert_eq!(rows(&world.open(), &when), SYNCED, "{when}");
            if !struck {
                break;
            }
        }
    }
    assert!(refused > 20, "{refused}");
}
