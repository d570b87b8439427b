//! What is left when the machine went down: everything that was synced, a prefix of the rest, and a report of the loss.

use std::path::{Path, PathBuf};

use forebay_store::*;

use crate::probe::*;
use crate::support::*;

pub(crate) const SYNCED: u64 = 3;
pub(crate) const LOGGED: u64 = 4;

fn long(i: u64) -> String {
    format!("row {i}: {}", "a value that fills more than one view ".repeat(8))
}

/// Three rows synced together, then four logged ones, each with a long value; then the process ends. Gives the length of
/// the log's only segment when the last sync came back.
pub(crate) fn lived() -> (World, usize) {
    let world = World::new();
    let (store, table) = solver(&world);
    let insert = |i: u64| table.insert(0, &format!("q_0_{i}"), [("prompt", long(i).into())]).unwrap();
    (0..SYNCED).for_each(|i| _ = insert(i));
    store.sync().unwrap();
    let length = image_of(&world.disk)[&segment(1)].len();
    (SYNCED..SYNCED + LOGGED).for_each(|i| _ = insert(i));
    std::mem::forget((store, table));
    world.disk.restart();
    (world, length)
}

fn segment(number: u32) -> PathBuf {
    Path::new(ROOT).join(format!("log/{number:08}.log"))
}

/// The image after the machine was started again.
fn rebooted(image: &Image) -> World {
    let disk = disk_of(image);
    disk.reboot();
    World::on(disk)
}

pub(crate) fn rows(store: &Store) -> u64 {
    let found = pick(store, "solver", &["sample_id", "prompt"]);
    for (i, row) in found.iter().enumerate() {
        assert_eq!(row, &[format!("q_0_{i}"), long(i as u64)]);
    }
    found.len() as u64
}

/// Opens, checks that the next opening agrees and that writing goes on from there. Gives the rows that were left.
fn open_and_go_on(world: &World) -> (u64, RecoveryReport) {
    let store = world.open();
    let report = store.recovery().clone();
    let left = rows(&store);
    let store = world.reopen(store);
    assert_eq!(rows(&store), left);
    assert!(!store.recovery().checked, "the log goes on in this run of the machine");
    let table = store.table("solver").unwrap();
    table.insert(0, &format!("q_0_{left}"), [("prompt", long(left).into())]).unwrap();
    world.disk.reboot();
    let store = world.reopen(store);
    assert_eq!(rows(&store), left + 1);
    assert_eq!(store.recovery().records_lost, 0);
    (left, report)
}

#[test]
fn a_machine_that_comes_back_with_everything_loses_nothing() {
    let (world, _) = lived();
    let (left, report) = open_and_go_on(&rebooted(&image_of(&world.disk)));
    assert_eq!(left, SYNCED + LOGGED);
    assert!(report.checked && report.durable_through > SYNCED && report.cut_at.is_none());
    assert_eq!((report.records_lost, report.rows_lost, report.values_put_back), (0, 0, 0));
}

#[test]
fn a_log_cut_at_any_length_above_what_was_durable_loses_its_end_and_says_so() {
    let (world, durable) = lived();
    let image = image_of(&world.disk);
    let mut seen = Vec::new();
    for length in durable..image[&segment(1)].len() {
        let mut image = image.clone();
        image.get_mut(&segment(1)).unwrap().truncate(length);
        let (left, report) = open_and_go_on(&rebooted(&image));
        assert!((SYNCED..SYNCED + LOGGED).contains(&left), "cut at {length}: {left}");
        assert_eq!(report.cut_at.is_some(), report.records_lost == 1, "cut at {length}");
        seen.push(left);
    }
    assert!(seen.is_sorted());
    seen.dedup();
    assert_eq!(seen.len() as u64, LOGGED);
}

#[test]
fn a_log_cut_below_what_was_durable_is_corrupt_where_a_later_record_proves_it() {
    let (world, durable) = lived();
    drop(world.open()); // a second segment, whose header proves it
    let image = image_of(&world.disk);
    for length in 0..durable {
        let mut image = image.clone();
        image.get_mut(&segment(1)).unwrap().truncate(length);
        let error = rebooted(&image).try_open().unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "cut at {length}: {error}");
    }
}

/// Every byte of the log: below what was durable it is corrupt, above the log is cut before its record.
#[test]
fn a_damaged_record_is_corrupt_or_the_end_of_the_log_and_never_skipped() {
    let (world, durable) = lived();
    let image = image_of(&world.disk);
    let mut least = u64::MAX;
    for at in 0..image[&segment(1)].len() {
        let mut image = image.clone();
        image.get_mut(&segment(1)).unwrap()[at] ^= 0x40;
        let world = rebooted(&image);
        match world.try_open() {
            Err(error) => {
                assert_eq!(error.kind(), Kind::Corrupt, "byte {at}: {error}");
                assert!(at < durable, "byte {at}: {error}");
                assert!(error.to_string().contains("00000001.log"), "{error}");
            }
            Ok(store) => {
                assert!(at >= durable, "byte {at} was durable");
                let report = store.recovery();
                let left = rows(&store);
                assert!(left < SYNCED + LOGGED && report.rows_lost <= LOGGED, "byte {at}");
                assert_eq!(report.records_lost, SYNCED + LOGGED - left, "byte {at}");
                assert!(
                    report
                        .cut_at
                        .as_ref()
                        .is_some_and(|(path, offset, _)| { *path == segment(1) && *offset as usize <= at })
                );
                least = least.min(left);
            }
        }
    }
    assert_eq!(least, SYNCED);
}

#[test]
fn a_record_whose_value_is_not_there_is_the_end_of_the_log() {
    let (world, _) = lived();
    let image = image_of(&world.disk);
    let extent = Path::new(ROOT).join("extents/00000001.extent");
    let find = |i: u64| {
        let text = long(i);
        image[&extent].windows(text.len()).position(|bytes| bytes == text.as_bytes()).unwrap()
    };
    for i in SYNCED..SYNCED + LOGGED {
        let mut image = image.clone();
        image.get_mut(&extent).unwrap()[find(i)..].fill(0); // lost with all that came after it
        let (left, report) = open_and_go_on(&rebooted(&image));
        assert_eq!(left, i, "{report:?}");
        assert_eq!((report.records_lost, report.rows_lost), (SYNCED + LOGGED - i, SYNCED + LOGGED - i));
        let (_, _, reason) = report.cut_at.unwrap();
        assert!(reason.contains("extent 1"), "{reason}");
    }
    let mut torn = image.clone();
    torn.get_mut(&extent).unwrap()[find(SYNCED) + 5] ^= 1;
    assert_eq!(open_and_go_on(&rebooted(&torn)).0, SYNCED, "one byte of the first value");
}

/// What no state stands on any more is not missed: the log goes on to where everything is there.
#[test]
fn a_value_that_is_not_there_is_not_missed_behind_the_record_that_took_it_off() {
    let world = World::new();
    let (store, table) = solver(&world);
    store.sync().unwrap();
    let insert = |i: u64| table.insert(0, &format!("q_0_{i}"), [("prompt", long(i).into())]).unwrap();
    let gone = [insert(7), insert(8)];
    table.delete(&Delete::rows(gone).force()).unwrap();
    insert(0);
    std::mem::forget((store, table));
    world.disk.restart();
    let image = image_of(&world.disk);
    let extent = Path::new(ROOT).join("extents/00000001.extent");
    let lost = |values: &[u64]| {
        let mut image = image.clone();
        for &i in values {
            let (text, bytes) = (long(i), image.get_mut(&extent).unwrap());
            let at = bytes.windows(text.len()).position(|bytes| bytes == text.as_bytes()).unwrap();
            bytes[at] ^= 1;
        }
        let world = rebooted(&image);
        let store = world.open();
        (rows(&store), store.recovery().records_lost)
    };
    for (values, left) in [(&[][..], (1, 0)), (&[7], (1, 0)), (&[7, 8], (1, 0)), (&[7, 0], (0, 1))] {
        assert_eq!(lost(values), left, "rows and records lost, without the values of {values:?}");
    }
}

#[test]
fn the_same_run_of_the_machine_looks_at_no_value_and_cuts_nothing() {
    let (world, durable) = lived();
    let mut image = image_of(&world.disk);
    image.get_mut(&segment(1)).unwrap()[durable + 40] ^= 1;
    let world = World::on(disk_of(&image));
    assert_eq!(world.try_open().unwrap_err().kind(), Kind::Corrupt);
    let after = image_of(&world.disk);
    assert_eq!(after[&segment(1)], image[&segment(1)], "nothing was changed");
}

/// What a power failure does to the bytes of a file.
type Lose = fn(&mut Vec<u8>);

/// Small values of a synced call ride in the log: their extent may be lost, in part or whole, and comes back.
#[test]
fn values_that_records_carry_are_put_back_where_they_are_missing() {
    let world = World::new();
    let store = Store::open(ROOT, world.options().durability(Durability::Synced)).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    for i in 0..5 {
        table.insert(0, &format!("q_0_{i}"), [("prompt", long(i).into())]).unwrap();
    }
    std::mem::forget((store, table));
    let image = image_of(&world.disk);
    let extent = Path::new(ROOT).join("extents/00000001.extent");
    let lose: [(&str, Lose, u64); 4] = [
        ("nothing", |_| (), 0),
        ("every byte but its length", |bytes| bytes.fill(0), 5),
        ("its length", |bytes| bytes.clear(), 5),
        ("one byte of a value", |bytes| bytes[70] ^= 1, 1),
    ];
    for (what, lose, put_back) in lose {
        let mut image = image.clone();
        lose(image.get_mut(&extent).unwrap());
        let world = rebooted(&image);
        let error = Store::open(ROOT, world.options().read_only(true)).err();
        let refused = error.is_some_and(|error| matches!(error.cause(), Cause::NeedsRecovery { .. }));
        assert_eq!(refused, put_back > 0, "{what}");
        let (left, report) = open_and_go_on(&world);
        assert_eq!((left, report.values_put_back, report.records_lost), (5, put_back, 0), "{what}");
    }
    let mut gone = image.clone();
    gone.remove(&extent);
    let (left, report) = open_and_go_on(&rebooted(&gone));
    assert_eq!((left, report.values_put_back), (5, 5), "the file and its name");
}

#[test]
fn small_synced_values_ask_for_one_sync_and_larger_ones_for_two() {
    let world = World::new();
    let probe = Probe::new(&world.disk);
    let options = world.options().durability(Durability::Synced).disk(std::sync::Arc::new(probe.clone()));
    let store = Store::open(ROOT, options.extent_bytes(1 << 16, 1 << 16)).unwrap(); // one that holds all of it
    let table = store.create_table("solver", solver_schema()).unwrap();
    table.insert(0, "a_0_0", [("prompt", "y".repeat(4100).into())]).unwrap();
    for (id, bytes, syncs) in [("b_0_0", 4000, 1), ("c_0_0", 4100, 2), ("d_0_0", 100, 1), ("e_0_0", 3, 1)] {
        probe.take();
        table.insert(0, id, [("prompt", "y".repeat(bytes).into())]).unwrap();
        let asked = probe.take();
        let files = asked.iter().filter(|line| line.starts_with("sync 0")).count();
        assert_eq!(files, syncs, "{bytes}: {asked:?}");
    }
}

#[test]
fn a_commit_whose_object_is_not_there_whole_did_not_happen() {
    for lost in [None, Some(3)] {
        let world = World::new();
        let (store, table, train) = trained(&world, None);
        finished(&table, 0, "q_0_0");
        store.sync().unwrap();
        let weights = store.put_object("solver", 1, b"the weights of the first step").unwrap();
        let step = store.begin_step(StepPlan::new().rows(&train, 1)).unwrap();
        step.next(&train, MicroBatch::of(1), Wait::No).unwrap().unwrap().accumulated().unwrap();
        step.commit([("solver", vec![weights])]).unwrap();
        std::mem::forget((store, table, train, step));
        let mut image = image_of(&world.disk);
        let object = files_with(&image, "safetensors").remove(0);
        match lost {
            Some(length) => image.get_mut(&object).unwrap().truncate(length),
            None => drop(image.remove(&object)),
        }
        let store = rebooted(&image).open();
        assert_eq!(store.policy("solver").unwrap().version, 0);
        assert_eq!(store.recovery().records_lost, 1);
        assert_eq!(store.steps()[0].progress, StepProgress::Abandoned);
        check_counts(&store);
    }
}

/// Objects of older steps are removed once they are replaced; that is no loss, whatever of it was synced.
#[test]
fn objects_that_were_replaced_and_removed_are_not_missed() {
    let world = World::new();
    let (store, table, train) = trained(&world, None);
    for version in 0..5 {
        finished(&table, version, "q_0_0");
        let weights =
            store.put_object("solver", version + 1, format!("weights {version}").as_bytes()).unwrap();
        let step = store.begin_step(StepPlan::new().rows(&train, 1)).unwrap();
        step.next(&train, MicroBatch::of(1), Wait::No).unwrap().unwrap().accumulated().unwrap();
        step.commit([("solver", vec![weights])]).unwrap();
    }
    store.sync().unwrap();
    store.run_once().unwrap();
    std::mem::forget((store, table, train));
    let image = image_of(&world.disk);
    assert!(files_with(&image, "safetensors").len() < 5);
    let store = rebooted(&image).open();
    assert_eq!((store.policy("solver").unwrap().version, store.recovery().records_lost), (5, 0));
    store.object(&store.policy("solver").unwrap().objects[0]).unwrap();
}

#[test]
fn an_extent_that_was_being_made_when_the_machine_went_down_is_no_obstacle() {
    let (world, _) = lived();
    let mut image = image_of(&world.disk);
    image.insert(Path::new(ROOT).join("extents/00000002.extent"), vec![0; 8192]);
    let (left, report) = open_and_go_on(&rebooted(&image));
    assert_eq!((left, report.records_lost), (SYNCED + LOGGED, 0));
}

/// The process that recovers dies at every operation: whoever comes next finds the same.
#[test]
fn recovery_that_dies_half_way_leads_to_the_same() {
    let (world, durable) = lived();
    drop(world.open());
    drop(world.open());
    let mut image = image_of(&world.disk);
    let at = durable + 200; // the next segments lie behind the damage
    image.get_mut(&segment(1)).unwrap()[at] ^= 1;
    let expected = open_and_go_on(&rebooted(&image)).0;
    assert!((SYNCED..SYNCED + LOGGED).contains(&expected));
    let mut deaths = 0;
    loop {
        let world = rebooted(&image);
        world.disk.fail_at(world.disk.operations() + 1 + deaths);
        let opened = world.try_open();
        let died = opened.is_err();
        drop(opened);
        world.disk.restart();
        assert_eq!(open_and_go_on_anew(&world), expected, "death {deaths}");
        if !died {
            break;
        }
        deaths += 1;
    }
    assert!(deaths > 10, "{deaths} deaths");
}

fn open_and_go_on_anew(world: &World) -> u64 {
    let store = world.open();
    let left = rows(&store);
    let store = world.reopen(store);
    assert_eq!(rows(&store), left);
    left
}

/// The header of an extent that was used again is lost, and values of the new generation are not: what records carried for the old
/// one is not put back over them.
#[test]
fn what_an_earlier_generation_carried_is_not_put_back_over_a_later_one() {
    let world = World::new();
    let options = || world.options().extent_bytes(8192, 8192).durability(Durability::Synced);
    let store = Store::open(ROOT, options()).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    let insert = |id: &str, letter: &str, bytes: usize| {
        table.insert(0, id, [("prompt", (&*letter.repeat(bytes)).into())]).unwrap()
    };
    let small: Vec<Row> = (0..4).map(|i| insert(&format!("small_0_{i}"), "s", 300)).collect();
    insert("full_0_0", "f", 7900);
    table.delete(&Delete::rows(small).force()).unwrap();
    insert("proof_0_0", "p", 20);
    store.run_once().unwrap();
    let extent = Path::new(ROOT).join("extents/00000001.extent");
    let header = image_of(&world.disk)[&extent][..64].to_vec();
    insert("again_0_0", "a", 300);
    insert("large_0_0", "l", 5000);
    assert!(store.stats().extents_recycled > 0);
    std::mem::forget((store, table));
    world.disk.restart();
    let mut image = image_of(&world.disk);
    assert_ne!(image[&extent][..64], header);
    image.get_mut(&extent).unwrap()[..64].copy_from_slice(&header);
    let world = rebooted(&image);
    let store = world.open();
    let found = pick(&store, "solver", &["sample_id", "prompt"]);
    let row = |id: &str| found.iter().find(|row| row[0] == id).map(|row| row[1].clone());
    assert_eq!(row("again_0_0"), Some("a".repeat(300)), "it was carried");
    assert_eq!(row("large_0_0"), Some("l".repeat(5000)), "it lies where earlier ones did");
    let report = verify(ROOT, &world.options(), &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
    assert!(report.is_sound(), "{:?}", report.faults);
}

/// A disk that does not take back what records carry ends nothing: the next opening finds all of it.
#[test]
fn a_value_that_cannot_be_put_back_is_an_error_and_cuts_nothing() {
    let world = World::new();
    let (store, table) = solver(&world);
    let mut batch = store.batch();
    batch.durability(Durability::Synced);
    batch.insert(&table, NewRow::new(0, "q_0_0").unwrap(), [("prompt", long(0).into())]).unwrap();
    batch.commit().unwrap();
    std::mem::forget((store, table));
    world.disk.restart();
    let mut image = image_of(&world.disk);
    image.remove(&Path::new(ROOT).join("extents/00000001.extent")).unwrap();
    let world = rebooted(&image);
    let probe = Probe::new(&world.disk);
    probe.fail("create", "extent", std::io::ErrorKind::StorageFull);
    let options = || world.options().disk(std::sync::Arc::new(probe.clone()));
    let error = Store::open(ROOT, options()).unwrap_err();
    assert_eq!(error.kind(), Kind::Capacity, "{error:?}");
    probe.hook(|_, _| Ok(()));
    let store = Store::open(ROOT, options()).unwrap();
    assert_eq!((rows(&store), store.recovery().values_put_back), (1, 1));
}

/// Values of generations whose header was lost may lie in a file: no later generation has the number of one of those, whichever
/// process uses it again first; and what that one begins with is not lost again.
#[test]
fn the_first_generation_of_a_file_that_was_found_is_one_that_no_lost_header_can_have_named() {
    let world = World::new();
    let probe = Probe::new(&world.disk);
    let options = || world.options().extent_bytes(8192, 8192).disk(std::sync::Arc::new(probe.clone()));
    let insert = |store: &Store, id: &str, level| {
        let table = store.table("solver").unwrap();
        let mut batch = store.batch();
        batch.durability(level);
        batch.insert(&table, NewRow::new(0, id).unwrap(), [("prompt", (&*"v".repeat(7000)).into())]).unwrap();
        batch.commit().unwrap()[0]
    };
    let free = |store: &Store, row, proof: &str| {
        let table = store.table("solver").unwrap();
        table.delete(&Delete::rows([row]).force()).unwrap();
        store.sync().unwrap();
        let mut batch = store.batch();
        batch.durability(Durability::Synced);
        batch.insert(&table, NewRow::new(0, proof).unwrap(), [("prompt", "p".into())]).unwrap();
        batch.commit().unwrap();
        store.run_once().unwrap();
    };
    let store = Store::open(ROOT, options()).unwrap();
    store.create_table("solver", solver_schema()).unwrap();
    let gone = insert(&store, "gone_0_0", Durability::Synced);
    insert(&store, "stays_0_0", Durability::Synced);
    std::mem::forget(store);
    world.disk.reboot();
    world.disk.restart();
    drop(Store::open(ROOT, options()).unwrap()); // it finds the file, and leaves it alone
    let store = Store::open(ROOT, options()).unwrap();
    free(&store, gone, "proof_0_0");
    let generation = || store.extents().iter().map(|extent| extent.generation).max().unwrap();
    assert_eq!(generation(), 0);
    probe.take();
    let again = insert(&store, "again_0_0", Durability::Memory);
    assert!(generation() > 1 << 16, "{}", generation());
    assert!(probe.take().contains(&"sync 00000001.extent".to_owned()), "the header is stable");
    let first = generation();
    free(&store, again, "proof_0_1");
    probe.take();
    insert(&store, "more_0_0", Durability::Memory);
    assert_eq!(generation(), first + 1, "one by one while the store is open");
    assert!(probe.take().iter().all(|operation| !operation.starts_with("sync")), "and without a sync");
}

/// The first process died within its first record. The next goes on in a segment of its own, and the machine goes down, which
/// damages what of that record had never been synced: nobody needs it.
#[test]
fn a_record_that_was_torn_before_it_was_acknowledged_may_be_damaged_later() {
    let world = World::new();
    drop(world.open());
    let log = |number: u32| Path::new(ROOT).join(format!("log/{number:08}.log"));
    let mut image = image_of(&world.disk);
    image.get_mut(&log(1)).unwrap().truncate(64 + 32 + 8);
    let world = World::on(disk_of(&image));
    let (store, table) = solver(&world);
    assert_eq!((store.recovery().torn_bytes, store.recovery().checked), (40, false));
    table.insert(0, "q_0_0", [("prompt", long(0).into())]).unwrap();
    std::mem::forget((store, table));
    world.disk.restart();
    world.disk.flip_byte(&log(1), 70);
    world.disk.reboot();
    let store = world.open();
    assert_eq!((rows(&store), store.recovery().checked), (1, true));
    let report = verify(ROOT, &world.options(), &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
    assert!(report.is_sound(), "{:?}", report.faults);
}
