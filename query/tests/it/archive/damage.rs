//! Archives that are damaged, or not there any more: what is told, and what can still be asked.

use std::fs;
use std::path::{Path, PathBuf};

use futures_util::TryStreamExt;
use object_store::{ObjectStore, ObjectStoreExt};

use forebay_query::{Archive, ArchiveRule, Archiver, Kind, Options, Session};
use serde_json::json;

use super::fixture::*;
use super::meddling::{Fails, Meddling};
use crate::fixture::Run;

const ALL: &str = "SELECT * FROM solver";

/// A directory with an archive, and the file of version 2 in it.
fn archived() -> (Run, PathBuf, PathBuf) {
    let run = stepped();
    let (archive, path) = in_directory(&run);
    move_all(&run.store, &archive);
    let file = fs::read_dir(path.join("solver/at_version=2")).unwrap().next().unwrap().unwrap().path();
    (run, path, file)
}

fn opened(run: &Run, path: &Path) -> Session {
    session(&run.store, &Archive::open(path.to_str().unwrap()).unwrap())
}

/// What does not need the damaged part is answered; the store is as it was.
fn others_are_answered(run: &Run, session: &Session) {
    let sql = "SELECT count(reward) AS rewards FROM solver WHERE policy_version = 1";
    assert_eq!(rows(session, sql), [json!({"rewards": 2})]);
    let sql = "SELECT count(reward) AS rewards FROM solver WHERE policy_version = 5";
    assert_eq!(rows(session, sql), [json!({"rewards": 2})]);
    assert_eq!(run.store.closed(), None);
    step(run, STEPS);
}

#[test]
fn a_file_that_is_not_as_it_was_written_is_named() {
    type Damage = fn(&Path);
    let cases: [(&str, Damage); 4] = [
        ("vanished", |file| fs::remove_file(file).unwrap()),
        ("bytes, and", |file| fs::write(file, &fs::read(file).unwrap()[..1000]).unwrap()),
        ("bytes, and", |file| fs::write(file, b"").unwrap()),
        ("checksum", |file| {
            let mut bytes = fs::read(file).unwrap();
            bytes[100..200].fill(0);
            fs::write(file, bytes).unwrap();
        }),
    ];
    for (expected, damage) in cases {
        let (run, path, file) = archived();
        let warm = opened(&run, &path);
        warm.sql_blocking(ALL).unwrap();
        damage(&file);
        for session in [warm, opened(&run, &path)] {
            let message = error(&session, ALL, Kind::Archive);
            let name = file.file_name().unwrap().to_str().unwrap();
            assert!(message.contains(expected) && message.contains(name), "{message}");
            assert!(message.contains("_commits/solver/2.1.json"), "the way out: {message}");
            assert!(message.contains(path.to_str().unwrap()), "{message}");
            // Where several hold the error it is still the archive's.
            error(
                &session,
                "SELECT count(b.reward) FROM solver a JOIN solver b USING (sample_id)",
                Kind::Archive,
            );
        }
        others_are_answered(&run, &opened(&run, &path));
    }
}

/// Whichever byte has changed: the answer is an error that names the file, or does not depend on the byte.
#[test]
fn a_changed_byte_never_changes_an_answer() {
    let (run, path, file) = archived();
    let sound = fs::read(&file).unwrap();
    for at in (0..sound.len()).step_by(sound.len() / 40) {
        let mut damaged = sound.clone();
        damaged[at] ^= 0x10;
        fs::write(&file, damaged).unwrap();
        let message = error(&opened(&run, &path), ALL, Kind::Archive);
        assert!(message.contains("checksum") && message.contains("at_version=2"), "byte {at}: {message}");
    }
    fs::write(&file, sound).unwrap();
    assert_eq!(rows(&opened(&run, &path), ALL).len() as u64, 4 * STEPS);
}

#[test]
fn a_manifest_that_is_not_as_it_was_written_is_named() {
    let (run, path, _) = archived();
    let manifest = path.join("_commits/solver/2.1.json");
    let sound = fs::read(&manifest).unwrap();
    for damaged in [&sound[..sound.len() / 2], b"", b"{}\ncrc32c 00000000\n"] {
        fs::write(&manifest, damaged).unwrap();
        let session = opened(&run, &path);
        let message = error(&session, ALL, Kind::Archive);
        assert!(message.contains("_commits/solver/2.1.json is corrupt"), "{message}");
        assert_eq!(rows(&session, "SELECT count(*) AS rows FROM checker"), [json!({"rows": 0})]);
    }
    fs::remove_file(&manifest).unwrap();
    let rows = rows(&opened(&run, &path), ALL);
    assert_eq!(rows.len() as u64, 4 * (STEPS - 1), "the way out that the message names");
}

#[test]
fn a_damaged_manifest_costs_only_queries_that_may_need_a_row_of_its_version() {
    let (run, path, _) = archived();
    fs::write(path.join("_commits/solver/2.1.json"), b"").unwrap();
    let archive = Archive::open(path.to_str().unwrap()).unwrap();
    let alone = Session::of_archive(&archive, &Options::default()).unwrap();
    for session in [opened(&run, &path), alone] {
        let sql = "SELECT count(reward) AS rewards FROM solver WHERE policy_version < 2";
        assert_eq!(rows(&session, sql), [json!({"rewards": 4})]);
        for sql in [
            ALL,
            "SELECT count(*) FROM solver",
            "SELECT sample_id FROM solver WHERE policy_version = 2",
            "SELECT sample_id FROM solver WHERE reward > 100",
        ] {
            let message = error(&session, sql, Kind::Archive);
            assert!(message.contains("_commits/solver/2.1.json is corrupt"), "{sql}: {message}");
        }
    }
}

#[test]
fn a_filter_without_an_answer_for_a_version_costs_only_queries_that_may_need_a_row_of_it() {
    let (run, path, _) = archived();
    let session = opened(&run, &path);
    let asked = |versions: &str| {
        format!(
            "SELECT count(*) AS n FROM solver WHERE 6 / (policy_version - 2) < 9 AND policy_version {versions}"
        )
    };
    assert_eq!(rows(&session, &asked("IN (3, 4)")), [json!({"n": 8})]);
    let message = error(&session, &asked("IN (2, 3)"), Kind::Input);
    assert!(message.to_lowercase().contains("divide by zero"), "{message}");
}

#[test]
fn an_archive_that_is_not_there_is_told() {
    let (run, path, _) = archived();
    let warm = opened(&run, &path);
    warm.sql_blocking(ALL).unwrap();
    fs::rename(&path, path.with_extension("elsewhere")).unwrap();
    for session in [&warm, &opened(&run, &path)] {
        let message = error(session, ALL, Kind::Archive);
        assert!(message.contains("there is no archive") && message.contains("forebay archive"), "{message}");
    }
    assert_eq!(run.rows("SELECT count(*) AS rows FROM solver"), [json!({"rows": 4 * (STEPS - OVER)})]);
    fs::rename(path.with_extension("elsewhere"), &path).unwrap();
    assert_eq!(rows(&warm, ALL).len() as u64, 4 * STEPS);
}

#[test]
fn a_marker_of_another_kind_is_told() {
    let (run, path, _) = archived();
    let marker = path.join("forebay-archive.json");
    let cases = [
        (&b"no json"[..], "is corrupt"),
        (br#"{"format": 99, "store": "00"}"#, "format 99"),
        (br#"{"format": 1, "store": "00"}"#, "archive of store 00"),
    ];
    for (text, expected) in cases {
        fs::write(&marker, text).unwrap();
        let message = error(&opened(&run, &path), ALL, Kind::Archive);
        assert!(message.contains(expected), "{message}");
    }
}

/// An archive that cannot take a version leaves it in the store, and takes it when it can.
#[test]
fn rows_that_cannot_be_archived_stay_in_the_store() {
    let run = stepped();
    let (archive, path) = in_directory(&run);
    let archiver = Archiver::new(&run.store, &archive, ArchiveRule::keep_versions(1)).unwrap();
    let due = archiver.due().unwrap().remove(0);
    let before = live_rows(&run.store, "solver");
    fs::write(path.join("solver"), b"a file where the folder should be").unwrap();
    let error = archiver.move_version(&due).unwrap_err();
    assert_eq!(error.kind(), Kind::Archive, "{error}");
    assert_eq!(live_rows(&run.store, "solver"), before);
    fs::remove_file(path.join("solver")).unwrap();
    assert_eq!(archiver.move_version(&due).unwrap().rows, due.rows);
}

/// A manifest that is there already, with files that do not give its rows back: nothing is deleted from the store.
#[test]
fn rows_that_do_not_come_back_stay_in_the_store() {
    let run = stepped();
    let (archive, objects) = in_memory();
    let (store, meddled) = (run.store.clone(), objects.clone());
    let stop = Meddling::failing(objects.clone(), 5, Fails::Before); // after the first manifest
    let archiver = Archiver::new(&store, &over(stop), ArchiveRule::keep_versions(1)).unwrap();
    archiver.run_once().unwrap_err();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let listed: Vec<_> = meddled.list(None).try_collect().await.unwrap();
        let file = listed.iter().find(|object| object.location.as_ref().ends_with(".parquet")).unwrap();
        meddled.delete(&file.location).await.unwrap();
    });
    let before = live_rows(&store, "solver");
    let again = Archiver::new(&store, &archive, ArchiveRule::keep_versions(1)).unwrap();
    let error = again.run_once().unwrap_err();
    assert!(error.to_string().contains("vanished"), "{error}");
    assert_eq!(live_rows(&store, "solver"), before);
    assert_eq!(rows(&session(&store, &archive), ALL).len(), before, "and queries read them there");
}
