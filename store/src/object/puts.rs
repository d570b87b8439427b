//! Objects that were put and that no record may name yet.
//!
//! Whoever puts a version writes it beside its name, to a file of his own, for as long as that takes; then it gets its name
//! under the state's lock, where a commit decides too. Two trainers may both believe that the version is theirs: the name goes
//! to the later one, and the commit of the other is refused, for the file is not what he has put.
//!
//! Invariants
//! - A version that a record names is never replaced by other bytes.
//! - A record names a version only when its file holds what that record says: what this process has put is remembered, what
//!   an earlier one has left is read once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::named::{self, ObjectRef};
use crate::directory::Directory;
use crate::disk::{Disk, DiskFile};
use crate::error::{Cause, Error, Result};
use crate::schema::check_name;
use crate::sync::{Mutex, Rank};

/// What is written beside its name ends so.
const BESIDE: &str = "tmp";

/// What this process knows of the files of versions that are not committed.
#[derive(Debug)]
pub(crate) struct Puts(Mutex<Known>);

impl Default for Puts {
    fn default() -> Self {
        Puts(Mutex::ranked(Rank::Puts, Known::default()))
    }
}

#[derive(Debug, Default)]
struct Known {
    /// What the file of a version holds.
    held: BTreeMap<(String, u64), ObjectRef>,
    /// Keys in whose folders nothing is left of earlier processes.
    swept: BTreeSet<String>,
    writers: u64,
}

/// A version that is written, or is being written, and has no name yet. Dropped, it is gone.
#[derive(Debug)]
pub(crate) struct Unnamed {
    disk: Arc<dyn Disk>,
    file: Box<dyn DiskFile>,
    beside: PathBuf,
    path: PathBuf,
    /// What it is as far as it was written.
    object: ObjectRef,
}

impl Puts {
    /// Begins to write a version beside its name.
    ///
    /// # Errors
    /// `input` for a key that is no name, `capacity` when the disk is full.
    pub(crate) fn begin(&self, directory: &Directory, (key, version): (&str, u64)) -> Result<Unnamed> {
        check_name("object", key)?;
        let path = named::path_in(&directory.objects(), key, version);
        let beside = path.with_extension(format!("{}.{BESIDE}", self.next_writer(directory, key)?));
        let disk = directory.disk.clone();
        let file = disk.create(&beside).map_err(|e| Cause::io("write", &path, e))?;
        Ok(Unnamed { disk, file, beside, path, object: ObjectRef::of(key, version, &[]) })
    }

    /// A number that no other writer has. The first one of a key sweeps its folder.
    fn next_writer(&self, directory: &Directory, key: &str) -> Result<u64> {
        let folder = directory.objects().join(key);
        directory.disk.create_directory(&folder).map_err(|e| Cause::io("create", &folder, e))?;
        let mut known = self.0.lock();
        if known.swept.insert(key.to_owned()) {
            sweep(&*directory.disk, &folder);
        }
        known.writers += 1;
        Ok(known.writers)
    }

    /// Gives a version its name. Called with the state locked, once nothing there names the version.
    ///
    /// # Errors
    /// When the disk refuses; the version then has the file that it had.
    pub(crate) fn name(&self, unnamed: Unnamed) -> Result<ObjectRef> {
        let (object, path) = (unnamed.object.clone(), unnamed.path.clone());
        unnamed.disk.rename(&unnamed.beside, &path).map_err(|e| Cause::io("rename", &path, e))?;
        self.0.lock().held.insert((object.key.clone(), object.version), object.clone());
        Ok(object)
    }

    /// Looks whether the file of an object holds it, before a commit that is to name it is decided.
    ///
    /// # Errors
    /// `input` when it is not there, `state` when somebody else has put the version since.
    pub(crate) fn check(&self, directory: &Directory, object: &ObjectRef) -> Result<()> {
        named::check(directory, object)?;
        if self.holds(object)? {
            return Ok(());
        }
        let path = named::path_of(directory, object);
        let held = named::found(directory, object).map_err(|e| Cause::io("read", path, e))?;
        if held != *object {
            return Err(put_by_other(object, &held));
        }
        self.remember(object);
        Ok(())
    }

    /// The file of a version holds this, as far as nothing else is known of it.
    pub(crate) fn remember(&self, object: &ObjectRef) {
        self.0.lock().held.entry((object.key.clone(), object.version)).or_insert_with(|| object.clone());
    }

    /// As [`check`](Self::check), once it was checked: for the decision, under the state's lock.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn check_still(&self, directory: &Directory, object: &ObjectRef) -> Result<()> {
        named::check_there(directory, object)?;
        self.holds(object).map(drop)
    }

    /// Whether the file is known to hold the object; false when nothing is known of it.
    fn holds(&self, object: &ObjectRef) -> Result<bool> {
        match self.0.lock().held.get(&(object.key.clone(), object.version)) {
            None => Ok(false),
            Some(held) if held == object => Ok(true),
            Some(held) => Err(put_by_other(object, held)),
        }
    }

    /// A commit names these: versions before them are looked after by the state.
    pub(crate) fn committed(&self, objects: &[ObjectRef]) {
        let mut known = self.0.lock();
        for object in objects {
            known.held.retain(|(key, version), _| *key != object.key || *version >= object.version);
        }
    }
}

impl Unnamed {
    /// Writes what comes next.
    ///
    /// # Errors
    /// `capacity` when the disk is full; it is not to be named then.
    pub(crate) fn append(&mut self, part: &[u8]) -> Result<()> {
        self.file.append(part).map_err(|e| Cause::io("write", &self.path, e))?;
        self.object.bytes += part.len() as u64;
        self.object.crc32c = crate::checksum::crc32c_append(self.object.crc32c, part);
        Ok(())
    }

    /// What it will be.
    pub(crate) fn object(&self) -> &ObjectRef {
        &self.object
    }
}

impl Drop for Unnamed {
    fn drop(&mut self) {
        remove(&*self.disk, &self.beside);
    }
}

fn put_by_other(object: &ObjectRef, held: &ObjectRef) -> Error {
    let (key, version) = (object.key.clone(), object.version);
    Cause::PutByOther { key, version, put: object.crc32c, found: held.crc32c }.into()
}

/// Removes what earlier processes were writing when they ended.
fn sweep(disk: &dyn Disk, folder: &Path) {
    let files = disk.list(folder).unwrap_or_default();
    let left = files.iter().filter(|path| path.extension().is_some_and(|extension| extension == BESIDE));
    left.for_each(|path| remove(disk, path));
}

fn remove(disk: &dyn Disk, path: &Path) {
    if let Err(error) = disk.remove_if_there(path) {
        tracing::warn!(path = %path.display(), %error, "what is left of an object that was not put cannot be removed");
    }
}
