//! The simulated disk does what a disk may do, all of it, and no more.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;

use forebay_store::*;

const SECTOR: usize = 512;

fn file(disk: &dyn Disk, path: &str) -> Box<dyn DiskFile> {
    disk.create(Path::new(path)).unwrap()
}

fn read(disk: &SimulatedDisk, path: &str) -> Vec<u8> {
    (disk as &dyn Disk).read(Path::new(path)).unwrap()
}

fn folder(disk: &SimulatedDisk) {
    disk.create_directory(Path::new("/d")).unwrap();
    disk.sync_directory(Path::new("/")).unwrap();
}

fn fail_power(disk: &SimulatedDisk) {
    disk.cut_power();
    disk.restart();
}

#[test]
fn what_was_synced_survives_a_power_failure_and_the_rest_is_old_new_or_torn_in_every_sector() {
    let mut fates: [BTreeSet<&str>; 2] = Default::default();
    let mut lengths = BTreeSet::new();
    for seed in 0..300 {
        let disk = SimulatedDisk::seeded(seed);
        folder(&disk);
        let written = file(&disk, "/d/f");
        written.append(&[1; 2 * SECTOR]).unwrap();
        written.sync().unwrap();
        disk.sync_directory(Path::new("/d")).unwrap();
        written.write_at(0, &[2; 2 * SECTOR]).unwrap();
        written.append(&[3; SECTOR]).unwrap();
        fail_power(&disk);
        let found = read(&disk, "/d/f");
        for (sector, fates) in found.chunks(SECTOR).zip(&mut fates) {
            assert!(sector.iter().all(|byte| [1, 2].contains(byte)), "seed {seed}");
            let changes = sector.windows(2).filter(|pair| pair[0] != pair[1]).count();
            assert!(changes <= 1, "a sector is torn at one place");
            fates.insert(match (changes, sector[0]) {
                (0, 1) => "lost",
                (0, _) => "kept",
                _ => "torn",
            });
        }
        assert!(found[2 * SECTOR..].iter().all(|byte| [0, 3].contains(byte)), "seed {seed}");
        lengths.insert(found.len());
        assert!((2 * SECTOR..=3 * SECTOR).contains(&found.len()));
    }
    assert!(fates.iter().all(|fates| fates.len() == 3), "{fates:?}");
    assert!(lengths.len() > 10, "{lengths:?}");
}

#[test]
fn a_store_into_mapped_memory_is_like_a_write() {
    let mut kept = 0;
    for seed in 0..50 {
        let disk = SimulatedDisk::seeded(seed);
        let directory = Path::new("/store");
        let options = || Options::default().disk(std::sync::Arc::new(disk.clone())).extent_bytes(4096, 4096);
        let store = Store::open(directory, options()).unwrap();
        let table = store.create_table("t", Schema::new().data("text", DataType::Utf8)).unwrap();
        let mapped = || disk.history().iter().filter(|o| **o == DiskOperation::MappedStore).count();
        let before = mapped();
        table.insert(0, "q_0_0", [("text", "a text that lies in an extent".into())]).unwrap();
        assert!(mapped() > before, "each store is a point of failure");
        std::mem::forget(store);
        fail_power(&disk);
        let extent = directory.join("extents").join("00000001.extent");
        kept += u64::from(
            disk.exists(&extent).unwrap() && (&disk as &dyn Disk).read(&extent).unwrap().ends_with(&[0; 64]),
        );
    }
    assert!(kept > 0);
}

#[test]
fn a_name_is_stable_once_its_directory_was_synced() {
    let (mut lost, mut kept) = (0, 0);
    for seed in 0..100 {
        let disk = SimulatedDisk::seeded(seed);
        folder(&disk);
        file(&disk, "/d/old").sync().unwrap();
        disk.sync_directory(Path::new("/d")).unwrap();
        disk.rename(Path::new("/d/old"), Path::new("/d/new")).unwrap();
        file(&disk, "/d/other").sync().unwrap();
        fail_power(&disk);
        let [old, new, other] =
            ["/d/old", "/d/new", "/d/other"].map(|path| disk.exists(Path::new(path)).unwrap());
        assert_ne!(old, new, "a renaming is whole or absent");
        lost += u64::from(!new) + u64::from(!other);
        kept += u64::from(new) + u64::from(other);
    }
    assert!(lost > 20 && kept > 20, "{lost} lost, {kept} kept");
}

#[test]
fn a_process_that_dies_loses_nothing_and_does_nothing_any_more() {
    let disk = SimulatedDisk::seeded(1);
    folder(&disk);
    let (written, boot) = (file(&disk, "/d/f"), disk.boot());
    written.append(b"there").unwrap();
    disk.kill();
    assert!(written.append(b" gone").is_err());
    disk.restart();
    assert!(written.append(b" gone").is_err(), "a handle ends with its process");
    assert_eq!((read(&disk, "/d/f"), disk.boot()), (b"there".to_vec(), boot));
    fail_power(&disk);
    assert_ne!(disk.boot(), boot);
}

#[test]
fn what_a_failed_sync_took_for_written_no_later_sync_writes() {
    let mut lost = 0;
    for seed in 0..50 {
        let disk = SimulatedDisk::seeded(seed);
        folder(&disk);
        let written = file(&disk, "/d/f");
        written.sync().unwrap();
        disk.sync_directory(Path::new("/d")).unwrap();
        written.append(&[7; SECTOR]).unwrap();
        disk.arm(disk.operations() + 1, DiskFault::SyncFailsAndForgets);
        assert!(written.sync().is_err());
        assert_eq!(read(&disk, "/d/f"), [7; SECTOR], "the page cache still has it");
        written.sync().unwrap();
        fail_power(&disk);
        lost += u64::from(read(&disk, "/d/f") != [7; SECTOR]);
    }
    assert!(lost > 10, "{lost} lost");
}

#[test]
fn a_full_disk_takes_what_fits_and_has_room_again_where_a_hole_is_punched() {
    let disk = SimulatedDisk::seeded(1);
    folder(&disk);
    let written = file(&disk, "/d/f");
    disk.set_capacity(3 * SECTOR as u64);
    written.append(&[1; 2 * SECTOR]).unwrap();
    assert_eq!(written.append(&[1; 2 * SECTOR]).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(written.length().unwrap(), 3 * SECTOR as u64);
    assert_eq!(file(&disk, "/d/g").allocate(1).unwrap_err().kind(), ErrorKind::StorageFull);
    written.punch(0, SECTOR as u64).unwrap();
    assert_eq!(disk.occupied(), 2 * SECTOR as u64);
    assert_eq!(read(&disk, "/d/f")[..SECTOR], [0; SECTOR]);
    written.append(&[1; SECTOR]).unwrap();
}

/// What the machine's file system and the simulated one both do.
#[test]
fn both_disks_keep_one_contract() {
    let directory = tempfile::tempdir().unwrap();
    let simulated = SimulatedDisk::default();
    simulated.create_directory(directory.path()).unwrap();
    for disk in [&LocalDisk as &dyn Disk, &simulated] {
        let path = directory.path().join("f");
        let written = disk.create(&path).unwrap();
        assert_eq!(disk.create(&path).unwrap_err().kind(), ErrorKind::AlreadyExists);
        written.append(b"hello, ").unwrap();
        written.append(b"world").unwrap();
        written.write_at(0, b"H").unwrap();
        drop(written);
        let again = disk.open_writable(&path).unwrap();
        again.append(b"!").unwrap();
        assert_eq!(disk.read(&path).unwrap(), b"Hello, world!");
        again.set_length(5).unwrap();
        again.allocate(8).unwrap();
        again.sync().unwrap();
        disk.sync_directory(directory.path()).unwrap();
        assert_eq!(disk.read(&path).unwrap(), b"Hello\0\0\0");
        again.punch(0, 2).unwrap();
        assert_eq!(disk.read(&path).unwrap(), b"\0\0llo\0\0\0");
        assert!(again.read_at(&mut [0; 9], 0).unwrap_err().kind() == ErrorKind::UnexpectedEof);
        again.allocate(4 << 20).unwrap();
        let (mapping, _) = again.map_to_fill(4 << 20).unwrap();
        assert_eq!((mapping.len(), again.length().unwrap()), (4 << 20, 4 << 20));
        assert!(again.is_cached(8), "it was written just now");
        again.set_length(8).unwrap();
        assert_eq!(disk.read(&path).unwrap(), b"\0\0llo\0\0\0", "mapping changes nothing");
        let reader = disk.open(&path).unwrap();
        assert!(reader.append(b"x").is_err(), "opened for reading");
        let renamed = directory.path().join("g");
        disk.rename(&path, &renamed).unwrap();
        assert_eq!(disk.list(directory.path()).unwrap(), std::slice::from_ref(&renamed));
        disk.remove(&renamed).unwrap();
        assert_eq!(disk.open(&renamed).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(disk.boot(), disk.boot());
        assert_ne!(disk.boot(), 0);
    }
}
