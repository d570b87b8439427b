//! The full check: a sound store is sound, and whatever is changed in one is found, with its file and place.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use forebay_store::*;

use crate::hostile::victim;
use crate::support::*;

fn check(image: &Image) -> VerifyReport {
    let world = World::on(disk_of(image));
    verify(ROOT, &world.options(), &mut |_| ControlFlow::Continue(())).unwrap()
}

fn at(folder: &str, name: &str) -> PathBuf {
    Path::new(ROOT).join(folder).join(name)
}

/// Where a text lies in a file.
fn find(image: &Image, path: &Path, text: &[u8]) -> usize {
    image[path].windows(text.len()).position(|window| window == text).unwrap()
}

#[test]
fn a_sound_store_is_sound_and_the_report_says_what_was_looked_at() {
    let image = victim();
    let mut stages = Vec::new();
    let world = World::on(disk_of(&image));
    let report = verify(ROOT, &world.options(), &mut |progress| {
        assert!(progress.done_bytes <= progress.total_bytes, "{progress:?}");
        stages.push(progress.stage);
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(report.faults, []);
    assert!(report.is_sound() && report.fault_count() == 0);
    let checked = &report.checked;
    let logs = files_with(&image, "log");
    assert_eq!(checked.log_bytes, logs.iter().map(|path| image[path].len() as u64).sum::<u64>());
    // Values, and fragments, which die sooner.
    assert_eq!((checked.segments, checked.extents), (logs.len() as u64, 2));
    assert_eq!((checked.tables, checked.rows, checked.policies, checked.consumers), (1, 7, 1, 2));
    // Four responses and images, four blobs, the fragment of a partial cell; short prompts lie in their views.
    assert_eq!((checked.values, checked.objects, checked.object_bytes), (13, 1, 7));
    assert_eq!(report.next_sequence, checked.records);
    stages.dedup();
    assert_eq!(stages, [VerifyStage::Log, VerifyStage::Values, VerifyStage::Objects]);
}

/// The victim with a checkpoint, and objects beside those that steps name.
fn with_everything() -> World {
    let world = World::on(disk_of(&victim()));
    let store = world.open();
    store.checkpoint().unwrap();
    let table = store.table("solver").unwrap();
    table.insert(9, "late_0_0", [("prompt", "long ".repeat(100).as_str().into())]).unwrap();
    store.put_object("beside", 1, b"bytes").unwrap();
    drop(store);
    world
}

#[test]
fn a_check_ends_where_it_is_stopped_in_every_stage() {
    let world = with_everything();
    let (mut stopped_in, mut asked) = (Vec::new(), 0);
    loop {
        let mut calls = 0;
        let outcome = verify(ROOT, &world.options(), &mut |progress| {
            calls += 1;
            assert!(calls <= asked + 1, "it was told to stop at {asked}");
            if calls <= asked {
                return ControlFlow::Continue(());
            }
            stopped_in.push(progress.stage);
            ControlFlow::Break(())
        });
        match outcome {
            Ok(report) => break assert!(report.is_sound() && calls == asked, "{report:?}"),
            Err(error) => {
                assert!(matches!(error.cause(), Cause::Stopped { .. }), "{error}");
                assert_eq!(error.kind(), Kind::Retry);
            }
        }
        asked += 1;
    }
    stopped_in.dedup();
    let stages = [VerifyStage::Checkpoint, VerifyStage::Log, VerifyStage::Values, VerifyStage::Objects];
    assert_eq!(stopped_in, stages);
}

#[test]
fn a_copy_that_is_stopped_anywhere_is_no_store() {
    let world = with_everything();
    let store = world.open();
    let mut asked = 0;
    let whole = loop {
        let to = PathBuf::from(format!("/copy-{asked}"));
        let mut left = asked;
        let outcome = store.backup_watched(&to, BackupOptions::default(), &mut |progress| {
            assert!(progress.done_bytes <= progress.total_bytes, "{progress:?}");
            left -= 1;
            if left < 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        match outcome {
            Ok(report) => break report,
            Err(error) => assert!(matches!(error.cause(), Cause::Stopped { .. }), "{error}"),
        }
        assert!(
            Store::open(&to, world.options().create(false)).is_err(),
            "a part of a copy is taken for a store"
        );
        asked += 1;
    };
    let report = verify(&whole.to, &world.options(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(report.is_sound() && asked > 3, "{asked} pieces, {:?}", report.faults);
}

#[test]
fn a_copy_in_the_making_is_touched_by_no_other() {
    let world = with_everything();
    let store = world.open();
    let to = PathBuf::from("/copy");
    let mut others = 0;
    let report = store.backup_watched(&to, BackupOptions::default(), &mut |_| {
        let refused = store.backup(&to).unwrap_err();
        assert!(matches!(refused.cause(), Cause::DirectoryTaken { .. }), "{refused}");
        others += 1;
        ControlFlow::Continue(())
    });
    let copied = verify(&report.unwrap().to, &world.options(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(copied.is_sound() && others > 3, "{others} others, {:?}", copied.faults);
}

#[test]
fn a_check_changes_nothing_but_its_slot() {
    let image = victim();
    let disk = disk_of(&image);
    verify(ROOT, &World::on(disk.clone()).options(), &mut |_| ControlFlow::Continue(())).unwrap();
    let mut after = image_of(&disk);
    assert!(after.remove(&at("readers", "00000001.slot")).is_some());
    assert!(after == image);
}

/// Every byte of every file is changed in turn. What no check can see is listed: the lock's text, and in extents what no
/// row names, which is zeros all of it in this store.
#[test]
fn every_changed_byte_is_found_or_belongs_to_nothing() {
    let image = victim();
    let mut unseen: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (path, bytes) in &image {
        if path.ends_with("LOCK") {
            continue;
        }
        for (offset, &byte) in bytes.iter().enumerate() {
            let mut image = image.clone();
            image.get_mut(path).unwrap()[offset] ^= 0x5A;
            let report = check(&image);
            if report.is_sound() {
                let extension = path.extension().map_or("", |e| e.to_str().unwrap()).to_owned();
                unseen.entry(extension).or_default().push(offset);
                assert_eq!(byte, 0, "{} at {offset} is not seen", path.display());
            } else {
                let named = report.faults.iter().any(|fault| fault.path == *path);
                assert!(named, "{} at {offset}: {:?}", path.display(), report.faults);
            }
        }
    }
    let folders: Vec<&str> = unseen.keys().map(String::as_str).collect();
    assert_eq!(folders, ["extent"], "only extents hold bytes that belong to nothing");
}

#[test]
fn every_kind_of_damage_is_told_with_its_file_and_place() {
    type Damage = fn(&mut Image);
    let log = || at("log", "00000001.log");
    let extent = || at("extents", "00000001.extent");
    let object = || at("objects/solver", "00000000000000000001.safetensors");
    let cases: [(&str, Damage, FaultKind, PathBuf, &str); 9] = [
        (
            "identity",
            |image| image.get_mut(&at("", "FOREBAY")).unwrap()[20] ^= 1,
            FaultKind::Identity,
            at("", "FOREBAY"),
            "checksum",
        ),
        (
            "no identity",
            |image| drop(image.remove(&at("", "FOREBAY"))),
            FaultKind::Identity,
            at("", "FOREBAY"),
            "could not read",
        ),
        (
            "segment header",
            |image| image.get_mut(&at("log", "00000001.log")).unwrap()[30] ^= 1,
            FaultKind::Segment,
            log(),
            "header",
        ),
        (
            "missing segment",
            |image| {
                let bytes = image[&at("log", "00000001.log")].clone();
                image.insert(at("log", "00000003.log"), bytes);
            },
            FaultKind::Segment,
            at("log", "00000003.log"),
            "segment 2 is missing",
        ),
        (
            "record",
            |image| {
                let place = find(image, &at("log", "00000001.log"), b"gone");
                image.get_mut(&at("log", "00000001.log")).unwrap()[place] ^= 1;
            },
            FaultKind::Record,
            log(),
            "checksum",
        ),
        (
            "missing extent",
            |image| drop(image.remove(&at("extents", "00000001.extent"))),
            FaultKind::Extent,
            extent(),
            "cannot be read",
        ),
        (
            "cut extent",
            |image| image.get_mut(&at("extents", "00000001.extent")).unwrap().truncate(200),
            FaultKind::Value,
            extent(),
            "outside the file of 200 bytes",
        ),
        (
            "missing object",
            |image| drop(image.remove(&at("objects/solver", "00000000000000000001.safetensors"))),
            FaultKind::Object,
            object(),
            "cannot be read",
        ),
        (
            "longer object",
            |image| {
                image.get_mut(&at("objects/solver", "00000000000000000001.safetensors")).unwrap().push(0);
            },
            FaultKind::Object,
            object(),
            "8 bytes lie where 7",
        ),
    ];
    for (name, damage, kind, path, reason) in cases {
        let mut image = victim();
        damage(&mut image);
        let report = check(&image);
        let found = report
            .faults
            .iter()
            .any(|fault| fault.kind == kind && fault.path == path && fault.reason.contains(reason));
        assert!(found, "{name}: {:?}", report.faults);
    }
}

#[test]
fn one_look_tells_all_that_is_wrong() {
    let mut image = victim();
    let log = at("log", "00000001.log");
    for text in [&b"gone"[..], &b"half a row"[..]] {
        let place = find(&image, &log, text);
        image.get_mut(&log).unwrap()[place] ^= 1;
    }
    image.get_mut(&at("extents", "00000001.extent")).unwrap()[64] ^= 1;
    image.get_mut(&at("", "FOREBAY")).unwrap()[63] ^= 1;
    let report = check(&image);
    let kinds: Vec<FaultKind> = report.faults.iter().map(|fault| fault.kind).collect();
    assert_eq!(
        kinds,
        [FaultKind::Identity, FaultKind::Record, FaultKind::Record, FaultKind::Value],
        "{:?}",
        report.faults
    );
    assert!(report.faults[1].offset < report.faults[2].offset);
    assert!(report.next_sequence > 0, "the log is followed up to the first damage");
}

#[test]
fn a_torn_append_is_no_fault_and_a_lost_record_in_the_middle_is() {
    let mut image = victim();
    let log = at("log", "00000001.log");
    let whole = check(&image);
    let length = image[&log].len();
    image.get_mut(&log).unwrap().truncate(length - 3);
    let torn = check(&image);
    assert!(torn.is_sound(), "{:?}", torn.faults);
    assert!(torn.checked.torn_bytes > 0);
    assert_eq!(torn.next_sequence, whole.next_sequence - 1);

    // The next process went on without the torn record, and lost nothing that was acknowledged.
    let world = World::on(disk_of(&image));
    drop(world.open());
    let mut image = image_of(&world.disk);
    assert!(check(&image).is_sound());
    let second = at("log", "00000002.log");
    assert!(image.contains_key(&second));
    // But a record that it went on from and that is gone is seen.
    image.get_mut(&log).unwrap().truncate(length - 200);
    let report = check(&image);
    assert_eq!(report.faults[0].path, second);
    assert!(report.faults[0].reason.contains("where"), "{:?}", report.faults);
}

#[test]
fn files_that_nothing_names_are_told_and_no_fault() {
    let mut image = victim();
    let orphans = [
        at("extents", "00000009.extent"),
        at("objects/solver", "00000000000000000009.safetensors"),
        at("objects/solver", "00000000000000000009.tmp"),
    ];
    image.insert(orphans[0].clone(), vec![]);
    image.insert(orphans[1].clone(), b"not committed".to_vec());
    image.insert(orphans[2].clone(), b"not even whole".to_vec());
    let report = check(&image);
    assert!(report.is_sound(), "{:?}", report.faults);
    assert_eq!(report.orphans, orphans);
}

#[test]
fn what_is_no_store_is_refused() {
    let error =
        verify("/elsewhere", &World::new().options(), &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert!(matches!(error.cause(), Cause::NotAStore { .. }), "{error}");
}

#[test]
fn a_ruined_store_does_not_fill_the_memory() {
    let world = World::new();
    let (store, table) = solver(&world);
    for i in 0..1500 {
        table.insert(0, &format!("q{i}_0_0"), [("prompt", "a text that lies in an extent".into())]).unwrap();
    }
    drop((store, table));
    let mut image = image_of(&world.disk);
    for path in files_with(&image, "extent") {
        image.remove(&path);
    }
    let report = check(&image);
    assert_eq!((report.faults.len(), report.fault_count()), (1000, 1500));
}

/// A store with a checkpoint in the middle of its life, whose log no longer goes back to the first record.
fn checkpointed() -> Image {
    let world = World { segment_bytes: 512, ..World::on(disk_of(&victim())) };
    let store = world.open();
    let table = store.table("solver").unwrap();
    for i in 0..20 {
        let row = finished(&table, 1, &format!("late{i}_0_0"));
        table.write(row, [("response", vec![i; 30].into())]).unwrap();
    }
    store.checkpoint().unwrap();
    for i in 20..25 {
        finished(&table, 1, &format!("late{i}_0_0"));
    }
    drop((store, table));
    image_of(&world.disk)
}

#[test]
fn a_checkpoint_is_checked_page_by_page() {
    let image = checkpointed();
    assert!(!image.contains_key(&at("log", "00000001.log")), "the log begins where the checkpoint ends");
    let report = check(&image);
    assert!(report.is_sound(), "{:?}", report.faults);
    assert!(report.checked.pages >= 10 && report.checked.page_bytes > 1000, "{:?}", report.checked);
    assert_eq!(report.checked.rows, 32);
    let files: Vec<&PathBuf> =
        image.keys().filter(|path| path.ends_with("MANIFEST") || path.starts_with(at("", "pages"))).collect();
    assert_eq!(files.len(), 2);
    for path in files {
        for offset in 0..image[path].len() {
            let mut image = image.clone();
            image.get_mut(path).unwrap()[offset] ^= 0x5A;
            let report = check(&image);
            let seen = report.faults.iter().any(|f| f.kind == FaultKind::Checkpoint && f.path == *path);
            assert!(seen, "{} at {offset}: {:?}", path.display(), report.faults.first());
        }
    }
}

#[test]
fn what_a_checkpoint_needs_of_the_log_must_be_there() {
    let mut image = checkpointed();
    for path in files_with(&image, "log") {
        image.remove(&path);
    }
    let report = check(&image);
    assert!(report.faults[0].reason.contains("up to which a checkpoint covers it"), "{:?}", report.faults);
}
