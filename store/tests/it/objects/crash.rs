//! The process dies, or the power fails, at every operation of the disk in the life of a version.

use std::sync::Arc;

use super::*;
use crate::support::{ROOT, World};

fn open(world: &World) -> Result<(Store, Objects)> {
    let objects = ObjectOptions::default().host_folder(HostFolder::Anonymous).versions_kept(2);
    let store = Store::open(ROOT, world.options().objects(objects))?;
    let objects = store.objects()?;
    Ok((store, objects))
}

fn small() -> Layout {
    Layout::builder()
        .tensor("weights", "w", Dtype::F32, &[3000])
        .tensor("moments", "m", Dtype::U8, &[777])
        .build()
        .unwrap()
}

fn set_small(objects: &Objects, version: u64) -> Result<()> {
    let filling = objects.begin("solver", Expected::Any, &small())?;
    fill(&filling, version);
    filling.commit_as(version).map(drop)
}

/// Spills three versions, goes back to one, and deletes one. `told` is the greatest version that is known to be on disk, and the
/// greatest that was begun to be deleted or is over.
fn live(objects: &Objects, told: &mut (u64, u64)) -> Result<()> {
    for version in 1..=3 {
        set_small(objects, version)?;
        told.1 = version.saturating_sub(2);
        objects.demote("solver", Which::Exact(version))?;
        told.0 = version;
    }
    check(&objects.get("solver", Which::Latest)?);
    told.1 = 3;
    objects.delete("solver", 3)?;
    Ok(())
}

fn die_everywhere(fault: DiskFault) {
    let whole = World::new();
    let operations = {
        let (_store, objects) = open(&whole).unwrap();
        let before = whole.disk.operations();
        live(&objects, &mut (0, 0)).unwrap();
        (before, whole.disk.operations())
    };
    assert!(operations.1 - operations.0 > 20);
    for point in operations.0 + 1..=operations.1 {
        let world = World::on(SimulatedDisk::seeded(point));
        let mut told = (0, 0);
        let (store, objects) = open(&world).unwrap();
        world.disk.arm(point, fault);
        let outcome = live(&objects, &mut told);
        std::mem::forget((store, objects));
        if fault.is_death() {
            world.disk.restart();
        } else {
            world.disk.kill();
            world.disk.restart();
        }
        let (_store, objects) = open(&world).unwrap_or_else(|e| panic!("point {point}: {e:?}"));
        for object in objects.list() {
            let version = object.manifest.version;
            let held = objects
                .get("solver", Which::Exact(version))
                .unwrap_or_else(|e| panic!("point {point}: {e:?}"));
            held.verify().unwrap();
            check(&held); // whole, or not there
        }
        let there = numbers(&objects, "solver");
        for version in told.1 + 1..=told.0 {
            assert!(
                there.contains(&version),
                "point {point}: {version} was spilled, {there:?} are there ({outcome:?})"
            );
        }
        let names = world.disk.list(Path::new("/store/objects/solver")).unwrap_or_default();
        assert!(
            names.iter().all(|name| name.extension().unwrap() == "safetensors"),
            "point {point}: {names:?}"
        );
        set_small(&objects, 9).unwrap();
        objects.demote("solver", Which::Latest).unwrap();
        check(&objects.get("solver", Which::Latest).unwrap());
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
    for fault in [DiskFault::IoError, DiskFault::NoRoom, DiskFault::ShortWrite, DiskFault::SyncFails] {
        die_everywhere(fault);
    }
}

#[test]
fn a_spill_to_a_full_disk_is_refused_and_can_be_made_again() {
    let world = World::new();
    let (_store, objects) = open(&world).unwrap();
    set_small(&objects, 1).unwrap();
    world.disk.set_capacity(world.disk.occupied() + 5000);
    let error = objects.demote("solver", Which::Latest).unwrap_err();
    assert_eq!(error.kind(), Kind::Capacity, "{error:?}");
    assert_eq!(tiers(&objects, "solver", 1), [Tier::Host], "it stays where it was");
    world.disk.mend();
    objects.demote("solver", Which::Latest).unwrap();
    check(&objects.get("solver", Which::Latest).unwrap());
    let _: Arc<Manifest> = objects.list()[0].manifest.clone();
}
