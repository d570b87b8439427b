//! The store's directory: who it is, who may write it, and where its files lie.
//!
//! ```text
//! FOREBAY      identity: 64 bytes, written once, at once
//! LOCK         flock of the writer (exclusive) or of readers (shared); holds the writer's pid as text
//! log/         00000001.log, 00000002.log, ...      the order of events
//! extents/     00000001.extent, ...                 values
//! objects/     KEY/00000000000000000007.safetensors  large state, by version
//! ```

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{Disk, HeldLock, LockKind};
use crate::error::{Cause, Error, Result};
use crate::options::Options;

/// The format of everything in the directory. Written by 0.1; a change of any layout raises it.
pub const FORMAT_VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"FOREBAY\0";
pub(crate) const IDENTITY_BYTES: usize = 64;
const FOLDERS: [&str; 3] = ["log", "extents", "objects"];

/// An open and locked directory.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) path: PathBuf,
    pub(crate) store_id: u64,
    pub(crate) disk: Arc<dyn Disk>,
    _lock: Box<dyn HeldLock>,
}

impl Directory {
    /// Opens, and where wished creates, the directory and takes its lock.
    pub(crate) fn open(path: &Path, options: &Options) -> Result<Self> {
        let disk = options.disk.clone();
        let identity = path.join("FOREBAY");
        let fresh = !disk.exists(&identity);
        if fresh {
            check_empty(&*disk, path, options)?;
        }
        let lock = take_lock(&*disk, path, options)?;
        // Looked at again now that nobody else can be creating it.
        let store_id = if disk.exists(&identity) {
            read_identity(&*disk, &identity)?
        } else {
            let store_id = options.randomness.next_u64();
            write_identity(&*disk, path, &identity, store_id)?;
            store_id
        };
        Ok(Directory { path: path.to_owned(), store_id, disk, _lock: lock })
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    pub(crate) fn extents(&self) -> PathBuf {
        self.path.join("extents")
    }

    pub(crate) fn objects(&self) -> PathBuf {
        self.path.join("objects")
    }
}

fn check_empty(disk: &dyn Disk, path: &Path, options: &Options) -> Result<()> {
    if options.read_only || !options.create {
        return Err(Cause::NotAStore { path: path.to_owned() }.into());
    }
    disk.create_directory(path).map_err(|e| Cause::io("create", path, e))?;
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

fn take_lock(disk: &dyn Disk, path: &Path, options: &Options) -> Result<Box<dyn HeldLock>> {
    let file = path.join("LOCK");
    let kind = if options.read_only { LockKind::Shared } else { LockKind::Exclusive };
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

/// Keeps writers out of a directory that is only read, where its lock can be taken. A store that was copied without its
/// `LOCK` has no writer.
pub(crate) fn hold_still(disk: &dyn Disk, path: &Path) -> Result<Option<Box<dyn HeldLock>>> {
    let (file, log) = (path.join("LOCK"), path.join("log"));
    if !disk.exists(&path.join("FOREBAY")) && !disk.exists(&log) {
        return Err(Cause::NotAStore { path: path.to_owned() }.into());
    }
    if !disk.exists(&file) {
        return Ok(None);
    }
    let taken = disk.lock(&file, LockKind::Shared, "").map_err(|e| Cause::io("lock", &file, e))?;
    taken.map(Some).ok_or_else(|| who_holds(disk, path, &file).into())
}

/// magic 8, format version u32, zero u32, store id u64, zeros, crc32c u32 of the 60 bytes before it.
fn write_identity(disk: &dyn Disk, path: &Path, identity: &Path, store_id: u64) -> Result<()> {
    for name in FOLDERS {
        let directory = path.join(name);
        disk.create_directory(&directory).map_err(|e| Cause::io("create", &directory, e))?;
    }
    let mut bytes = [0; IDENTITY_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    bytes[16..24].copy_from_slice(&store_id.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..60]);
    bytes[60..].copy_from_slice(&crc.to_le_bytes());
    disk.write_atomically(identity, &[&bytes]).map_err(|e| Cause::io("write", identity, e).into())
}

pub(crate) fn read_identity(disk: &dyn Disk, identity: &Path) -> Result<u64> {
    let bytes = disk.read(identity).map_err(|e: io::Error| Cause::io("read", identity, e))?;
    let corrupt = |reason: &str| {
        Error::from(Cause::Corrupt { path: identity.to_owned(), offset: 0, reason: reason.into() })
    };
    if bytes.len() < 12 || bytes[..8] != MAGIC {
        return Err(corrupt("it does not begin with the mark of a Forebay store"));
    }
    let found = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
    if found != FORMAT_VERSION {
        let path = identity.to_owned();
        return Err(Cause::FormatVersion { path, found, expected: FORMAT_VERSION }.into());
    }
    let whole = bytes.len() == IDENTITY_BYTES && crc32c::crc32c(&bytes[..60]).to_le_bytes() == bytes[60..];
    if !whole {
        return Err(corrupt("its checksum does not match"));
    }
    Ok(u64::from_le_bytes([
        bytes[16], bytes[17], bytes[18], bytes[19], bytes[20], bytes[21], bytes[22], bytes[23],
    ]))
}
