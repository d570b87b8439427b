//! The folder that a store has in shared memory, and folders that stores have left behind.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::clock::Clock;
use crate::directory::Directory;
use crate::disk::{Disk, HeldLock, LocalDisk, LockKind};
use crate::error::{Cause, Result};
use crate::object::options::HostFolder;
use crate::sync::Event;

const PREFIX: &str = "forebay-";
/// How often the lock is asked for, and how long is waited between: a second in all.
const LOCK_TRIES: u32 = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// A locked folder of the store's own.
pub(crate) struct Folder {
    pub(super) path: PathBuf,
    _lock: Box<dyn HeldLock>,
}

impl Folder {
    /// Takes the folder of a store; `None`, with a line in the log, where there is none to be had.
    ///
    /// # Errors
    /// `state` when there is a folder with objects, and it cannot be taken: numbers that they have would be given out again.
    pub(crate) fn open(
        wanted: &HostFolder,
        directory: &Directory,
        clock: &dyn Clock,
    ) -> Result<Option<Self>> {
        let Some((path, owner)) = place_of(wanted, directory) else { return Ok(None) };
        let taken = Folder::take(&path, &owner, clock);
        match taken {
            Ok(Some(folder)) => return Ok(Some(folder)),
            Ok(None) if holds_objects(&path) => return Err(locked(&path).into()),
            Err(error) if holds_objects(&path) => return Err(Cause::io("open", &path, error).into()),
            Ok(None) => {
                tracing::warn!(path = %path.display(), "another process has the host folder of this store");
            }
            Err(error) => tracing::warn!(path = %path.display(), %error, "there is no host folder to be had"),
        }
        tracing::warn!("objects in the host tier end with this process");
        Ok(None)
    }

    fn take(path: &Path, owner: &str, clock: &dyn Clock) -> io::Result<Option<Self>> {
        fs::create_dir_all(path.parent().unwrap_or(path))?;
        match fs::DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let Some(lock) = lock(&path.join("LOCK"), clock)? else { return Ok(None) };
        let file = path.join("OWNER");
        let found = fs::read_to_string(&file).unwrap_or_default();
        if found != owner {
            if is_complete(&found) {
                clear(path)?; // of another boot: its memory may be files on a disk that lost writes
            }
            let written = file.with_extension("tmp");
            fs::write(&written, owner)?;
            fs::rename(&written, &file)?; // whole or not at all, whenever the process is killed
        }
        Ok(Some(Folder { path: path.to_owned(), _lock: lock }))
    }

    /// Whether a journal is there, and so maybe objects.
    pub(crate) fn holds_objects(&self) -> bool {
        holds_objects(&self.path)
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

/// Where the folder of a store is, and what it says of its owner; `None` where it has none.
fn place_of(wanted: &HostFolder, directory: &Directory) -> Option<(PathBuf, String)> {
    let base = match wanted {
        HostFolder::Shared => Path::new("/dev/shm"),
        HostFolder::At(path) => path,
        HostFolder::Anonymous => return None,
    };
    let whose = fs::canonicalize(&directory.path).unwrap_or_else(|_| directory.path.clone());
    let place = crate::checksum::crc32c(whose.as_os_str().as_encoded_bytes());
    let path = base.join(format!("{PREFIX}{:016x}-{place:08x}", directory.store_id));
    Some((path, owner_text(&whose, directory.disk.boot())))
}

/// The folder of a store that may be another process's now; `None` when there is none of this boot of the machine.
pub(crate) fn look_at_host(wanted: &HostFolder, directory: &Directory) -> Option<PathBuf> {
    let (path, owner) = place_of(wanted, directory)?;
    let found = fs::read_to_string(path.join("OWNER")).ok()?;
    (found == owner).then_some(path)
}

fn owner_text(store: &Path, boot: u128) -> String {
    format!("{}\nboot {boot:032x}\n", store.display())
}

/// Whether a text is all that [`owner_text`] gives.
fn is_complete(owner: &str) -> bool {
    owner.ends_with('\n') && owner.rsplit('\n').nth(1).is_some_and(|line| line.starts_with("boot "))
}

fn holds_objects(folder: &Path) -> bool {
    folder.join("journal").exists()
}

fn locked(folder: &Path) -> Cause {
    let note = fs::read_to_string(folder.join("LOCK")).unwrap_or_default();
    Cause::Locked { path: folder.to_owned(), pid: note.trim().parse().unwrap_or(0) }
}

/// Takes the lock, and waits a second for it at most: somebody may only be [looking](host_leftovers) whether it is held.
fn lock(path: &Path, clock: &dyn Clock) -> io::Result<Option<Box<dyn HeldLock>>> {
    let note = std::process::id().to_string();
    for _ in 0..LOCK_TRIES {
        if let Some(lock) = LocalDisk.lock(path, LockKind::Exclusive, &note)? {
            return Ok(Some(lock));
        }
        clock.wait(Event::new().listen(), Some(clock.now().after(LOCK_PAUSE))); // nobody tells when it is let go
    }
    LocalDisk.lock(path, LockKind::Exclusive, &note)
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
