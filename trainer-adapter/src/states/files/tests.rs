#![allow(clippy::unwrap_used, reason = "tests")]

use std::cell::RefCell;

use super::*;

thread_local! {
    static SYNCED: RefCell<Vec<PathBuf>> = const { RefCell::new(Vec::new()) };
}

fn recorded(folder: &Path) -> io::Result<()> {
    SYNCED.with_borrow_mut(|synced| synced.push(folder.to_owned()));
    folders::sync(folder)
}

/// Folders whose names were brought to stable storage since the last call.
fn synced() -> Vec<PathBuf> {
    SYNCED.take()
}

/// What is in a folder that was lost with its name is lost, whatever was synced in it.
#[test]
fn every_name_above_a_version_is_on_stable_storage_before_the_version_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let (root, above) = (dir.path().join("a/b"), dir.path().join("a"));
    let states = FileStates::open_with(root.clone(), recorded).unwrap();
    assert_eq!(synced(), [dir.path(), &*above], "the names of both folders that were made");
    drop(states);
    let states = FileStates::open_with(root.clone(), recorded).unwrap();
    assert_eq!(synced(), [&*above], "whoever made it may not have cared");

    let first = states.stage("solver", "trainer", b"one").unwrap();
    let (key, parts) = (root.join("solver"), root.join("solver/parts"));
    assert_eq!(synced(), [&*parts]);
    let linked = {
        let root = root.clone();
        move |boundary: Boundary| {
            let is_synced = || SYNCED.with_borrow(|synced| synced.contains(&root));
            assert!(boundary != Boundary::ManifestLinked || is_synced(), "the key's name is not there yet");
        }
    };
    let states = states.observed(Observer::new(linked));
    assert_eq!(states.commit("solver", 0, &[first]).unwrap(), 1);
    assert_eq!(synced(), [&*root, &*key]);

    let states = states.observed(Observer::default());
    let second = states.stage("solver", "trainer", b"two").unwrap();
    assert_eq!(states.commit("solver", 1, &[second]).unwrap(), 2);
    assert_eq!(synced(), [&*parts, &*key], "the key's name was there before the first version");
}

#[test]
fn a_key_whose_name_cannot_be_brought_to_stable_storage_has_no_version() {
    fn failing(folder: &Path) -> io::Result<()> {
        if folder.ends_with("failing") { Err(ErrorKind::Other.into()) } else { folders::sync(folder) }
    }
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("failing");
    let mut states = FileStates::open_with(root.clone(), failing).unwrap();
    let staged = [states.stage("solver", "trainer", b"one").unwrap()];
    let refused = states.commit("solver", 0, &staged).unwrap_err();
    assert!(matches!(&refused, StatesError::Io { verb: "sync", path, .. } if *path == root), "{refused}");
    assert_eq!(states.find("solver", Which::Latest).unwrap(), None);
    states.sync = folders::sync;
    assert_eq!(states.commit("solver", 0, &staged).unwrap(), 1);
}

/// Whether it outlives a power failure nobody knows.
#[test]
fn a_version_whose_name_cannot_be_brought_to_stable_storage_is_not_acknowledged() {
    fn failing(folder: &Path) -> io::Result<()> {
        if folder.ends_with("solver") { Err(ErrorKind::Other.into()) } else { folders::sync(folder) }
    }
    let dir = tempfile::tempdir().unwrap();
    let mut states = FileStates::open_with(dir.path().join("states"), failing).unwrap();
    let staged = [states.stage("solver", "trainer", b"one").unwrap()];
    let refused = states.commit("solver", 0, &staged).unwrap_err();
    let StatesError::NotDurable { version: 1, is_taken_back: false, .. } = &refused else {
        panic!("{refused}")
    };
    assert_eq!(states.find("solver", Which::Latest).unwrap().map(|found| found.number), Some(1));
    assert!(matches!(states.make_durable("solver", 1), Err(StatesError::Io { verb: "sync", .. })));
    states.sync = recorded;
    states.make_durable("solver", 1).unwrap();
    assert_eq!(synced(), [dir.path().join("states/solver")]);
}

#[test]
fn a_commit_that_expects_the_last_of_all_numbers_is_a_conflict() {
    let dir = tempfile::tempdir().unwrap();
    let states = FileStates::open(dir.path()).unwrap();
    let staged = states.stage("solver", "trainer", b"one").unwrap();
    let refused = states.commit("solver", u64::MAX, &[staged]).unwrap_err();
    assert!(matches!(refused, StatesError::Conflict { expected: u64::MAX, found: 0, .. }), "{refused}");
}
