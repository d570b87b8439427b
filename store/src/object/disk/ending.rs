//! How a version's file ends: its name goes first, so that nobody finds it any more, and the file itself when nobody waits.
//!
//! A file may have to stay after its version was deleted: somebody holds it, a step names it, or the process dies before it is
//! gone. So that no later process takes it for a version, a *mark* stands beside it from before the deletion is acknowledged until
//! after the file is gone, each on stable storage before what comes next: an empty file of the same name that ends in `.deleted`.
//! A mark without a file says nothing but that its number was used; who opens the objects next removes it.

use std::io;
use std::path::{Path, PathBuf};

use crate::disk::Disk;
use crate::error::{Cause, Result};

/// What a file is called between its version's end and its own.
pub(crate) const ASIDE: &str = "gone";
/// What stands beside the file of a version that was deleted.
pub(crate) const MARK: &str = "deleted";

/// Says, on stable storage, that the version of that file is deleted.
pub(crate) fn mark_deleted(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    let (mark, folder) = (path.with_extension(MARK), path.parent().unwrap_or(path));
    disk.create_directory_durably(folder)?; // its file may be about to be written
    match disk.create(&mark) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    disk.sync_directory(folder)
}

/// Takes a mark back: its version was not deleted.
pub(crate) fn unmark(disk: &dyn Disk, path: &Path) {
    let mark = path.with_extension(MARK);
    let folder = path.parent().unwrap_or(path);
    let removed = disk.remove_if_there(&mark);
    if let Err(error) =
        removed.and_then(|was_there| if was_there { disk.sync_directory(folder) } else { Ok(()) })
    {
        tracing::error!(path = %mark.display(), %error, "an object stays, and the next process will take it for deleted");
    }
}

/// Whether the version of that file is deleted.
pub(crate) fn is_marked(disk: &dyn Disk, path: &Path) -> Result<bool> {
    let mark = path.with_extension(MARK);
    disk.exists(&mark).map_err(|e| Cause::io("look for", &mark, e).into())
}

/// Removes marks without a file. What became of their files is brought to stable storage first: a file that came back would be
/// a version again. And so is their own end: a number may be used again by another process.
pub(crate) fn remove_marks(disk: &dyn Disk, folder: &Path, marks: &[PathBuf]) -> io::Result<()> {
    if marks.is_empty() {
        return Ok(());
    }
    disk.sync_directory(folder)?;
    marks.iter().try_for_each(|mark| disk.remove(mark))?;
    disk.sync_directory(folder)
}

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
    let removed = match disk.remove(aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => disk.sync_directory(aside.parent().unwrap_or(aside)), // also when somebody else has just removed it
    };
    removed.inspect_err(|error| not_removed(aside, error)).is_ok()
}

/// Removes the mark of a file that is gone for good, if it has one.
pub(crate) fn remove_needless_mark(disk: &dyn Disk, path: &Path) {
    let _ = disk.remove_if_there(&path.with_extension(MARK)); // else who opens the objects next does
}

/// Whether a file that was on its way is not there, and will not be after a power failure either: it may have had its name for a
/// moment.
pub(crate) fn never_came(disk: &dyn Disk, path: &Path) -> bool {
    matches!(disk.exists(path), Ok(false)) && disk.sync_directory(path.parent().unwrap_or(path)).is_ok()
}

fn not_removed(path: &Path, error: &io::Error) {
    tracing::warn!(path = %path.display(), %error, "an old object version could not be removed");
}
