//! Room for the log on a full disk.
//!
//! A write of the log that fails ends the store, for what comes behind it would follow on nothing. So before a full disk is taken
//! for an answer, what lies around to be used again makes way for it, and it is tried once more.

use std::fmt;
use std::io;
use std::path::Path;

use crate::disk::{Disk, DiskFile};
use crate::error::is_full;

/// Who has something on the disk that nobody needs.
pub(crate) trait MakesRoom: fmt::Debug + Send + Sync {
    /// Lets some of it go. False when there is nothing left.
    fn make_room(&self) -> bool;
}

/// Nobody has.
impl MakesRoom for () {
    fn make_room(&self) -> bool {
        false
    }
}

/// Appends to a file that is `length` bytes long; the second attempt goes on where the first one stopped.
pub(super) fn append(file: &dyn DiskFile, length: u64, bytes: &[u8], room: &dyn MakesRoom) -> io::Result<()> {
    let Err(error) = file.append(bytes) else { return Ok(()) };
    if !is_full(&error) || !room.make_room() {
        return Err(error);
    }
    let done = file.length()?.saturating_sub(length) as usize;
    file.append(bytes.get(done..).unwrap_or_default())
}

/// Makes a file that begins with these bytes. Where that fails none is left, as far as the disk lets it be removed.
pub(super) fn create(
    disk: &dyn Disk,
    path: &Path,
    bytes: &[u8],
    room: &dyn MakesRoom,
) -> io::Result<Box<dyn DiskFile>> {
    let file = create_empty(disk, path, room)?;
    append(&*file, 0, bytes, room).inspect_err(|_| _ = disk.remove(path))?;
    Ok(file)
}

fn create_empty(disk: &dyn Disk, path: &Path, room: &dyn MakesRoom) -> io::Result<Box<dyn DiskFile>> {
    match disk.create(path) {
        Err(error) if is_full(&error) && room.make_room() => disk.create(path),
        made => made,
    }
}
