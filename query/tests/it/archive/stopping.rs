//! An archiver that is stopped, at every step in turn.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use forebay_query::{ArchiveRule, Archiver};
use futures_util::TryStreamExt;
use object_store::ObjectStore;
use object_store::memory::InMemory;

use super::fixture::*;
use super::meddling::{Fails, Meddling};

/// Moves all that is due, until something fails.
fn move_until_stopped(store: &forebay_store::Store, objects: Arc<Meddling>) -> forebay_query::Result<()> {
    let archiver = Archiver::new(store, &over(objects), ArchiveRule::keep_versions(1))?;
    while archiver.run_once()?.is_some() {}
    Ok(())
}

fn files(objects: &Arc<InMemory>) -> BTreeSet<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let listed: Vec<_> = runtime.block_on(objects.list(None).try_collect()).unwrap();
    listed
        .into_iter()
        .map(|object| object.location.to_string())
        .filter(|path| path.ends_with(".parquet"))
        .collect()
}

/// Whatever operation the process is killed at, before or after it took effect: queries see every row once, and the next
/// run brings it to an end and leaves nothing behind.
#[test]
fn nothing_is_lost_and_nothing_comes_twice() {
    let whole = stepped();
    let counting = Meddling::looked_at(Arc::default(), |_| {});
    move_until_stopped(&whole.store, counting.clone()).unwrap();
    let operations = counting.operations();
    assert!(operations > 4 * OVER as usize, "{operations} operations");
    // Every version goes through the same steps: the first two stand for the others.
    for at in 0..=operations * 2 / OVER as usize {
        for fails in [Fails::Before, Fails::After] {
            let run = stepped();
            let all = rows(&run.session, EVERYTHING);
            let objects: Arc<InMemory> = Arc::default();
            let stopped = move_until_stopped(&run.store, Meddling::failing(objects.clone(), at, fails));
            assert!(stopped.is_err(), "stopped at {at} {fails:?}");
            let archive = over(objects.clone());
            if files(&objects).len() > 1 {
                let both = session(&run.store, &archive);
                assert_eq!(rows(&both, EVERYTHING), all, "stopped at {at} {fails:?}");
            }
            move_all(&run.store, &archive);
            assert_eq!(
                live_rows(&run.store, "solver"),
                4 * (STEPS - OVER) as usize,
                "stopped at {at} {fails:?}"
            );
            assert_eq!(rows(&session(&run.store, &archive), EVERYTHING), all, "stopped at {at} {fails:?}");
            let archiver = Archiver::new(&run.store, &archive, ArchiveRule::keep_versions(1)).unwrap();
            assert_eq!(archiver.clean(Duration::from_secs(3600)).unwrap().files, 0, "young files stay");
            archiver.clean(Duration::ZERO).unwrap();
            assert_eq!(files(&objects).len(), OVER as usize, "stopped at {at} {fails:?}: one file a version");
            assert_eq!(rows(&session(&run.store, &archive), EVERYTHING), all, "stopped at {at} {fails:?}");
        }
    }
}

/// A file that is cut short in a directory keeps the name under which it was being written.
#[test]
fn what_a_killed_process_was_writing_into_a_directory_is_removed() {
    let run = stepped();
    let (archive, path) = in_directory(&run);
    move_all(&run.store, &archive);
    let staged = path.join("solver/at_version=2/part-00-0.parquet#1");
    std::fs::write(&staged, b"PAR1").unwrap();
    let mine =
        ["solver/notes#draft", "solver/notes#1", "solver/notes#", "solver/at_version=2/mine.parquet#1"];
    mine.iter().for_each(|name| std::fs::write(path.join(name), b"mine").unwrap());
    std::fs::write(path.join("_commits/solver/7.1.json#2"), b"{}").unwrap();
    std::fs::write(path.join("solver/mine.parquet"), b"mine").unwrap();
    let archiver = Archiver::new(&run.store, &archive, ArchiveRule::keep_versions(1)).unwrap();
    let cleaned = archiver.clean(Duration::ZERO).unwrap();
    assert_eq!((cleaned.files, cleaned.bytes, staged.exists()), (2, 6, false));
    assert!(mine.iter().all(|name| path.join(name).exists()) && path.join("solver/mine.parquet").exists());
}

/// Such a file of the marker stays until it is old, and the marker and what is somebody else's always.
#[test]
fn a_marker_that_a_killed_process_was_writing_is_removed_once_it_is_old() {
    let run = stepped();
    let (archive, path) = in_directory(&run);
    let archiver = Archiver::new(&run.store, &archive, ArchiveRule::keep_versions(1)).unwrap();
    let staged = path.join("forebay-archive.json#1");
    let others = ["forebay-archive.json", "forebay-archive.json#", "forebay-archive.json#1a", "notes.json#1"];
    for file in others[1..].iter().chain(&["forebay-archive.json#1"]) {
        std::fs::write(path.join(file), b"{}").unwrap();
    }
    assert_eq!(archiver.clean(Duration::from_secs(3600)).unwrap().files, 0);
    assert!(staged.exists());
    let cleaned = archiver.clean(Duration::ZERO).unwrap();
    assert_eq!((cleaned.files, cleaned.bytes, staged.exists()), (1, 2, false));
    assert!(others.iter().all(|name| path.join(name).exists()));
}

/// A power failure takes back what was not yet on stable storage; a manifest is put only after that was made sure.
#[test]
fn the_log_is_on_stable_storage_before_a_manifest_is() {
    let run = stepped();
    let store = run.store.clone();
    let meddling = Meddling::looked_at(Arc::default(), move |operation| {
        if operation == 4 {
            assert_eq!(store.stats().durable_commits, store.snapshot().commit(), "before the first manifest");
        }
    });
    move_until_stopped(&run.store, meddling).unwrap();
}
