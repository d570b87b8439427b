//! How a version's file ends: its name goes first, so that nobody finds it any more, and the file itself when nobody waits.

use std::io;
use std::path::{Path, PathBuf};

use crate::disk::Disk;

/// What a file is called between its version's end and its own.
pub(crate) const ASIDE: &str = "gone";

/// Takes a file's name away; under the state's lock, where a removal would take its time. Nothing when there is no file, or it
/// could not be done, which is logged: the file stays.
pub(crate) fn set_aside(disk: &dyn Disk, path: &Path) -> Option<PathBuf> {
    let aside = path.with_extension(ASIDE);
    match disk.rename(path, &aside) {
        Ok(()) => return Some(aside),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => not_removed(path, &error),
    }
    None
}

/// Removes a file that was set aside, on stable storage. False when that could not be done, which is logged.
pub(crate) fn remove_aside(disk: &dyn Disk, aside: &Path) -> bool {
    let removed = disk.remove(aside).and_then(|()| disk.sync_directory(aside.parent().unwrap_or(aside)));
    removed.inspect_err(|error| not_removed(aside, error)).is_ok()
}

fn not_removed(path: &Path, error: &io::Error) {
    tracing::warn!(path = %path.display(), %error, "an old object version could not be removed");
}
