//! Device memory for tests: a file a hundred bytes, locked by the process that has them. The kernel gives locks back when the process
//! ends, however it ends, so the bytes taken are those of processes that are there.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

const SLOT_BYTES: u64 = 100;

/// What a process has taken of a device; given back with the process.
#[derive(Debug, Default)]
pub(crate) struct Taken(#[allow(dead_code, reason = "held for their locks")] Vec<File>);

fn slots(folder: &Path, device: &str) -> Vec<PathBuf> {
    let mut slots: Vec<PathBuf> =
        fs::read_dir(folder.join(device)).unwrap().map(|entry| entry.unwrap().path()).collect();
    slots.sort();
    slots
}

/// Makes a device.
pub(crate) fn make(folder: &Path, device: &str, bytes: u64) {
    fs::create_dir_all(folder.join(device)).unwrap();
    for slot in 0..bytes / SLOT_BYTES {
        File::create(folder.join(device).join(format!("{slot:04}"))).unwrap();
    }
}

/// All of these bytes, or an error.
pub(crate) fn take(folder: &Path, device: &str, bytes: u64) -> Result<Taken, String> {
    let wanted = bytes.div_ceil(SLOT_BYTES) as usize;
    let mut taken = Vec::new();
    for slot in slots(folder, device) {
        let file = File::open(slot).unwrap();
        if taken.len() < wanted && file.try_lock().is_ok() {
            taken.push(file);
        }
    }
    let found = taken.len();
    if found == wanted {
        Ok(Taken(taken))
    } else {
        Err(format!("device {device} has {found} of {wanted} slots"))
    }
}

/// The bytes that processes have of a device. Not beside processes that are taking some.
pub(crate) fn used_bytes(folder: &Path, device: &str) -> u64 {
    let is_locked = |slot: &PathBuf| File::open(slot).unwrap().try_lock().is_err();
    slots(folder, device).iter().filter(|slot| is_locked(slot)).count() as u64 * SLOT_BYTES
}
