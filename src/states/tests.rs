#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use tempfile::TempDir;

use super::*;
use crate::client::Client;
use crate::store::{DiskFault, HostFolder, ObjectOptions, Options, SimulatedDisk, Store, Tier};

fn spilling() -> (TempDir, ObjectStates) {
    let dir = tempfile::tempdir().unwrap();
    let objects = ObjectOptions::default().host_folder(HostFolder::At(dir.path().join("host")));
    let store = Store::open(dir.path().join("store"), Options::default().objects(objects)).unwrap();
    (dir, ObjectStates::new(Client::embedded(store).objects()).spills(true))
}

#[test]
fn what_another_coordinator_removed_before_it_was_spilled_is_no_failure_of_setting_it() {
    let (_dir, states) = spilling();
    let Staged(part) = states.stage("solver", "trainer", b"late").unwrap();
    states.objects.delete(&part, 1).unwrap();
    states.keep(&part, Newest::Exact(1)).unwrap();
    states.keep("part.nobody", Newest::Exact(1)).unwrap();
    // Its commit says that it is gone, and who is ahead comes first.
    let late = [Staged(part)];
    assert!(matches!(states.commit("solver", 0, &late).unwrap_err(), StatesError::NotStaged { .. }));
    let first = states.stage("solver", "trainer", b"first").unwrap();
    assert_eq!(states.commit("solver", 0, &[first]).unwrap(), 1);
    let conflict = states.commit("solver", 0, &late).unwrap_err();
    assert!(matches!(conflict, StatesError::Conflict { found: 1, .. }), "{conflict}");
}

/// States that are brought to a disk, which fails when it is told to.
fn on_a_disk() -> (SimulatedDisk, Store, ObjectStates) {
    on_a_disk_that_keeps(2)
}

fn on_a_disk_that_keeps(versions: usize) -> (SimulatedDisk, Store, ObjectStates) {
    let disk = SimulatedDisk::default();
    let (store, states) = opened(&disk, versions);
    (disk, store, states)
}

fn opened(disk: &SimulatedDisk, versions: usize) -> (Store, ObjectStates) {
    let objects = ObjectOptions::default().host_folder(HostFolder::Anonymous).versions_kept(versions);
    let options = Options::default().disk(Arc::new(disk.clone())).objects(objects);
    let store = Store::open("/store", options).unwrap();
    let states = ObjectStates::new(Client::embedded(store.clone()).objects()).spills(true);
    (store, states)
}

/// On a full disk every try would leave as much memory taken: of a part that no version names.
#[test]
fn a_part_that_cannot_be_brought_to_the_disk_leaves_nothing_behind() {
    let (disk, store, states) = on_a_disk();
    let taken = || store.objects().unwrap().stats().host_bytes_taken;
    let first = states.stage("solver", "trainer", &[1; 3000]).unwrap();
    assert_eq!(states.commit("solver", 0, &[first]).unwrap(), 1);
    let before = (states.objects.list().unwrap().len(), taken());
    disk.arm(1, DiskFault::NoMoreRoom);
    for _ in 0..3 {
        let refused = states.stage("solver", "trainer", &[2; 3000]).unwrap_err();
        assert!(matches!(refused, StatesError::Other { .. }), "{refused}");
        assert_eq!((states.objects.list().unwrap().len(), taken()), before);
    }
    disk.mend();
    let second = states.stage("solver", "trainer", &[2; 3000]).unwrap();
    assert_eq!(states.commit("solver", 1, &[second]).unwrap(), 2);
    assert_eq!(states.read("solver", Which::Latest, "trainer").unwrap(), [2; 3000]);
    assert_eq!(states.read("solver", Which::Exact(1), "trainer").unwrap(), [1; 3000]);
}

#[test]
fn a_part_that_is_discarded_is_gone_and_one_of_another_key_is_not() {
    let (_dir, states) = spilling();
    let part = states.stage("solver", "trainer", b"late").unwrap();
    let before = states.objects.list().unwrap().len();
    states.discard("checker", &part);
    assert_eq!(states.objects.list().unwrap().len(), before);
    states.discard("solver", &part);
    assert_eq!(states.objects.list().unwrap().len(), before - 1);
    states.discard("solver", &part);
    assert!(matches!(states.commit("solver", 0, &[part]).unwrap_err(), StatesError::NotStaged { .. }));
}

/// The same states, whose disk is full from the moment on that a version is seen.
fn filling_up(disk: &SimulatedDisk, states: &ObjectStates) -> ObjectStates {
    let full = disk.clone();
    states.clone().observed(Observer::new(move |boundary| {
        if boundary == Boundary::ManifestLinked {
            full.arm(1, DiskFault::NoMoreRoom);
        }
    }))
}

fn newest(states: &ObjectStates) -> Option<u64> {
    states.find("solver", Which::Latest).unwrap().map(|found| found.number)
}

#[test]
fn a_version_that_cannot_be_brought_to_the_disk_is_taken_back_and_the_one_before_it_stands() {
    let (disk, _store, states) = on_a_disk();
    let full = filling_up(&disk, &states);
    let is_taken_back = |refused: StatesError| {
        assert!(matches!(refused, StatesError::NotDurable { is_taken_back: true, .. }), "{refused}");
    };
    let first = [states.stage("solver", "trainer", b"one").unwrap()];
    is_taken_back(full.commit("solver", 0, &first).unwrap_err());
    assert_eq!(newest(&states), None);
    disk.mend();
    assert_eq!(states.commit("solver", 0, &first).unwrap(), 2, "numbers do not come again");

    let second = [states.stage("solver", "trainer", b"two").unwrap()];
    is_taken_back(full.commit("solver", 2, &second).unwrap_err());
    assert_eq!(newest(&states), Some(2));
    assert_eq!(states.read("solver", Which::Latest, "trainer").unwrap(), b"one");
    disk.mend();
    assert_eq!(states.commit("solver", 2, &second).unwrap(), 4);
    assert_eq!(states.read("solver", Which::Latest, "trainer").unwrap(), b"two");
    assert_eq!(states.read("solver", Which::Exact(2), "trainer").unwrap(), b"one");
}

/// Whatever call fails, once or from there on: a file that had its name for a moment would be a version again.
#[test]
fn a_version_that_was_taken_back_does_not_come_back_with_a_power_failure() {
    for (operation, fault) in (1..=12).flat_map(|at| [(at, DiskFault::IoError), (at, DiskFault::IoErrors)]) {
        let disk = SimulatedDisk::seeded(operation);
        let (store, states) = opened(&disk, 2);
        let part = [states.stage("solver", "trainer", b"one").unwrap()];
        let failing = disk.clone();
        let states = states.observed(Observer::new(move |boundary| {
            if boundary == Boundary::ManifestLinked {
                failing.arm(failing.operations() + operation, fault);
            }
        }));
        let outcome = states.commit("solver", 0, &part);
        let expected = match &outcome {
            Ok(number) => Some(Some(*number)),
            Err(StatesError::NotDurable { is_taken_back: true, .. }) => Some(None),
            Err(_) => None, // either
        };
        disk.cut_power();
        drop((store, states)); // the disk refuses what they would still do
        disk.restart();
        let (_store, states) = opened(&disk, 2);
        let found = newest(&states);
        assert!(expected.is_none_or(|expected| expected == found), "{fault:?} at {operation}: {outcome:?}");
    }
}

/// Better than none.
#[test]
fn a_version_before_which_none_is_left_is_not_taken_back() {
    let (disk, _store, states) = on_a_disk_that_keeps(1);
    let first = [states.stage("solver", "trainer", b"one").unwrap()];
    assert_eq!(states.commit("solver", 0, &first).unwrap(), 1);
    let second = [states.stage("solver", "trainer", b"two").unwrap()];
    let refused = filling_up(&disk, &states).commit("solver", 1, &second).unwrap_err();
    assert!(matches!(refused, StatesError::NotDurable { is_taken_back: false, .. }), "{refused}");
    assert_eq!(newest(&states), Some(2));
    // Who finds it makes it durable before he goes on from it.
    assert!(matches!(states.make_durable("solver", 2), Err(StatesError::Other { .. })));
    disk.mend();
    states.make_durable("solver", 2).unwrap();
    let shown = states.objects.list_of("state.solver").unwrap();
    assert!(shown.iter().any(|shown| shown.version == 2 && shown.tiers.contains(&Tier::Disk)), "{shown:?}");
}
