//! Repairs and backups: what is left is a sound store, and what was given up is said.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_store::*;
use proptest::prelude::*;

use crate::hostile::victim;
use crate::support::*;

pub(crate) const COPY: &str = "/copy";

fn log() -> PathBuf {
    Path::new(ROOT).join("log/00000001.log")
}

fn extent() -> PathBuf {
    Path::new(ROOT).join("extents/00000001.extent")
}

fn find(image: &Image, path: &Path, text: &[u8]) -> usize {
    image[path].windows(text.len()).position(|window| window == text).unwrap()
}

fn open_copy(world: &World) -> Store {
    Store::open(COPY, world.options()).unwrap()
}

/// Repairs an image and looks at the copy in every way that there is.
pub(crate) fn mend(image: &Image) -> (RepairReport, World) {
    let world = World::on(disk_of(image));
    let trial = repair(ROOT, None, &world.options()).unwrap();
    let report = repair(ROOT, Some(Path::new(COPY)), &world.options()).unwrap();
    let verified = report.verified.as_ref().unwrap();
    assert!(verified.is_sound(), "{:?}\n{:?}", verified.faults, report.losses);
    assert_eq!(verified.checked.torn_bytes, 0);
    let plan = RepairReport { to: None, verified: None, ..report.clone() };
    assert_eq!(trial, plan, "a trial says what the repair does");
    let store = open_copy(&world);
    scan(&store);
    check_counts(&store);
    drop(store);
    (report, world)
}

#[test]
fn the_repair_of_a_sound_store_gives_up_nothing() {
    let image = victim();
    let (report, world) = mend(&image);
    assert!(report.is_whole(), "{:?}", report.losses);
    let before = scan(&World::on(disk_of(&image)).open());
    assert_eq!(scan(&open_copy(&world)), before);
    for (path, bytes) in &image {
        let name = path.file_name().unwrap();
        assert!(name == "LOCK" || image_of(&world.disk)[path] == *bytes, "{} was changed", path.display());
    }
}

#[test]
fn a_damaged_value_costs_its_cell_and_leaves_its_row_out() {
    // The first value of the extent belongs to a row that a step has trained on; the last one, a fragment, to one that is
    // open.
    let image = victim();
    let fragments = Path::new(ROOT).join("extents/00000002.extent");
    let last = image[&fragments].windows(4).rposition(|bytes| bytes == 7_i32.to_le_bytes()).unwrap();
    for (file, place, excluded) in [(extent(), 64, 0), (fragments, last, 1)] {
        let mut image = image.clone();
        image.get_mut(&file).unwrap()[place] ^= 0x5A;
        let (report, world) = mend(&image);
        assert_eq!((report.cells_emptied, report.rows_excluded, report.rows_lost), (1, excluded, 0));
        assert!(report.losses[0].contains("response"), "{:?}", report.losses);
        let store = open_copy(&world);
        let reasons = pick(&store, "solver", &["excluded_reason"]);
        let damaged = reasons.iter().filter(|row| row[0].contains("damaged")).count() as u64;
        assert_eq!(damaged, excluded);
    }
}

#[test]
fn a_missing_extent_costs_its_values_and_no_row() {
    let mut image = victim();
    image.remove(&extent());
    let rows = scan(&World::on(disk_of(&victim())).open())["solver"].len();
    let (report, world) = mend(&image);
    assert_eq!((report.cells_emptied, report.rows_lost, report.records_given_up), (12, 0, 0));
    assert_eq!(scan(&open_copy(&world))["solver"].len(), rows);
}

#[test]
fn a_damaged_extent_header_costs_nothing() {
    let mut image = victim();
    image.get_mut(&extent()).unwrap()[3] ^= 1;
    let (report, world) = mend(&image);
    assert!(report.is_whole(), "{:?}", report.losses);
    assert_eq!(scan(&open_copy(&world)), scan(&World::on(disk_of(&victim())).open()));
}

#[test]
fn a_damaged_header_of_the_log_costs_no_record() {
    for at in [0, 20, 60] {
        let mut image = victim();
        image.get_mut(&log()).unwrap()[at] ^= 1;
        let (report, world) = mend(&image);
        assert_eq!(
            (report.records_missing, report.records_given_up, report.rows_lost),
            (0, 0, 0),
            "{at}: {:?}",
            report.losses
        );
        assert_eq!(scan(&open_copy(&world)), scan(&World::on(disk_of(&victim())).open()), "{at}");
    }
}

#[test]
fn a_lost_row_leaves_its_number_and_the_rows_behind_it_stay() {
    let mut image = victim();
    let place = find(&image, &log(), b"gone");
    image.get_mut(&log()).unwrap()[place] ^= 1;
    let (report, world) = mend(&image);
    assert_eq!((report.records_unreadable, report.records_missing, report.rows_lost), (1, 1, 1));
    let store = open_copy(&world);
    let rows = pick(&store, "solver", &["sample_id", "excluded_reason"]);
    assert_eq!(rows.len(), 7);
    assert!(rows.iter().any(|row| row[0].contains("damaged_0_4") && row[1].contains("damaged")), "{rows:?}");
    assert!(rows.iter().any(|row| row[0].contains("q0_0_0")), "{rows:?}");
    assert_eq!(store.policy("solver").unwrap().version, 1, "the step behind the damage stands");
}

#[test]
fn a_declaration_behind_missing_records_ends_the_log() {
    let world = World::new();
    let (store, table) = solver(&world);
    finished(&table, 0, "lost_0_0");
    finished(&table, 0, "kept_0_0");
    let other = store.create_table("other", solver_schema()).unwrap();
    finished(&other, 0, "q_0_0");
    drop((store, table, other));
    let mut image = image_of(&world.disk);
    let place = find(&image, &log(), b"lost_0_0".split_at(4).0);
    image.get_mut(&log()).unwrap()[place] ^= 1;
    let (report, world) = mend(&image);
    assert_eq!(open_copy(&world).tables(), ["solver"]);
    assert!(report.losses.iter().any(|loss| loss.contains("the log ends here")), "{:?}", report.losses);
    assert_eq!(report.rows_lost, 1);
}

#[test]
fn an_object_that_is_gone_is_named_no_more() {
    let mut image = victim();
    let object = Path::new(ROOT).join("objects/solver/00000000000000000001.safetensors");
    image.get_mut(&object).unwrap()[0] ^= 1;
    let (report, world) = mend(&image);
    assert_eq!(report.objects_lost, 1);
    let policy = open_copy(&world).policy("solver").unwrap();
    assert_eq!((policy.version, policy.objects), (1, vec![]));
}

#[test]
fn a_repair_is_refused_beside_a_writer_and_onto_files() {
    let world = World::new();
    let (store, _) = solver(&world);
    let error = repair(ROOT, Some(Path::new(COPY)), &world.options()).unwrap_err();
    assert!(matches!(error.cause(), Cause::Locked { .. }), "{error}");
    drop(store);
    for taken in [ROOT, "/taken"] {
        world.disk.create_directory(Path::new("/taken")).unwrap();
        _ = world.disk.create(Path::new("/taken/a file"));
        let error = repair(ROOT, Some(Path::new(taken)), &world.options()).unwrap_err();
        assert!(matches!(error.cause(), Cause::DirectoryTaken { .. }), "{error}");
    }
}

/// A store that goes on from a checkpoint; the log before it is gone.
fn checkpointed() -> Image {
    let world = World { segment_bytes: 512, ..World::on(disk_of(&victim())) };
    let store = world.open();
    let table = store.table("solver").unwrap();
    for i in 0..10 {
        let row = finished(&table, 1, &format!("late{i}_0_0"));
        table.write(row, [("response", vec![i; 30].into())]).unwrap();
    }
    store.checkpoint().unwrap();
    finished(&table, 1, "last_0_0");
    drop((store, table));
    let image = image_of(&world.disk);
    assert!(!image.contains_key(&log()));
    image
}

#[test]
fn a_damaged_value_of_a_checkpoint_is_emptied_too() {
    let (_, world) = mend(&checkpointed());
    let whole = scan(&open_copy(&world));
    let mut image = checkpointed();
    image.get_mut(&extent()).unwrap()[64] ^= 0x5A;
    let (report, world) = mend(&image);
    assert_eq!((report.cells_emptied, report.rows_lost, report.records_given_up), (1, 0, 0));
    let copy = scan(&open_copy(&world));
    assert_eq!(copy["solver"].len(), whole["solver"].len());
    assert_ne!(copy, whole);
}

#[test]
fn a_damaged_checkpoint_without_the_log_before_it_is_an_error() {
    let mut image = checkpointed();
    image.get_mut(&Path::new(ROOT).join("MANIFEST")).unwrap()[70] ^= 1;
    let world = World::on(disk_of(&image));
    match repair(ROOT, Some(Path::new(COPY)), &world.options()) {
        Ok(report) => panic!("{:?}", report.losses),
        Err(error) => assert_eq!(error.kind(), Kind::Corrupt, "{error}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_damaged_the_copy_is_sound(
        damages in prop::collection::vec((0..8_usize, any::<usize>(), 1..=255_u8, any::<bool>()), 1..5),
    ) {
        let mut image = victim();
        let files: Vec<PathBuf> = image.keys().filter(|path| !path.ends_with("LOCK")).cloned().collect();
        for (file, at, value, cut) in damages {
            let bytes = image.get_mut(&files[file % files.len()]).unwrap();
            let at = at % bytes.len().max(1);
            match cut && file != 0 {
                true => bytes.truncate(at),
                false => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= value),
            }
        }
        let world = World::on(disk_of(&image));
        match repair(ROOT, Some(Path::new(COPY)), &world.options()) {
            Ok(report) => {
                let verified = report.verified.as_ref().unwrap();
                prop_assert!(verified.is_sound(), "{:?}", verified.faults);
                check_counts(&open_copy(&world));
            }
            // Identity and the only segment's header are both gone.
            Err(error) => prop_assert_eq!(error.kind(), Kind::Corrupt, "{}", error),
        }
    }
}

#[test]
fn a_backup_is_the_store_as_it_was_at_one_moment() {
    let image = victim();
    let world = World::on(disk_of(&image));
    let store = Store::open(ROOT, world.options().read_only(true)).unwrap();
    let before = scan(&store);
    let report = store.backup(COPY).unwrap();
    assert_eq!((report.extents, report.objects, report.segments), (2, 1, 1));
    assert_eq!(report.records, store.snapshot().commit());
    let verified = verify(COPY, &world.options(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(verified.is_sound(), "{:?}", verified.faults);
    let copy = Store::open(COPY, world.options().read_only(true)).unwrap();
    assert_eq!(scan(&copy), before);
    assert!(matches!(store.backup(COPY).unwrap_err().cause(), Cause::DirectoryTaken { .. }));
}

#[test]
fn others_go_on_writing_while_a_backup_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let store = Store::open(&path, Options::default()).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    let (stop, begun) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0..100_000 {
                let row = finished(&table, 0, &format!("q{i}_0_0"));
                table.write(row, [("response", vec![i; 200].into())]).unwrap();
                begun.store(i > 50, Ordering::Relaxed);
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        while !begun.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        for number in 0..4 {
            if number > 1 {
                store.checkpoint().unwrap();
            }
            let to = folder.path().join(format!("copy-{number}"));
            let before = store.snapshot().commit();
            let report = store.backup(&to).unwrap();
            assert!(report.records >= before && report.records <= store.snapshot().commit());
            let verified = verify(&to, &Options::default(), &mut |_| ControlFlow::Continue(())).unwrap();
            assert!(verified.is_sound(), "{:?}", verified.faults);
            assert_eq!(verified.next_sequence, report.records);
            // A store of its own: it can be written.
            let copy = Store::open(&to, Options::default()).unwrap();
            finished(&copy.table("solver").unwrap(), 0, "copy_0_0");
        }
        stop.store(true, Ordering::Relaxed);
    });
}
