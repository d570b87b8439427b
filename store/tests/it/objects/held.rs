//! What a lease promises.

use super::*;

#[test]
fn what_is_held_stays_whatever_becomes_of_its_key_and_of_the_handles() {
    let dir = tempfile::tempdir().unwrap();
    let (store, objects) = anonymous(dir.path(), |o| o.versions_kept(1));
    set(&objects, "solver");
    let (in_memory, on_disk) = (
        objects.get("solver", Which::Latest).unwrap(),
        objects.get_with("solver", Which::Latest, &Get::default().tier(Tier::Disk)).unwrap(),
    );
    objects.demote("solver", Which::Latest).unwrap();
    (0..5).for_each(|_| _ = set(&objects, "solver"));
    objects.delete("solver", 1).unwrap();
    assert_eq!(objects.stats().leases, 2);
    drop((store, objects));
    check(&in_memory);
    check(&on_disk);
    let path = dir.path().join("store");
    assert!(matches!(Store::open(&path, Options::default()).unwrap_err().cause(), Cause::Locked { .. }));
    drop((in_memory, on_disk));
    Store::open(&path, Options::default()).unwrap();
}

#[test]
fn parts_that_are_not_there_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, objects) = anonymous(dir.path(), |o| o);
    set(&objects, "solver");
    let held = objects.get("solver", Which::Latest).unwrap();
    let head = held.tensor("head").unwrap();
    let errors = [
        held.tensor("heat").unwrap_err(),
        head.rows(0..8).unwrap_err(),
        #[allow(clippy::reversed_empty_ranges, reason = "that is what is refused")]
        head.rows(5..4).unwrap_err(),
        head.read(&mut [0; 461]).unwrap_err(),
        held.read_class("moments", 12_544, &mut [0; 257]).unwrap_err(),
        held.read_class("moments", u64::MAX, &mut [0; 2]).unwrap_err(),
    ];
    errors.iter().for_each(|error| assert_eq!(error.kind(), Kind::Input, "{error}"));
    assert_eq!(held.tensor("scale").unwrap().rows(0..1).unwrap().bytes_count(), 8, "a scalar is one row");
}

#[test]
fn the_oldest_lease_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let clock = std::sync::Arc::new(SimulatedClock::new(Timestamp(0)));
    let objects = ObjectOptions::default().host_folder(HostFolder::Anonymous);
    let options = Options::default().objects(objects).clock(clock.clone());
    let store = Store::open(dir.path().join("store"), options).unwrap();
    let objects = store.objects().unwrap();
    set(&objects, "solver");
    let held = objects.get("solver", Which::Latest).unwrap();
    clock.advance(std::time::Duration::from_secs(7));
    assert_eq!((objects.stats().leases, objects.stats().oldest_lease.as_secs()), (1, 7));
    drop(held);
    assert_eq!((objects.stats().leases, objects.stats().oldest_lease.as_secs()), (0, 0));
}
