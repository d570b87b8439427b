//! What a lease promises.

use super::*;
use crate::support::{ROOT, World};

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

/// Files under a folder that this process has open.
fn open_files(under: &Path) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let open = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    open.filter(|path| path.starts_with(under)).count()
}

// File handles are few, and whoever may read may have leases by the thousand.
#[test]
fn leases_of_versions_on_disk_hold_no_file_open_and_read_also_what_was_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, objects) = anonymous(dir.path(), |o| o);
    set(&objects, "solver");
    objects.demote("solver", Which::Latest).unwrap();
    let on_disk = Get::default().tier(Tier::Disk);
    let mut held: Vec<Held> =
        (0..3_000).map(|_| objects.get_with("solver", Which::Latest, &on_disk).unwrap()).collect();
    let files = dir.path().join("store/objects");
    assert_eq!((objects.stats().leases, open_files(&files)), (3_000, 0));
    check(&held[0]);
    let head = held[1].tensor("head").unwrap();
    (0..7).for_each(|row| assert_eq!(head.rows(row..row + 1).unwrap().to_vec().unwrap().len(), 66));
    objects.delete("solver", 1).unwrap();
    held.drain(1..);
    assert!(objects.list().is_empty());
    check(&held[0]);
    held[0].verify().unwrap();
    assert_eq!(open_files(&files), 0);
    drop(held);
    assert_eq!(std::fs::read_dir(files.join("solver")).unwrap().count(), 0, "its file goes with the last");
}

#[test]
fn who_can_open_no_more_files_is_told_when_it_holds_and_when_it_reads_and_may_try_again() {
    let world = World::new();
    let options = world.options().objects(ObjectOptions::default().host_folder(HostFolder::Anonymous));
    let store = Store::open(ROOT, options).unwrap();
    let objects = store.objects().unwrap();
    set(&objects, "solver");
    objects.demote("solver", Which::Latest).unwrap();
    let hold = || objects.get_with("solver", Which::Latest, &Get::default().tier(Tier::Disk));
    let held = hold().unwrap();
    world.disk.arm(world.disk.operations() + 1, DiskFault::NoHandles);
    let refused = [
        hold().unwrap_err(),
        held.verify().unwrap_err(),
        held.tensor("scale").unwrap().to_vec().unwrap_err(),
        held.read_class("weights", 0, &mut [0; 9]).unwrap_err(),
    ];
    for error in refused {
        assert!(
            matches!(error.cause(), Cause::NoHandles { .. }) && error.kind() == Kind::Capacity,
            "{error}"
        );
    }
    assert_eq!((objects.stats().leases, objects.stats().corrupt), (1, 0));
    world.disk.mend();
    check(&held);
    hold().unwrap().verify().unwrap();
}

#[test]
fn a_file_that_is_mended_while_it_is_held_is_read_as_it_is_then() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, objects) = anonymous(dir.path(), |o| o);
    set(&objects, "solver");
    objects.spill("solver", Which::Latest).unwrap();
    let path = disk::file(dir.path(), "solver", 1);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[5_000] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let held = objects.get_with("solver", Which::Latest, &Get::default().tier(Tier::Disk)).unwrap();
    assert_eq!(held.verify().unwrap_err().kind(), Kind::Corrupt);
    objects.spill("solver", Which::Latest).unwrap();
    check(&held);
}
