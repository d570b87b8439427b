//! The folder that a store has in shared memory, and folders that stores have left behind.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::directory::Directory;
use crate::disk::{Disk, HeldLock, LocalDisk, LockKind};
use crate::object::options::HostFolder;

const PREFIX: &str = "forebay-";

/// A locked folder of the store's own.
pub(crate) struct Folder {
    pub(super) path: PathBuf,
    _lock: Box<dyn HeldLock>,
}

impl Folder {
    /// Takes the folder of a store; `None`, with a line in the log, where there is none to be had.
    pub(crate) fn open(wanted: &HostFolder, directory: &Directory) -> Option<Self> {
        let base = match wanted {
            HostFolder::Shared => Path::new("/dev/shm"),
            HostFolder::At(path) => path,
            HostFolder::Anonymous => return None,
        };
        match Folder::take(base, directory) {
            Ok(Some(folder)) => return Some(folder),
            Ok(None) => {
                tracing::warn!(base = %base.display(), "another process has the host folder of this store");
            }
            Err(error) => {
                tracing::warn!(base = %base.display(), %error, "there is no host folder to be had");
            }
        }
        tracing::warn!("objects in the host tier end with this process");
        None
    }

    fn take(base: &Path, directory: &Directory) -> io::Result<Option<Self>> {
        let whose = fs::canonicalize(&directory.path).unwrap_or_else(|_| directory.path.clone());
        let place = crc32c::crc32c(whose.as_os_str().as_encoded_bytes());
        let path = base.join(format!("{PREFIX}{:016x}-{place:08x}", directory.store_id));
        fs::create_dir_all(base)?;
        match fs::DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let note = std::process::id().to_string();
        let Some(lock) = LocalDisk.lock(&path.join("LOCK"), LockKind::Exclusive, &note)? else {
            return Ok(None);
        };
        let owner = owner_text(&whose, directory.disk.boot());
        if fs::read_to_string(path.join("OWNER")).is_ok_and(|found| found != owner) {
            clear(&path)?; // of another boot: its memory may be files on a disk that lost writes
        }
        fs::write(path.join("OWNER"), owner)?;
        Ok(Some(Folder { path, _lock: lock }))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it with all that is in it.
    pub(crate) fn remove(&self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "a host folder could not be removed");
        }
    }
}

impl fmt::Debug for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Folder({})", self.path.display())
    }
}

fn owner_text(store: &Path, boot: u128) -> String {
    format!("{}\nboot {boot:032x}\n", store.display())
}

/// Removes everything but the lock.
fn clear(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let file = entry?.path();
        if !file.ends_with("LOCK") {
            fs::remove_file(file)?;
        }
    }
    Ok(())
}

/// A host folder that no process has open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostLeftover {
    /// The folder.
    pub path: PathBuf,
    /// The directory of the store that it belongs to.
    pub store: PathBuf,
    /// Whether that store is still there: what it holds is found again when the store is opened. Otherwise nobody can need
    /// it any more, and it may be removed.
    pub store_exists: bool,
    /// How many bytes it takes.
    pub bytes: u64,
}

/// The host folders under `base` (`/dev/shm` for [`HostFolder::Shared`]) that no process has open.
///
/// # Errors
/// When `base` cannot be listed.
pub fn host_leftovers(base: impl AsRef<Path>) -> io::Result<Vec<HostLeftover>> {
    let mut found = Vec::new();
    for path in LocalDisk.list(base.as_ref())? {
        let named =
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(PREFIX));
        let Ok(owner) = fs::read_to_string(path.join("OWNER")) else { continue };
        if !named || !matches!(LocalDisk.lock(&path.join("LOCK"), LockKind::Shared, ""), Ok(Some(_))) {
            continue;
        }
        let store = PathBuf::from(owner.lines().next().unwrap_or_default());
        let files = LocalDisk.list(&path)?;
        let bytes = files.iter().filter_map(|file| fs::metadata(file).ok()).map(|data| data.len()).sum();
        let store_exists = store.join("FOREBAY").exists();
        found.push(HostLeftover { path, store, store_exists, bytes });
    }
    Ok(found)
}
