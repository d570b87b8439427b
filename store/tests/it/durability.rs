//! What each level does to the disk before it acknowledges, and what happens when the disk refuses.

use std::io;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use forebay_store::*;

use crate::probe::*;
use crate::support::*;

const LONG: &str = "a value that lies in an extent, long enough for it";

/// A store behind a probe, with the table `solver`. What came before is synced.
fn probed(world: &World, options: Options) -> (Probe, Store, Table) {
    let probe = Probe::new(&world.disk);
    let store = Store::open(ROOT, options.disk(Arc::new(probe.clone()))).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    table.insert(0, "first_0_0", [("prompt", LONG.into())]).unwrap();
    store.sync().unwrap();
    probe.take();
    (probe, store, table)
}

fn insert_at(store: &Store, table: &Table, level: Durability, id: &str, prompt: &str) -> Result<()> {
    let mut batch = store.batch();
    batch.durability(level).insert(table, NewRow::new(0, id)?, [("prompt", prompt.into())])?;
    batch.commit().map(drop)
}

#[test]
fn each_level_asks_of_the_disk_what_it_promises_and_no_more() {
    let world = World::new();
    let (probe, store, table) = probed(&world, world.options());
    insert_at(&store, &table, Durability::Memory, "m_0_0", LONG).unwrap();
    assert_eq!(probe.take(), [""; 0], "memory");
    insert_at(&store, &table, Durability::Logged, "l_0_0", LONG).unwrap();
    assert_eq!(probe.take(), ["append 00000001.log"], "logged");
    insert_at(&store, &table, Durability::Synced, "s_0_0", LONG).unwrap();
    assert_eq!(
        probe.take(),
        ["append 00000001.log", "sync 00000001.extent", "sync 00000001.log"],
        "synced: the record on its way while its values are synced, then the log"
    );
    insert_at(&store, &table, Durability::Synced, "i_0_0", "in a view").unwrap();
    assert_eq!(probe.take(), ["append 00000001.log", "sync 00000001.log"], "nothing outside the log");
    store.sync().unwrap();
    assert_eq!(probe.take(), [""; 0], "all is durable");
    let stats = store.stats();
    assert_eq!((stats.durable_commits, stats.syncs), (stats.commits, 3));
}

#[test]
fn a_level_given_at_opening_holds_for_every_call() {
    for (level, appends, syncs) in
        [(Durability::Memory, 0, 0), (Durability::Logged, 4, 0), (Durability::Synced, 4, 4)]
    {
        let world = World::new();
        let (probe, store, table) = probed(&world, world.options().durability(level));
        let task = store.create_consumer("task", Consumer::task(["solver"]).ready(["prompt"])).unwrap();
        let row = table.insert(0, "a_0_0", [("prompt", "short".into())]).unwrap();
        table.write(row, [("reward", 1.0.into())]).unwrap();
        let claim = task.claim(MicroBatch::of(1), "me", Wait::No).unwrap().unwrap();
        claim.release().unwrap(); // a lease waits for nothing: it ends with the process anyway
        table.write(row, [("response", vec![1].into())]).unwrap();
        let asked = probe.take();
        let count = |verb: &str| asked.iter().filter(|line| line.starts_with(verb)).count();
        assert_eq!((count("append"), count("sync")), (appends, syncs), "{level}: {asked:?}");
    }
}

#[test]
fn what_memory_acknowledged_goes_with_the_process_and_an_orderly_end_keeps_it() {
    for orderly in [false, true] {
        let world = World::new();
        let (_, store, table) = probed(&world, world.options());
        insert_at(&store, &table, Durability::Memory, "m_0_0", LONG).unwrap();
        let before = scan(&store);
        assert_eq!(before["solver"].len(), 2);
        drop(table);
        let store = if orderly {
            drop(store);
            world.open()
        } else {
            world.reopen(store)
        };
        assert_eq!(scan(&store)["solver"].len(), if orderly { 2 } else { 1 });
    }
}

#[test]
fn what_memory_acknowledged_is_handed_on_when_much_of_it_waits_or_anybody_writes_the_log() {
    let world = World::new();
    let (probe, store, table) = probed(&world, world.options().segment_bytes_max(8 << 20));
    let reason = "x".repeat(80_000);
    let exclude = |id: &str| {
        let row = NewRow::new(0, id).unwrap().excluded(&reason);
        let mut batch = store.batch();
        batch.durability(Durability::Memory).insert(&table, row, []).unwrap();
        batch.commit().unwrap();
    };
    exclude("a_0_0");
    assert_eq!(probe.take(), [""; 0]);
    exclude("b_0_0");
    assert_eq!(probe.take(), ["append 00000001.log"], "more than 128 KiB wait");
    exclude("c_0_0");
    insert_at(&store, &table, Durability::Logged, "d_0_0", "x").unwrap();
    assert_eq!(probe.take(), ["append 00000001.log"], "one write for both");
    let store = world.reopen(store);
    assert_eq!(scan(&store)["solver"].len(), 5);
}

/// The first sync is held until eight more calls have their records in the log's buffer; one sync more serves all eight.
#[test]
fn calls_at_the_same_time_share_one_sync() {
    let world = World::new();
    let (probe, store, table) = probed(&world, world.options().durability(Durability::Synced));
    let (begun, has_begun) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let gate = Mutex::new(Some(may_go_on));
    probe.hook(move |verb, path| {
        if verb == "sync"
            && path.extension().is_some_and(|e| e == "log")
            && let Some(gate) = gate.lock().unwrap().take()
        {
            begun.send(()).unwrap();
            gate.recv().unwrap();
        }
        Ok(())
    });
    let syncs = store.stats().syncs;
    std::thread::scope(|scope| {
        let insert = |id: String| {
            let table = &table;
            scope.spawn(move || table.insert(0, &id, [("prompt", "short".into())]).map(drop))
        };
        let first = insert("a_0_0".into());
        has_begun.recv().unwrap();
        let others: Vec<_> = (0..8).map(|i| insert(format!("b_0_{i}"))).collect();
        while table.counts().written < 10 {
            std::thread::yield_now();
        }
        assert!(others.iter().all(|other| !other.is_finished()), "acknowledged before it was synced");
        go_on.send(()).unwrap();
        others.into_iter().chain([first]).for_each(|call| call.join().unwrap().unwrap());
    });
    assert_eq!(store.stats().syncs - syncs, 2);
    assert_eq!(store.stats().durable_commits, store.stats().commits);
}

#[test]
fn a_sync_takes_along_what_the_process_before_left_unsynced_once() {
    let world = World::new();
    let (_, store, table) = probed(&world, world.options());
    insert_at(&store, &table, Durability::Logged, "l_0_0", LONG).unwrap();
    store.put_object("solver", 1, b"weights").unwrap();
    std::mem::forget((store, table));
    world.disk.restart();
    let probe = Probe::new(&world.disk);
    let options = world.options().disk(Arc::new(probe.clone()));
    let store = Store::open(ROOT, options).unwrap();
    let name = "sync 00000000000000000001.safetensors";
    probe.take();
    store.sync().unwrap();
    let asked = probe.take();
    for file in
        ["sync 00000001.extent", "sync 00000001.log", name, "sync log", "sync extents", "sync objects"]
    {
        assert!(asked.iter().any(|line| line == file), "{file}: {asked:?}");
    }
    assert_eq!(asked.last().unwrap(), "sync log", "the name of the segment of this process");
    store.create_policy("one", 0, &[]).unwrap();
    store.sync().unwrap();
    assert_eq!(probe.take(), ["append 00000002.log", "sync 00000002.log"]);
    store.put_object("solver", 2, b"weights").unwrap();
    probe.take();
    store.create_policy("two", 0, &[]).unwrap();
    store.sync().unwrap();
    let asked = probe.take();
    assert!(asked.contains(&name.replace("1.", "2.")) && asked.contains(&"sync solver".into()), "{asked:?}");
}

#[test]
fn names_of_new_files_are_made_durable_before_what_lies_in_them_is_acknowledged() {
    let world = World::new();
    let options = world.options().durability(Durability::Synced).segment_bytes_max(1);
    let (probe, store, table) = probed(&world, options);
    table.insert(0, "a_0_0", [("prompt", "y".repeat(9000).into())]).unwrap();
    let asked = probe.take();
    let at = |line: &str| asked.iter().position(|l| l == line).unwrap_or_else(|| panic!("{line}: {asked:?}"));
    let extent = at("create 00000002.extent");
    assert!(extent < at("sync 00000002.extent") && at("sync 00000002.extent") < at("sync extents"));
    let segment = asked.iter().find(|line| line.starts_with("create") && line.ends_with(".log")).unwrap();
    let segment_sync = at(&segment.replace("create", "sync"));
    assert!(at(segment) < segment_sync && at("sync extents") < segment_sync && segment_sync < at("sync log"));
    drop(store);
}

#[test]
fn the_background_duty_syncs_what_has_waited_long_enough() {
    let world = World::new();
    let (probe, store, table) = probed(&world, world.options().sync_interval(Duration::from_secs(1)));
    assert_eq!(store.run_once().unwrap(), None, "nothing to do");
    world.clock.advance(Duration::from_millis(400));
    insert_at(&store, &table, Durability::Memory, "m_0_0", LONG).unwrap();
    let due = store.run_once().unwrap().unwrap();
    assert!(due > world.clock.now() && due <= world.clock.now().after(Duration::from_secs(1)));
    assert_eq!(probe.take(), [""; 0]);
    world.clock.advance(due.since(world.clock.now()));
    assert_eq!(store.run_once().unwrap(), None);
    assert_eq!(probe.take(), ["append 00000001.log", "sync 00000001.extent", "sync 00000001.log"]);
    assert_eq!(store.stats().durable_commits, store.stats().commits);
}

/// Nothing waits until the system's time has come back to where it was.
#[test]
fn the_background_duty_syncs_also_after_the_time_was_set_back() {
    let world = World::new();
    let (probe, store, table) = probed(&world, world.options().sync_interval(Duration::from_secs(1)));
    let start = world.clock.now();
    world.clock.advance(Duration::from_secs(7200));
    insert_at(&store, &table, Durability::Logged, "m_0_0", LONG).unwrap();
    store.run_once().unwrap();
    insert_at(&store, &table, Durability::Logged, "m_1_0", LONG).unwrap();
    probe.take();
    world.clock.set(start);
    store.run_once().unwrap();
    assert_eq!(probe.take().last().map(String::as_str), Some("sync 00000001.log"));
    assert_eq!(store.stats().durable_commits, store.stats().commits);
    insert_at(&store, &table, Durability::Logged, "m_2_0", LONG).unwrap();
    assert_eq!(
        store.run_once().unwrap(),
        Some(start.after(Duration::from_secs(1))),
        "it counts from there on"
    );
}

#[test]
fn a_disk_that_refuses_closes_the_store_with_the_reason_or_leaves_it_usable() {
    let full = io::ErrorKind::StorageFull;
    let cases = [
        ("append", "log", full, true),
        ("create", "log", full, true),
        ("create", "log", io::ErrorKind::ReadOnlyFilesystem, true),
        ("sync", "log", io::ErrorKind::Other, true),
        ("sync", "extent", io::ErrorKind::Other, true),
        ("begin sync", "log", io::ErrorKind::Other, true),
        ("begin sync", "extent", io::ErrorKind::Other, true),
        ("create", "extent", full, false),
        ("allocate", "extent", full, false),
    ];
    for (verb, extension, kind, closes) in cases {
        let what = format!("{verb} of a {extension}: {kind}");
        let world = World::new();
        let options = world.options().durability(Durability::Synced).segment_bytes_max(1);
        let (probe, store, table) = probed(&world, options);
        let before = scan(&store);
        probe.fail(verb, extension, kind);
        let long = "z".repeat(20_000);
        let error = table.insert(0, "a_0_0", [("prompt", long.as_str().into())]).unwrap_err();
        probe.hook(|_, _| Ok(()));
        let again = table.insert(0, "a_0_0", [("prompt", long.as_str().into())]);
        if closes {
            assert_eq!(error.kind(), Kind::Closed, "{what}: {error}");
            let verb_told = match (verb, extension) {
                ("append", "log") => "create",
                ("begin sync", _) => "sync",
                _ => verb,
            };
            assert!(error.to_string().contains(verb_told), "{what}: {error}");
            assert_eq!(again.unwrap_err().kind(), Kind::Closed, "{what}");
            for refused in [store.sync(), store.run_once().map(drop)] {
                assert_eq!(refused.unwrap_err().kind(), Kind::Closed, "{what}");
            }
            let store = world.reopen(store);
            let rows = scan(&store)["solver"].len();
            assert!(rows == 1 || (verb.ends_with("sync") && rows == 2), "{what}: whole or absent");
        } else {
            assert_eq!(error.kind(), Kind::Capacity, "{what}: {error}");
            again.unwrap();
            assert_eq!(scan(&world.reopen(store))["solver"].len(), 2, "{what}");
        }
        assert_eq!(before["solver"].len(), 1);
    }
}

/// A store at `memory` syncs by itself what somebody was promised, and nothing else; what is over is used again without a sync.
// FX-B10
#[test]
fn a_memory_store_syncs_by_itself_what_was_promised_and_nothing_else() {
    let world = World::new();
    let options = world.options().durability(Durability::Memory).extent_bytes(4096, 4096);
    let (probe, store, table) = probed(&world, options.sync_interval(Duration::from_secs(1)));
    let tend = || {
        world.clock.advance(Duration::from_secs(2));
        store.run_once().unwrap()
    };
    let long = LONG.repeat(50);
    for round in 0..20 {
        let ids = [0, 1].map(|i| format!("m{round}_{i}_0"));
        ids.iter().for_each(|id| insert_at(&store, &table, Durability::Memory, id, &long).unwrap());
        let rows = ids.map(|id| table.find(0, &id.parse().unwrap()).unwrap());
        table.delete(&Delete::rows(rows).force()).unwrap();
        tend();
    }
    assert_eq!(tend(), None, "nothing is left to do");
    let asked = probe.take();
    assert!(!asked.iter().any(|asked| asked.contains("sync")), "nobody was promised anything: {asked:?}");
    assert!(asked.iter().any(|asked| asked.starts_with("append")), "readers see it: {asked:?}");
    assert!(store.stats().extents_recycled > 10, "{:?}", store.stats());
    insert_at(&store, &table, Durability::Logged, "l_0_0", LONG).unwrap();
    tend();
    assert_eq!(store.stats().durable_commits, store.stats().commits, "somebody was");
}

/// Fills extents with rows named after `round` that are over at once.
fn come_and_go(table: &Table, store: &Store, round: usize) {
    let ids = [0, 1].map(|at| format!("passing{round}_{at}_0"));
    ids.iter().for_each(|id| insert_at(store, table, Durability::Logged, id, &LONG.repeat(50)).unwrap());
    let rows = ids.map(|id| table.find(0, &id.parse().unwrap()).unwrap());
    table.delete(&Delete::rows(rows).force()).unwrap();
}

/// Power that fails takes what came after the last sync, whatever was used again since; the end of the process takes nothing.
// FX-B03, FX-B10
#[test]
fn a_logged_store_uses_space_again_before_a_sync_and_loses_nothing_by_it() {
    for power_fails in [false, true] {
        let world = World::new();
        let options = || world.options().durability(Durability::Logged).extent_bytes(4096, 4096);
        let (_, store, table) = probed(&world, options());
        insert_at(&store, &table, Durability::Logged, "kept_0_0", &LONG.repeat(50)).unwrap();
        store.sync().unwrap();
        let (synced, syncs) = (scan_content(&store), store.stats().syncs);
        for round in 0..10 {
            come_and_go(&table, &store, round);
            store.run_once().unwrap();
        }
        insert_at(&store, &table, Durability::Logged, "late_0_0", LONG).unwrap();
        let stats = store.stats();
        assert!(stats.syncs == syncs && stats.extents_recycled > 8, "{stats:?}");
        let seen = scan_content(&store);
        match power_fails {
            true => world.disk.cut_power(),
            false => world.disk.kill(),
        }
        std::mem::forget((store, table));
        world.disk.restart();
        let store = Store::open(ROOT, options()).unwrap();
        let found = scan_content(&store);
        assert!(power_fails || found == seen, "{found:?}");
        let whole = |row: &String| found["solver"].contains(row);
        assert!(synced["solver"].iter().all(whole), "{synced:?} was synced, {found:?} is there");
        let report = verify(ROOT, &options(), &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
        assert!(report.is_sound(), "{:?}", report.faults);
    }
}

/// A small value rides in its record, so a sync that somebody else has begun before makes it stable, too: its space waits for a proof as
/// that of all that was synced.
// FX-B03, FX-B10
#[test]
fn what_rode_along_with_the_sync_of_another_waits_for_a_proof_when_it_is_over() {
    let world = World::new();
    let options = || world.options().durability(Durability::Logged).extent_bytes(4096, 4096);
    let (probe, store, table) = probed(&world, options());
    insert_at(&store, &table, Durability::Logged, "leads_0_0", &LONG.repeat(50)).unwrap();
    let riding = Arc::new(Mutex::new(None));
    probe.hook({
        let (store, table, riding) = (store.clone(), table.clone(), riding.clone());
        move |asked, path| {
            if asked != "sync" || path.extension().is_none_or(|found| found != "extent") {
                return Ok(());
            }
            let mut riding = riding.lock().unwrap();
            if riding.is_some() {
                return Ok(());
            }
            let (before, rider) = (store.stats().commits, (store.clone(), table.clone()));
            *riding = Some(std::thread::spawn(move || {
                let (store, table) = rider;
                let mut batch = store.batch();
                let row = NewRow::new(1, "rode_0_0").unwrap();
                batch.durability(Durability::Synced).insert(&table, row, [("prompt", LONG.into())]).unwrap();
                batch.commit().map(drop)
            }));
            while store.stats().commits == before {
                std::thread::yield_now(); // its record is behind what the sync is for
            }
            Ok(())
        }
    });
    let syncs = store.stats().syncs;
    store.sync().unwrap();
    riding.lock().unwrap().take().unwrap().join().unwrap().unwrap();
    probe.hook(|_, _| Ok(()));
    assert_eq!(store.stats().syncs - syncs, 1, "one for both");
    // It begins the extent that these fill, and all of them are over before the next sync.
    for id in ["full_0_0", "full_0_1"] {
        table.insert(1, id, [("prompt", LONG.repeat(50).as_str().into())]).unwrap();
    }
    table.delete(&Delete::version(1).force()).unwrap();
    let free = || (store.run_once().unwrap(), store.stats().free_extent_bytes).1;
    assert_eq!(free(), 0, "the power would bring it back");
    store.sync().unwrap();
    insert_at(&store, &table, Durability::Synced, "proof_0_0", LONG).unwrap();
    assert!(free() >= 4096);
}

// FX-B10
#[test]
fn what_is_over_when_a_sync_comes_is_not_brought_to_the_disk_and_what_is_kept_is() {
    let world = World::new();
    let options = || world.options().durability(Durability::Logged).extent_bytes(4096, 4096);
    let (probe, store, table) = probed(&world, options());
    (0..5).for_each(|round| come_and_go(&table, &store, round));
    insert_at(&store, &table, Durability::Logged, "kept_0_0", &LONG.repeat(50)).unwrap();
    come_and_go(&table, &store, 5);
    insert_at(&store, &table, Durability::Logged, "open_0_0", &LONG.repeat(50)).unwrap();
    probe.take();
    store.sync().unwrap();
    let synced = probe.take().iter().filter(|asked| asked.ends_with(".extent")).count();
    let kept = store.extents().iter().filter(|extent| extent.live_bytes > 0).count();
    assert_eq!(synced, kept, "those in which something lives");
    insert_at(&store, &table, Durability::Synced, "proof_0_0", LONG).unwrap();
    store.run_once().unwrap();
    let stats = store.stats();
    assert!(stats.extents_never_synced > 5, "{stats:?}");
    let seen = scan_content(&store);
    std::mem::forget((store, table));
    world.disk.cut_power();
    world.disk.restart();
    let store = Store::open(ROOT, options()).unwrap();
    assert_eq!(scan_content(&store), seen);
    let report = verify(ROOT, &options(), &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
    assert!(report.is_sound(), "{:?}", report.faults);
}

#[test]
fn what_is_over_but_may_still_be_read_is_synced_with_the_rest() {
    let world = World::new();
    let options = world.options().durability(Durability::Logged).extent_bytes(4096, 4096);
    let (_, store, table) = probed(&world, options);
    let ids = ["seen_0_0", "seen_0_1"]; // the latter is alone in its extent
    ids.iter().for_each(|id| insert_at(&store, &table, Durability::Logged, id, &LONG.repeat(50)).unwrap());
    let snapshot = store.snapshot();
    let rows = ids.map(|id| table.find(0, &id.parse().unwrap()).unwrap());
    table.delete(&Delete::rows(rows).force()).unwrap();
    insert_at(&store, &table, Durability::Logged, "next_0_0", &LONG.repeat(50)).unwrap();
    store.sync().unwrap();
    assert_eq!(scan_of(snapshot.table("solver").unwrap(), |name| name == "sample_id").len(), 3);
    drop(snapshot);
    store.sync().unwrap();
    insert_at(&store, &table, Durability::Synced, "proof_0_0", LONG).unwrap();
    store.run_once().unwrap();
    let stats = store.stats();
    assert_eq!(stats.extents_never_synced, 0, "{stats:?}");
    assert!(stats.free_extent_bytes > 0 || stats.extents_recycled > 0, "{stats:?}");
}

/// Values of a batch that nobody has committed yet lie in extents in which nothing lives.
#[test]
fn what_a_batch_wrote_before_a_sync_and_commits_after_it_is_brought_by_the_next() {
    let world = World::new();
    let options = || world.options().durability(Durability::Logged).extent_bytes(4096, 4096);
    let (_, store, table) = probed(&world, options());
    let mut batch = store.batch();
    for at in 0..4 {
        let new = NewRow::new(0, &format!("late_{at}_0")).unwrap();
        batch.insert(&table, new, [("prompt", LONG.repeat(50).as_str().into())]).unwrap();
    }
    insert_at(&store, &table, Durability::Logged, "other_0_0", LONG).unwrap();
    store.sync().unwrap();
    batch.commit().unwrap();
    store.sync().unwrap();
    let seen = scan_content(&store);
    std::mem::forget((store, table));
    world.disk.cut_power();
    world.disk.restart();
    assert_eq!(scan_content(&Store::open(ROOT, options()).unwrap()), seen);
}
