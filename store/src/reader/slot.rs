//! The slot of one reader.
//!
//! ```text
//! readers/00000001.slot     flock of its reader; text of 64 bytes:
//! pid 0000012345 sees 00000000000000000042 crc 9f3a01c7, spaces, line end
//! ```
//! A slot that nobody locks is free and is used again. One that is locked and cannot be understood holds everything.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{Disk, HeldLock, LockKind};
use crate::error::{Cause, Result};
use crate::numbered::Numbered;

const TEXT_BYTES: usize = 64;
/// More readers than this at once are refused: something leaves readers behind.
const SLOTS_MAX: u32 = 4096;

/// Says what its holder may still read, for as long as it is held or its process lives.
#[derive(Debug)]
pub(crate) struct ReaderSlot {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    _lock: Box<dyn HeldLock>,
}

impl ReaderSlot {
    /// Takes the first free slot of a store. It holds everything until [`ReaderSlot::needs_from`] says otherwise. `None`
    /// where this process may not write into the directory.
    pub(crate) fn take(disk: &Arc<dyn Disk>, store: &Path) -> Result<Option<Self>> {
        let folder = store.join("readers");
        match take_any(disk, &folder) {
            Ok(Some(slot)) => Ok(Some(slot)),
            Ok(None) => Err(Cause::TooMany {
                what: "readers",
                limit: SLOTS_MAX as usize,
                found: SLOTS_MAX as usize + 1,
            }
            .into()),
            Err(error) if is_denied(&error) => Ok(None),
            Err(error) => Err(Cause::io("take a reader's slot in", &folder, error).into()),
        }
    }

    /// From now on the holder reads nothing that was over before it had seen `records` records.
    pub(crate) fn needs_from(&self, records: u64) -> Result<()> {
        let write = || self.disk.open_writable(&self.path)?.write_at(0, text(records).as_bytes());
        write().map_err(|e| Cause::io("write to", &self.path, e).into())
    }
}

fn take_any(disk: &Arc<dyn Disk>, folder: &Path) -> std::io::Result<Option<ReaderSlot>> {
    if !disk.exists(folder)? {
        disk.create_directory(folder)?;
    }
    for number in 1..=SLOTS_MAX {
        let path = Numbered::Slot.path(folder, number);
        if let Some(lock) = disk.lock(&path, LockKind::Exclusive, &text(0))? {
            return Ok(Some(ReaderSlot { disk: disk.clone(), path, _lock: lock }));
        }
    }
    Ok(None)
}

fn is_denied(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem)
}

/// The least number of records that any living reader has seen of what it may still read, or `None` when nobody reads.
/// What was over by a record with that sequence number or a later one is not to be given away. Where the slots cannot be
/// looked at everything is held.
pub(crate) fn readers_hold(disk: &dyn Disk, store: &Path) -> Option<u64> {
    let folder = store.join("readers");
    if matches!(disk.exists(&folder), Ok(false)) {
        return None;
    }
    let Ok(slots) = disk.list(&folder) else { return Some(0) };
    slots.iter().filter(|path| Numbered::Slot.is(path)).filter_map(|path| held_by(disk, path)).min()
}

/// What the holder of one slot needs; `None` for a slot without a living holder.
fn held_by(disk: &dyn Disk, path: &Path) -> Option<u64> {
    match disk.lock(path, LockKind::Shared, "") {
        Ok(Some(_nobody)) => None,
        Ok(None) => Some(disk.read(path).ok().and_then(|bytes| parse(&bytes)).unwrap_or(0)),
        Err(_) => Some(0),
    }
}

fn text(records: u64) -> String {
    let body = format!("pid {:010} sees {records:020}", std::process::id());
    let line = format!("{body} crc {:08x}", crate::checksum::crc32c(body.as_bytes()));
    format!("{line:<width$}\n", width = TEXT_BYTES - 1)
}

fn parse(bytes: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() == TEXT_BYTES)?;
    let (body, crc) = text.trim_end().split_once(" crc ")?;
    let records = body.split_once(" sees ")?.1;
    (u32::from_str_radix(crc, 16).ok()? == crate::checksum::crc32c(body.as_bytes()))
        .then(|| records.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::LocalDisk;

    #[test]
    fn a_slot_is_understood_whole_or_not_at_all() {
        let line = text(42);
        assert_eq!((line.len(), parse(line.as_bytes())), (TEXT_BYTES, Some(42)));
        assert_eq!(parse(text(u64::MAX).as_bytes()), Some(u64::MAX));
        for at in 0..TEXT_BYTES {
            assert_eq!(parse(&line.as_bytes()[..at]), None, "cut at {at}");
        }
        for at in 0..47 {
            let mut damaged = line.clone().into_bytes();
            damaged[at] ^= 1;
            assert_eq!(parse(&damaged), None, "byte {at}");
        }
    }

    // FX-B16
    #[test]
    fn the_oldest_living_reader_holds_and_a_slot_ends_with_its_holder() {
        let scratch = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(LocalDisk);
        let hold = || readers_hold(&*disk, scratch.path());
        assert_eq!(hold(), None);
        let first = ReaderSlot::take(&disk, scratch.path()).unwrap().unwrap();
        assert_eq!(hold(), Some(0), "a new reader holds everything");
        first.needs_from(70).unwrap();
        let second = ReaderSlot::take(&disk, scratch.path()).unwrap().unwrap();
        second.needs_from(50).unwrap();
        assert_eq!(hold(), Some(50));
        drop(second);
        assert_eq!(hold(), Some(70));
        let third = ReaderSlot::take(&disk, scratch.path()).unwrap().unwrap();
        assert_eq!(third.path.file_name().unwrap(), "00000002.slot", "free slots are used again");
        assert_eq!(hold(), Some(0));
        std::fs::write(&third.path, "nonsense").unwrap();
        assert_eq!(hold(), Some(0), "a slot that cannot be understood holds everything");
        drop((first, third));
        assert_eq!(hold(), None);
    }
}
