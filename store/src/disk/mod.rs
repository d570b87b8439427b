//! The disk seam: files, directories, locks and mappings.
//!
//! The engine touches storage through [`Disk`] only. [`LocalDisk`] is the machine's file system. [`SimulatedDisk`]
//! keeps files in memory, once as the processes see them and once as stable storage has them, and fails at a chosen
//! operation, so that a test can stop the engine at every point where a process or the power may fail and open what is
//! left.
//!
//! What is stable: the bytes and the length of a file after [`DiskFile::sync`] (stores into a mapping among them), the
//! names in a directory after [`Disk::sync_directory`]. Everything else may be lost, kept or torn when the power fails,
//! in any order; nothing of it is lost when only the process ends.
//!
//! Bytes of a [`Mapping`] are shared between whoever maps the file; nothing here hands them out as `&[u8]`. The extent
//! modules do so for ranges that are written once and never change again.

mod fault;
mod linkless;
mod local;
mod mapping;
mod memory;
mod past_cache;
mod simulated;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) use fault::name_faults;
pub(crate) use linkless::link_in_the_way;
pub use local::LocalDisk;
pub use mapping::Mapping;
pub use simulated::{DiskFault, DiskOperation, SimulatedDisk};

/// How large the large pages of a mapped file are.
pub(crate) const LARGE_PAGE_BYTES: u64 = 2 << 20;

/// Which lock to take on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// One holder, nobody beside it.
    Exclusive,
    /// Any number of holders, no exclusive one beside them.
    Shared,
}

/// A lock that is held until it is dropped, or until its process ends.
pub trait HeldLock: Send + Sync + fmt::Debug {}

/// An open file.
pub trait DiskFile: Send + Sync + fmt::Debug {
    /// Appends all of `bytes`. On an error a prefix of them may be there.
    fn append(&self, bytes: &[u8]) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`, inside the file's length. On an error any part of them may be there.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Fills `buffer` from `offset` on; fewer bytes than asked for is an `UnexpectedEof`.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// The file's length in bytes.
    fn length(&self) -> io::Result<u64>;

    /// The bytes of the disk that the file takes: fewer than its length where space was given back. Default: its length.
    fn occupied(&self) -> io::Result<u64> {
        self.length()
    }

    /// Makes the file `length` bytes long with space reserved for all of them, so that a full disk is an error here
    /// and not a signal on the first store into a mapping.
    fn allocate(&self, length: u64) -> io::Result<()>;

    /// Makes the file `length` bytes long: cut, or grown by zeros that take no space.
    fn set_length(&self, length: u64) -> io::Result<()>;

    /// Gives the space of a range back; it reads as zeros and the file keeps its length. A file system that cannot do
    /// this keeps the space, which is no error.
    fn punch(&self, offset: u64, length: u64) -> io::Result<()>;

    /// Returns once what was written, through a mapping too, is on stable storage with the file's length. Not so the
    /// file's name: see [`Disk::sync_directory`]. After an error nobody knows what is on stable storage, and a later
    /// success says nothing about what this one should have brought there.
    fn sync(&self) -> io::Result<()>;

    /// Has what was written of a range begin its way to the disk, for whoever has something else to do before he syncs. It
    /// waits for nothing and brings nothing to stable storage; after an error a later sync proves nothing, as after one of
    /// [`sync`](Self::sync). Default: everything waits for the sync.
    fn begin_sync(&self, offset: u64, length: u64) -> io::Result<()> {
        let _ = (offset, length);
        Ok(())
    }

    /// Lets go of what memory holds of the file, as far as the system can: what is on its way to the disk stays, and so
    /// does what is mapped. What is read next then comes from stable storage. For whoever does not trust what memory holds
    /// because a sync has failed. Default: nothing is let go of.
    fn drop_cached(&self) -> io::Result<()> {
        Ok(())
    }

    /// Maps `length` bytes from the start of the file, shared, for reading and, where the file was opened so, writing.
    fn map(&self, length: usize) -> io::Result<Arc<Mapping>>;

    /// As [`map`](Self::map), for a new file with reserved space that is filled from the front by stores. Gives whether its
    /// bytes come to lie in large pages of memory: then a fault, and what a sync protects again, is 2 MiB
    /// and not 4 KiB. Default: they do.
    fn map_to_fill(&self, length: usize) -> io::Result<(Arc<Mapping>, bool)> {
        Ok((self.map(length)?, true))
    }

    /// Whether the first `length` bytes are in memory, as far as looks here and there can tell: then a store into a mapping
    /// of them waits for no read of the disk. Default: they are.
    fn is_cached(&self, length: u64) -> bool {
        let _ = length;
        true
    }

    /// Whether its bytes go past the memory that the system keeps of files: of one from [`Disk::create_past_cache`] or
    /// [`Disk::open_past_cache`], as far as it has been written or read. Default: they do not.
    fn goes_past_cache(&self) -> bool {
        false
    }
}

/// A file system.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Creates a new file for reading and writing; one that is there already is an error.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Opens a file for reading.
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// As [`create`](Self::create), for a large file that is appended to, synced and not looked at soon: its bytes go past the memory
    /// that the system keeps of files, where they can. They are in the file after [`DiskFile::sync`]. Default: as `create`.
    fn create_past_cache(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.create(path)
    }

    /// As [`open`](Self::open), for who reads a large file once. Default: as `open`.
    fn open_past_cache(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.open(path)
    }

    /// Opens a file for reading and writing; what is appended goes to its end.
    fn open_writable(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Creates a directory and its parents; one that is there already is fine.
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// The names in a directory, sorted.
    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>>;

    /// Whether something is at `path`. An error where nobody can tell: it does not mean that nothing is there.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Puts a file in the place of another, at once.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Returns once the names in a directory are on stable storage: a file that was made, renamed or removed in it stays
    /// so after a power failure.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;

    /// This disk, with the directory at `path` reached from `from` on, and everything in it from there, through no link: a call that
    /// meets one fails. The directory is made if there is none, its name on stable storage in any case; `from` is there. Default:
    /// there are no links on this disk, and nothing is made (`None`).
    fn without_links(&self, from: &Path, path: &Path) -> io::Result<Option<Box<dyn Disk>>> {
        let _ = (from, path);
        Ok(None)
    }

    /// Which run of the machine this is: as long as it is the same, the kernel still has what it was given, synced or
    /// not. 0 when nobody can tell; that is taken for another run every time.
    fn boot(&self) -> u128;

    /// Which process this is, as what it writes tells those who come after it. Default: its pid.
    fn process(&self) -> u32 {
        std::process::id()
    }

    /// Takes a lock on the file at `path`, made when it is missing; `None` when somebody holds it. An exclusive holder
    /// leaves `note` in the file for others to read.
    fn lock(&self, path: &Path, kind: LockKind, note: &str) -> io::Result<Option<Box<dyn HeldLock>>>;
}

impl dyn Disk + '_ {
    /// The whole of a file.
    pub fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let file = self.open(path)?;
        let length = usize::try_from(file.length()?).map_err(io::Error::other)?;
        let mut bytes = vec![0; length];
        file.read_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    /// Writes a whole file so that either all of `parts`, one after the other, or nothing is seen at `path`, as long as the
    /// machine runs. Neither the bytes nor the name are on stable storage then.
    pub fn write_atomically(&self, path: &Path, parts: &[&[u8]]) -> io::Result<()> {
        let (temporary, _) = self.write_beside(path, parts)?;
        self.rename(&temporary, path)
    }

    /// As `write_atomically`, and after a power failure too: bytes first, then the name.
    pub fn write_durably(&self, path: &Path, parts: &[&[u8]]) -> io::Result<()> {
        let (temporary, file) = self.write_beside(path, parts)?;
        file.sync()?;
        self.rename(&temporary, path)?;
        self.sync_directory(parent_of(path))
    }

    /// Removes a file that may have gone already, and gives whether it was there.
    pub fn remove_if_there(&self, path: &Path) -> io::Result<bool> {
        if !self.exists(path)? {
            return Ok(false);
        }
        match self.remove(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            removed => removed.map(|()| true),
        }
    }

    /// Creates a directory and its parents, with their names on stable storage. That of a directory that is there already is brought
    /// there too: whoever made it may not have cared.
    pub fn create_directory_durably(&self, path: &Path) -> io::Result<()> {
        // The last ancestor of a relative path is empty: the working directory, which is there.
        let named = path.ancestors().take_while(|directory| !directory.as_os_str().is_empty());
        let made: Vec<&Path> =
            named.take_while(|directory| !matches!(self.exists(directory), Ok(true))).collect();
        self.create_directory(path)?;
        if made.is_empty() {
            return match self.sync_directory(parent_of(path)) {
                // Nor is it ours to change where the directory stands.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
                outcome => outcome,
            };
        }
        made.into_iter().rev().try_for_each(|directory| self.sync_directory(parent_of(directory)))
    }

    fn write_beside(&self, path: &Path, parts: &[&[u8]]) -> io::Result<(PathBuf, Box<dyn DiskFile>)> {
        let temporary = path.with_extension("tmp");
        self.remove_if_there(&temporary)?;
        let file = self.create(&temporary)?;
        parts.iter().try_for_each(|part| file.append(part))?;
        Ok((temporary, file))
    }
}

/// The directory that a name stands in, which for a bare name is the working directory.
fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_made_wherever_its_name_begins() {
        let dir = tempfile::tempdir().unwrap();
        let unique = format!("made-by-process-{}", std::process::id());
        let relative = Path::new(&unique); // in the working directory
        for path in [relative.to_owned(), relative.join("a/b"), dir.path().join("c/d"), dir.path().to_owned()]
        {
            let made = (&LocalDisk as &dyn Disk).create_directory_durably(&path);
            assert!(made.is_ok() && path.is_dir(), "{}: {made:?}", path.display());
        }
        std::fs::remove_dir_all(relative).unwrap();
    }
}
