//! What was deleted stays deleted: whoever holds its file, whatever names it, whoever dies, and when the power fails.

use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};

use super::*;
use crate::probe::Probe;
use crate::support::{ROOT, World};

fn open(world: &World) -> Result<(Store, Objects)> {
    let objects = ObjectOptions::default().host_folder(HostFolder::Anonymous).versions_kept(9);
    let store = Store::open(ROOT, world.options().objects(objects))?;
    let objects = store.objects()?;
    Ok((store, objects))
}

fn set_small(objects: &Objects) -> Result<u64> {
    let bytes = TensorBytes { class: "weights", name: "w", dtype: Dtype::U8, shape: &[5], bytes: &[7; 5] };
    objects.set("solver", &[bytes])
}

#[derive(Debug, Default)]
struct Told {
    spilled: Vec<u64>,
    begun: Vec<u64>,
    deleted: Vec<u64>,
}

/// Deletes a version that somebody holds, one that a step names, one that nobody needs and one that lies in memory too.
fn live(store: &Store, objects: &Objects, told: &mut Told) -> Result<()> {
    for version in 1..=5 {
        set_small(objects)?;
        objects.spill("solver", Which::Exact(version))?;
        told.spilled.push(version);
    }
    for version in 1..=3 {
        objects.demote("solver", Which::Exact(version))?;
    }
    let held = objects.get_with("solver", Which::Exact(1), &Get::default().tier(Tier::Disk))?;
    let named = objects.reference("solver", 2)?;
    store.declare_policy("solver", Policy::volatile().version(2).objects(&[named]))?;
    for version in 1..=4 {
        told.begun.push(version);
        objects.delete("solver", version)?;
        told.deleted.push(version);
    }
    drop(held);
    Ok(())
}

fn die_everywhere(fault: DiskFault) {
    let operations = {
        let world = World::new();
        let (store, objects) = open(&world).unwrap();
        let before = world.disk.operations();
        live(&store, &objects, &mut Told::default()).unwrap();
        (before, world.disk.operations())
    };
    for point in operations.0 + 1..=operations.1 + 1 {
        let world = World::on(SimulatedDisk::seeded(point));
        let mut told = Told::default();
        let (store, objects) = open(&world).unwrap();
        world.disk.arm(point, fault);
        let outcome = live(&store, &objects, &mut told);
        if !fault.is_death() || point > operations.1 {
            world.disk.kill();
        }
        std::mem::forget((store, objects));
        for round in 0..3 {
            if round == 1 {
                world.disk.cut_power();
            }
            world.disk.restart();
            let (_store, objects) = open(&world).unwrap_or_else(|e| panic!("point {point}: {e:?}"));
            let there = numbers(&objects, "solver");
            let is_back = told.deleted.iter().find(|version| there.contains(version));
            assert_eq!(
                is_back, None,
                "point {point}, round {round}: {there:?} are there, {told:?} ({outcome:?})"
            );
            let lost =
                told.spilled.iter().find(|version| !told.begun.contains(version) && !there.contains(version));
            assert_eq!(
                lost, None,
                "point {point}, round {round}: {there:?} are there, {told:?} ({outcome:?})"
            );
            for version in there {
                objects.get("solver", Which::Exact(version)).unwrap().verify().unwrap();
            }
        }
    }
}

#[test]
fn the_process_dies_at_every_operation() {
    die_everywhere(DiskFault::ProcessDies);
}

#[test]
fn the_power_fails_at_every_operation() {
    die_everywhere(DiskFault::PowerFails);
}

#[test]
fn a_call_fails_at_every_operation() {
    for fault in [DiskFault::IoError, DiskFault::NoRoom, DiskFault::SyncFails] {
        die_everywhere(fault);
    }
}

#[test]
fn a_mark_stays_as_long_as_the_file_and_goes_with_it() {
    let world = World::new();
    let (store, objects) = open(&world).unwrap();
    live(&store, &objects, &mut Told::default()).unwrap();
    let names = |world: &World| -> Vec<String> {
        let files = world.disk.list(Path::new("/store/objects/solver")).unwrap();
        files.iter().map(|path| path.file_name().unwrap().to_str().unwrap()[18..].to_owned()).collect()
    };
    let left = ["02.deleted", "02.safetensors", "05.safetensors"];
    assert_eq!(names(&world), left);
    assert!(verify(ROOT, &world.options(), &mut |_| ControlFlow::Continue(())).unwrap().orphans.is_empty());
    store.backup("/copy").unwrap();
    drop((store, objects));
    world.disk.restart();
    let (store, objects) = open(&world).unwrap();
    assert_eq!((names(&world), numbers(&objects, "solver")), (left.map(str::to_owned).to_vec(), vec![5]));
    assert!(!objects.delete("solver", 2).unwrap());
    assert_eq!(set_small(&objects).unwrap(), 6, "numbers of what was deleted are not used again");
    drop((store, objects));
    let copy = Store::open(
        "/copy",
        world.options().objects(ObjectOptions::default().host_folder(HostFolder::Anonymous)),
    )
    .unwrap();
    assert!(copy.objects().unwrap().list().is_empty(), "deleted in the copy too");
    assert_eq!(copy.object(&copy.policy("solver").unwrap().objects[0]).unwrap().len() % 4096, 256);
}

/// Nothing that cannot be written down is acknowledged.
#[test]
fn a_deletion_that_cannot_be_written_down_is_refused_and_the_version_stays() {
    let world = World::new();
    let (_store, objects) = open(&world).unwrap();
    set_small(&objects).unwrap();
    objects.demote("solver", Which::Latest).unwrap();
    let names = || world.disk.list(Path::new("/store/objects/solver")).unwrap();
    world.disk.arm(world.disk.operations() + 1, DiskFault::NoRoom);
    assert_eq!(objects.delete("solver", 1).unwrap_err().kind(), Kind::Capacity);
    world.disk.mend();
    let refused = (1..).take_while(|operation| {
        world.disk.arm(world.disk.operations() + operation, DiskFault::IoError);
        let deleted = objects.delete("solver", 1);
        world.disk.mend();
        assert_eq!(deleted.is_err(), numbers(&objects, "solver") == [1], "{deleted:?}");
        assert!(deleted.is_ok() || names().len() == 1, "no mark is left: {:?}", names());
        deleted.is_err()
    });
    assert!(refused.count() >= 2, "making the mark, and bringing it to stable storage");
    drop((objects, _store));
    world.disk.restart();
    let (_store, objects) = open(&world).unwrap();
    assert!(objects.list().is_empty() && names().is_empty(), "{:?}", names());
}

/// Its file may have had its name for a moment: a power failure may bring that back, and not take in that it was removed.
#[test]
fn what_is_deleted_after_it_could_not_be_brought_to_the_disk_stays_deleted() {
    for fault in [DiskFault::IoError, DiskFault::IoErrors, DiskFault::NoHandles, DiskFault::SyncFails] {
        for (seed, operation) in (0..8).flat_map(|seed| (1..=12).map(move |operation| (seed, operation))) {
            let world = World::on(SimulatedDisk::seeded(seed));
            let (store, objects) = open(&world).unwrap();
            set_small(&objects).unwrap();
            world.disk.arm(world.disk.operations() + operation, fault);
            let spilled = objects.spill("solver", Which::Latest);
            let deleted = objects.delete("solver", 1);
            world.disk.cut_power();
            drop((store, objects)); // the disk refuses what they would still do
            world.disk.restart();
            let (_store, objects) = open(&world).unwrap();
            let there = numbers(&objects, "solver");
            let name = format!("{fault:?} at {operation} of {seed}: {spilled:?}, {deleted:?}");
            assert!(deleted.is_err() || there.is_empty(), "{name}: {there:?}");
        }
    }
}

fn open_on(probe: &Probe, world: &World) -> Objects {
    let objects = ObjectOptions::default().host_folder(HostFolder::Anonymous).versions_kept(2);
    let options = world.options().disk(Arc::new(probe.clone())).objects(objects);
    Store::open(ROOT, options).unwrap().objects().unwrap()
}

fn is(verb: &str, path: &Path, asked: &str, extension: &str) -> bool {
    verb == asked && path.extension().is_some_and(|found| found == extension)
}

fn assert_nothing_is_left(world: &World) {
    let left = world.disk.list(Path::new("/store/objects/solver")).unwrap();
    assert_eq!(left, Vec::<PathBuf>::new(), "no file, and no mark of none");
}

/// Deletes a version that goes while the mark for that is made.
fn delete_too_late(meanwhile: impl Fn(&Objects, u64) + Send + Sync + 'static) {
    let world = World::new();
    let probe = Probe::new(&world.disk);
    let objects = open_on(&probe, &world);
    let version = set_small(&objects).unwrap();
    objects.spill("solver", Which::Exact(version)).unwrap();
    let (inside, begun) = (objects.clone(), AtomicBool::new(false));
    probe.hook(move |verb, path| {
        if is(verb, path, "create", "deleted") && !begun.swap(true, Ordering::Relaxed) {
            meanwhile(&inside, version);
        }
        Ok(())
    });
    assert!(!objects.delete("solver", version).unwrap(), "it was gone");
    assert_nothing_is_left(&world);
}

#[test]
fn who_deletes_what_another_has_just_deleted_leaves_no_mark() {
    delete_too_late(|objects, version| assert!(objects.delete("solver", version).unwrap()));
}

#[test]
fn who_deletes_what_has_just_become_too_old_leaves_no_mark() {
    delete_too_late(|objects, _| (0..2).for_each(|_| _ = set_small(objects).unwrap()));
}

#[test]
fn the_mark_of_a_version_whose_file_does_not_come_goes_with_the_version() {
    let world = World::new();
    let probe = Probe::new(&world.disk);
    let objects = open_on(&probe, &world);
    let version = set_small(&objects).unwrap();
    let deleting = objects.clone();
    probe.hook(move |verb, path| {
        if is(verb, path, "create", "spill") {
            assert!(deleting.delete("solver", version).unwrap());
            return Err(ErrorKind::StorageFull.into());
        }
        Ok(())
    });
    assert_eq!(objects.spill("solver", Which::Exact(version)).unwrap_err().kind(), Kind::Capacity);
    assert_nothing_is_left(&world);
}

#[test]
fn a_mark_that_is_made_when_the_file_has_already_failed_to_come_goes_with_the_version() {
    let world = World::new();
    let probe = Probe::new(&world.disk);
    let objects = open_on(&probe, &world);
    let version = set_small(&objects).unwrap();
    let [moving, marking, failed] = [(); 3].map(|()| Arc::new(Barrier::new(2)));
    let (moves, marks, fails) = (moving.clone(), marking.clone(), failed.clone());
    probe.hook(move |verb, path| {
        if is(verb, path, "create", "deleted") {
            marks.wait();
            fails.wait();
        }
        if is(verb, path, "create", "spill") {
            moves.wait();
            marks.wait();
            return Err(ErrorKind::StorageFull.into());
        }
        Ok(())
    });
    std::thread::scope(|scope| {
        let spilling = scope.spawn(|| objects.spill("solver", Which::Exact(version)));
        moving.wait();
        let deleting = scope.spawn(|| objects.delete("solver", version));
        assert_eq!(spilling.join().unwrap().unwrap_err().kind(), Kind::Capacity);
        failed.wait();
        assert!(deleting.join().unwrap().unwrap());
    });
    assert_nothing_is_left(&world);
}
