#![allow(clippy::unwrap_used, reason = "tests")]

use tempfile::TempDir;

use super::*;
use crate::client::Client;
use crate::store::{HostFolder, ObjectOptions, Options, Store};

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
    assert_eq!(states.keep(&part, 1).unwrap(), 1);
    assert_eq!(states.keep("part.nobody", 1).unwrap(), 1);
    // Its commit says that it is gone, and who is ahead comes first.
    let late = [Staged(part)];
    assert!(matches!(states.commit("solver", 0, &late).unwrap_err(), StatesError::NotStaged { .. }));
    let first = states.stage("solver", "trainer", b"first").unwrap();
    assert_eq!(states.commit("solver", 0, &[first]).unwrap(), 1);
    let conflict = states.commit("solver", 0, &late).unwrap_err();
    assert!(matches!(conflict, StatesError::Conflict { found: 1, .. }), "{conflict}");
}
