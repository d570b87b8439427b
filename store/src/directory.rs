//! The store's directory: who it is, who may write it, and where its files lie.
//!
//! ```text
//! FOREBAY      identity: 64 bytes, written once, at once
//! LOCK         flock of the writer; holds its pid as text
//! DOUBT        a sync failed: what is not proven to be on stable storage is not taken on trust
//! readers/     00000001.slot, ...                     who reads beside the writer, and what may not be given away
//! fillers/     00000012.filler, ...                   which extents other processes fill
//! log/         00000001.log, 00000002.log, ...      the order of events
//! extents/     00000001.extent, ...                 values
//! objects/     KEY/00000000000000000007.safetensors  large state, by version
//! MANIFEST     the newest checkpoint, if there is one
//! pages/       00000001.pages, ...                  what checkpoints store
//! ```

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{Disk, HeldLock, LockKind};
use crate::error::{Cause, Error, Result};
use crate::header::{self, Header, Magic};
use crate::numbered::Numbered;
use crate::options::Options;
use crate::reader::{ReaderSlot, readers_hold};

/// The format of everything in the directory. Written by 0.1; a change of any layout raises it.
pub const FORMAT_VERSION: u32 = 1;

const MAGIC: Magic = *b"FOREBAY\0";
/// There from the first sync that failed until an opening has made the store whole.
const DOUBT: &str = "DOUBT";
/// What lies in a store beside its identity.
pub(crate) const FOLDERS: [&str; 4] = ["log", "extents", "objects", "pages"];

/// An open and locked directory.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) path: PathBuf,
    pub(crate) store_id: u64,
    pub(crate) disk: Arc<dyn Disk>,
    /// Whether files are mapped; where they are not trusted they are read instead.
    pub(crate) maps: bool,
    access: Access,
}

/// What keeps others from taking away what is open here.
#[derive(Debug)]
enum Access {
    /// Nobody else writes while this is held: for the writer, and for a reader that may not take a slot.
    Locked { _lock: Box<dyn HeldLock> },
    /// Read beside a writer, or beside none.
    Slot(ReaderSlot),
    /// There is no lock to take: a copy that nobody has opened yet.
    Unlocked,
}

impl Directory {
    /// Opens, and where wished creates, the directory and takes its lock.
    pub(crate) fn open(path: &Path, options: &Options) -> Result<Self> {
        let disk = options.disk.clone();
        let identity = path.join("FOREBAY");
        let fresh = !is_there(&*disk, &identity)?;
        if fresh {
            check_empty(&*disk, path, options)?;
        }
        let access = take_access(&disk, path, options)?;
        // Looked at again now that nobody else can be creating it.
        let store_id = if is_there(&*disk, &identity)? {
            if !options.read_only {
                // Whoever created it may have died before its names were stable; what comes now lies behind them.
                sync_names(&*disk, path)?;
            }
            read_identity(&*disk, &identity)?
        } else {
            let store_id = options.randomness.next_u64();
            make_folders(&*disk, path)?;
            write_identity(&*disk, &identity, store_id)?;
            store_id
        };
        Ok(Directory { path: path.to_owned(), store_id, disk, maps: true, access })
    }

    /// Makes a directory that holds an empty store with the identity of another.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn create_as(path: &Path, options: &Options, store_id: u64) -> Result<Self> {
        let directory = Directory::begin_as(path, options, store_id)?;
        directory.identify()?;
        Ok(directory)
    }

    /// The same, but for its identity: it is no store before [`identify`](Self::identify).
    pub(crate) fn begin_as(path: &Path, options: &Options, store_id: u64) -> Result<Self> {
        let disk = options.disk.clone();
        if is_there(&*disk, &path.join("FOREBAY"))? {
            return Err(Cause::DirectoryTaken { path: path.to_owned() }.into());
        }
        check_empty(&*disk, path, &Options::default())?;
        let access = take_access(&disk, path, &Options::default())?;
        make_folders(&*disk, path)?;
        Ok(Directory { path: path.to_owned(), store_id, disk, maps: true, access })
    }

    /// Says which store it is, for good.
    pub(crate) fn identify(&self) -> Result<()> {
        write_identity(&*self.disk, &self.path.join("FOREBAY"), self.store_id)
    }

    /// The directory of a store that another process has open, for who fills extents of it.
    ///
    /// # Errors
    /// `state` when it is not the store with that identity.
    pub(crate) fn of_neighbour(disk: Arc<dyn Disk>, path: &Path, store_id: u64) -> Result<Self> {
        if read_identity(&*disk, &path.join("FOREBAY"))? != store_id {
            return Err(Cause::NotAStore { path: path.to_owned() }.into());
        }
        Ok(Directory { path: path.to_owned(), store_id, disk, maps: true, access: Access::Unlocked })
    }

    /// As [`of_neighbour`](Self::of_neighbour), for who reads values of it: with a reader's slot.
    ///
    /// # Errors
    /// `state` when it is not the store with that identity, or this process may not take a slot.
    pub(crate) fn of_reading_neighbour(disk: Arc<dyn Disk>, path: &Path, store_id: u64) -> Result<Self> {
        let directory = Directory::of_neighbour(disk, path, store_id)?;
        let denied = || Cause::io("take a reader's slot in", path, io::ErrorKind::PermissionDenied.into());
        let slot = ReaderSlot::take(&directory.disk, path)?.ok_or_else(denied)?;
        Ok(Directory { access: Access::Slot(slot), ..directory })
    }

    /// Looks at a directory that may be damaged. What is in it stays there meanwhile: writers are kept from giving it
    /// away, or, with `alone`, kept out. A store whose identity cannot be read is known by its first sound segment.
    ///
    /// # Errors
    /// `state` when it holds neither an identity nor a log, or is being written where `alone` is wished.
    pub(crate) fn look_at(path: &Path, options: &Options, alone: bool) -> Result<Self> {
        let disk = options.disk.clone();
        if !is_there(&*disk, &path.join("FOREBAY"))? && !is_there(&*disk, &path.join("log"))? {
            return Err(Cause::NotAStore { path: path.to_owned() }.into());
        }
        let access = if !is_there(&*disk, &path.join("LOCK"))? {
            Access::Unlocked
        } else if alone {
            Access::Locked { _lock: take_lock(&*disk, path, LockKind::Shared)? }
        } else {
            read_access(&disk, path)?
        };
        let known = read_identity(&*disk, &path.join("FOREBAY")).ok();
        let store_id = known.or_else(|| crate::log::store_id(&*disk, &path.join("log"))).unwrap_or_default();
        Ok(Directory { path: path.to_owned(), store_id, disk, maps: false, access })
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    pub(crate) fn extents(&self) -> PathBuf {
        self.path.join("extents")
    }

    pub(crate) fn pages(&self) -> PathBuf {
        self.path.join("pages")
    }

    pub(crate) fn objects(&self) -> PathBuf {
        self.path.join("objects")
    }

    pub(crate) fn segment_path(&self, number: u32) -> PathBuf {
        Numbered::Segment.path(&self.log(), number)
    }

    pub(crate) fn extent_path(&self, number: u32) -> PathBuf {
        Numbered::Extent.path(&self.extents(), number)
    }

    pub(crate) fn pages_path(&self, number: u32) -> PathBuf {
        Numbered::Pages.path(&self.pages(), number)
    }

    /// Notes that a sync failed, so that whoever opens the store next in this run of the machine does not take what the
    /// kernel holds for what the disk holds. After a power failure nobody does, so it is enough that the kernel has it;
    /// where the disk takes nothing more, it cannot be noted.
    pub(crate) fn doubt(&self, why: &Error) {
        let path = self.path.join(DOUBT);
        let note = || {
            if matches!(self.disk.exists(&path), Ok(true)) {
                return Ok(());
            }
            let file = self.disk.create(&path)?;
            file.append(format!("{}\n", why.with_sources()).as_bytes())?;
            file.sync()?;
            self.disk.sync_directory(&self.path)
        };
        if let Err(error) = note() {
            tracing::warn!(%error, "a sync failed, and that could not be noted for who opens the store next");
        }
    }

    /// Whether a sync has failed since the store was last made whole. Where nobody can tell, it is held to have.
    pub(crate) fn is_in_doubt(&self) -> bool {
        !matches!(self.disk.exists(&self.path.join(DOUBT)), Ok(false))
    }

    /// Everything is on stable storage, whatever failed before.
    pub(crate) fn end_doubt(&self) -> Result<()> {
        let path = self.path.join(DOUBT);
        self.disk.remove_if_there(&path).map_err(|e| Cause::io("remove", &path, e))?;
        sync_names(&*self.disk, &self.path)
    }

    /// Whether something that was over by the time that `records` records had been written may be given away: its values
    /// overwritten, its file removed. To be asked *after* the record by which it is over was handed to the kernel.
    pub(crate) fn may_give_away(&self, records: u64) -> bool {
        self.readers_hold().is_none_or(|seen| seen >= records)
    }

    /// The least number of records that any living reader has seen of what it may still read; `None` when nobody reads.
    pub(crate) fn readers_hold(&self) -> Option<u64> {
        readers_hold(&*self.disk, &self.path)
    }

    /// Says, where this is a reader, that it needs nothing that was over before it had seen `records` records.
    pub(crate) fn reads_from(&self, records: u64) -> Result<()> {
        match &self.access {
            Access::Slot(slot) => slot.needs_from(records),
            Access::Locked { .. } | Access::Unlocked => Ok(()),
        }
    }
}

/// A writer locks others out; a reader takes a slot, or, where it may not write one, locks the writer out.
fn take_access(disk: &Arc<dyn Disk>, path: &Path, options: &Options) -> Result<Access> {
    if options.read_only {
        return read_access(disk, path);
    }
    Ok(Access::Locked { _lock: take_lock(&**disk, path, LockKind::Exclusive)? })
}

fn read_access(disk: &Arc<dyn Disk>, path: &Path) -> Result<Access> {
    if let Some(slot) = ReaderSlot::take(disk, path)? {
        return Ok(Access::Slot(slot));
    }
    Ok(Access::Locked { _lock: take_lock(&**disk, path, LockKind::Shared)? })
}

fn is_there(disk: &dyn Disk, path: &Path) -> Result<bool> {
    disk.exists(path).map_err(|e| Cause::io("look for", path, e).into())
}

fn check_empty(disk: &dyn Disk, path: &Path, options: &Options) -> Result<()> {
    if options.read_only || !options.create {
        return Err(Cause::NotAStore { path: path.to_owned() }.into());
    }
    disk.create_directory_durably(path).map_err(|e| Cause::io("create", path, e))?;
    let names = disk.list(path).map_err(|e| Cause::io("list", path, e))?;
    // What a creation that was interrupted leaves behind is ours to go on with: its folders are still empty.
    let foreign = |name: &PathBuf| {
        let folder = FOLDERS.iter().any(|folder| name.ends_with(folder));
        let ours = ["LOCK", "FOREBAY.tmp"].iter().any(|file| name.ends_with(file));
        !(ours || folder && disk.list(name).is_ok_and(|inside| inside.is_empty()))
    };
    if names.iter().any(foreign) {
        return Err(Cause::DirectoryTaken { path: path.to_owned() }.into());
    }
    Ok(())
}

fn take_lock(disk: &dyn Disk, path: &Path, kind: LockKind) -> Result<Box<dyn HeldLock>> {
    let file = path.join("LOCK");
    let note = std::process::id().to_string();
    let taken = disk.lock(&file, kind, &note).map_err(|e| Cause::io("lock", &file, e))?;
    taken.ok_or_else(|| who_holds(disk, path, &file).into())
}

/// Who keeps a lock from us: a writer, which leaves its pid in the file, or readers, which leave nothing.
fn who_holds(disk: &dyn Disk, path: &Path, file: &Path) -> Cause {
    if matches!(disk.lock(file, LockKind::Shared, ""), Ok(Some(_))) {
        return Cause::LockedByReaders { path: path.to_owned() };
    }
    let owner = disk.read(file).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let pid = owner.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    Cause::Locked { path: path.to_owned(), pid }
}

fn sync_names(disk: &dyn Disk, path: &Path) -> Result<()> {
    disk.sync_directory(path).map_err(|e| Cause::io("sync", path, e).into())
}

/// A store has an identity only once it has its folders.
fn make_folders(disk: &dyn Disk, path: &Path) -> Result<()> {
    for name in FOLDERS {
        let directory = path.join(name);
        disk.create_directory(&directory).map_err(|e| Cause::io("create", &directory, e))?;
    }
    sync_names(disk, path)
}

/// The identity is a header and nothing else.
fn write_identity(disk: &dyn Disk, identity: &Path, store_id: u64) -> Result<()> {
    let bytes = Header::new(MAGIC, 0, store_id).seal();
    disk.write_durably(identity, &[&bytes]).map_err(|e| Cause::io("write", identity, e).into())
}

pub(crate) fn read_identity(disk: &dyn Disk, identity: &Path) -> Result<u64> {
    let bytes = disk.read(identity).map_err(|e: io::Error| Cause::io("read", identity, e))?;
    let corrupt = |reason: &str| {
        Error::from(Cause::Corrupt { path: identity.to_owned(), offset: 0, reason: reason.into() })
    };
    let Some(found) = header::format_told(MAGIC, &bytes) else {
        return Err(corrupt("it does not begin with the mark of a Forebay store"));
    };
    if found != FORMAT_VERSION {
        let path = identity.to_owned();
        return Err(Cause::FormatVersion { path, found, expected: FORMAT_VERSION }.into());
    }
    let header = bytes.as_slice().try_into().ok().and_then(|bytes| Header::read(MAGIC, bytes).ok());
    header.map(|header| header.store_id()).ok_or_else(|| corrupt("its checksum does not match"))
}
