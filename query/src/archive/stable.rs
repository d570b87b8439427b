//! When what was put into an archive is on stable storage, so that no power failure takes it back.
//!
//! An object store has it there when it answers. A directory has it there after a sync of the file and of every folder
//! whose entry leads to it.

use std::fs::File;
use std::io::{Error, ErrorKind};
use std::path::{Path as FilePath, PathBuf};

use object_store::path::Path;

/// Brings to stable storage what was put.
pub(super) trait Stable: Send + Sync {
    /// Brings these files and the names that lead to them to stable storage.
    ///
    /// # Errors
    /// What could not be brought there, and why: nothing may be relied on then.
    fn sync(&self, files: &[Path]) -> Result<(), String>;
}

/// An object store: what it has answered for is there.
pub(super) struct Answered;

impl Stable for Answered {
    fn sync(&self, _files: &[Path]) -> Result<(), String> {
        Ok(())
    }
}

/// A directory.
pub(super) struct Directory(pub(super) PathBuf);

impl Directory {
    /// Makes the directory, with those above it, such that it is still there after a power failure.
    ///
    /// # Errors
    /// Which folder could not be made or synced, and why.
    pub(super) fn make(root: &FilePath) -> Result<(), String> {
        std::fs::create_dir_all(root).map_err(|error| format!("the directory cannot be made: {error}"))?;
        for folder in root.ancestors().skip(1) {
            match sync(folder) {
                // Whoever may not read a folder above has not made it either.
                Err(error) if error.kind() != ErrorKind::PermissionDenied => {
                    return Err(not_synced(folder, &error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Stable for Directory {
    fn sync(&self, files: &[Path]) -> Result<(), String> {
        let Directory(root) = self;
        let mut folders: Vec<PathBuf> = Vec::new();
        for file in files {
            let path = file.parts().fold(root.clone(), |path, part| path.join(part.as_ref()));
            sync(&path).map_err(|error| not_synced(&path, &error))?;
            let above = path.ancestors().skip(1).take_while(|folder| folder.starts_with(root));
            folders.extend(above.map(FilePath::to_owned));
        }
        folders.sort_unstable();
        folders.dedup();
        folders.iter().try_for_each(|folder| sync(folder).map_err(|error| not_synced(folder, &error)))
    }
}

fn sync(path: &FilePath) -> Result<(), Error> {
    File::open(path)?.sync_all()
}

fn not_synced(path: &FilePath, error: &Error) -> String {
    format!("{} cannot be brought to stable storage: {error}", path.display())
}
