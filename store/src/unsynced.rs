//! Files that records name and that nobody holds open: objects, and what the process before left behind.
//!
//! A sync of the log is to make everything durable that its records name. Extents of this process know for themselves
//! whether they have unsynced bytes. Objects are noted here when they are written. What an earlier process wrote may be
//! unsynced too, for its log tells what was made durable and not what was not; so the first sync of a process takes every
//! file of the directory along, once.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use crate::directory::Directory;
use crate::disk::Disk;
use crate::error::{Cause, Result};
use crate::sync::Mutex;
use crate::sync_gate::SyncGate;

/// What is still to be synced.
#[derive(Debug)]
pub(crate) struct Unsynced {
    pending: Mutex<Pending>,
    /// Passed by whoever syncs them: what he took out is not on stable storage before he is done.
    gate: SyncGate,
}

#[derive(Debug)]
struct Pending {
    /// Everything that was there when the store was opened.
    inherited: Vec<PathBuf>,
    written: BTreeSet<PathBuf>,
}

impl Unsynced {
    /// Starts from what is in the directory now; from nothing when that is known to be on stable storage.
    pub(crate) fn new(directory: &Directory, all_is_durable: bool) -> Result<Self> {
        let inherited = if all_is_durable { Vec::new() } else { files_of(directory)? };
        let pending = Mutex::new(Pending { inherited, written: BTreeSet::new() });
        Ok(Unsynced { pending, gate: SyncGate::default() })
    }

    /// Notes a file that was written, before any record names it.
    pub(crate) fn note(&self, path: PathBuf) {
        self.pending.lock().written.insert(path);
    }

    /// Makes all of it stable, names included. What is gone since was removed because nothing names it any more.
    pub(crate) fn sync(&self, directory: &Directory) -> Result<()> {
        let passing = self.gate.enter().map_err(|e| Cause::io("sync", &directory.path, e))?;
        let (inherited, written) = {
            let mut pending = self.pending.lock();
            (std::mem::take(&mut pending.inherited), std::mem::take(&mut pending.written))
        };
        let paths: BTreeSet<PathBuf> = inherited.into_iter().chain(written).collect();
        sync_all(&*directory.disk, &paths)?;
        passing.done();
        Ok(())
    }
}

/// Every file that a record may name, and the log itself.
pub(crate) fn files_of(directory: &Directory) -> Result<Vec<PathBuf>> {
    let list = |path: &Path| directory.disk.list(path).map_err(|e| Cause::io("list", path, e));
    let mut files = list(&directory.log())?;
    files.extend(list(&directory.extents())?);
    for key in list(&directory.objects())? {
        match directory.disk.list(&key) {
            // A file that is not of the store's making has no names in it.
            Err(error) if [io::ErrorKind::NotADirectory, io::ErrorKind::NotFound].contains(&error.kind()) => {
            }
            names => files.extend(names.map_err(|e| Cause::io("list", &key, e))?),
        }
    }
    Ok(files)
}

/// Syncs files, then the directories that they are in, then those that these are in.
pub(crate) fn sync_all(disk: &dyn Disk, files: &BTreeSet<PathBuf>) -> Result<()> {
    let parents = |paths: &BTreeSet<PathBuf>| -> BTreeSet<PathBuf> {
        paths.iter().filter_map(|path| path.parent().map(Path::to_owned)).collect()
    };
    for file in files {
        match disk.open(file).and_then(|open| open.sync()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            outcome => outcome.map_err(|e| Cause::io("sync", file, e))?,
        }
    }
    let folders = parents(files);
    for folder in folders.iter().chain(&parents(&folders)) {
        disk.sync_directory(folder).map_err(|e| Cause::io("sync", folder, e))?;
    }
    Ok(())
}
