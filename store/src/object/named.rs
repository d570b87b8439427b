//! Objects as steps name them: a file by key and version.
//!
//! An object is written first and named later: its file is there, whole, before the record that makes it part of the
//! store, so a crash between the two leaves a file that nobody refers to and that the next write of the same version
//! replaces. A version that a record names is never written again ([`puts`](super::puts)).

use std::io;
use std::path::PathBuf;

use super::disk::ASIDE;
use crate::directory::Directory;
use crate::error::{Cause, Error, Result};
use crate::log::record::ObjectRecord;
use crate::numbered::number_of;
use crate::schema::check_name;

/// Names one version of an object, with what is needed to know it again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectRef {
    /// What the object is, for instance `solver`.
    pub key: String,
    /// Which of the key's versions.
    pub version: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// The crc32c of all its bytes.
    pub crc32c: u32,
}

impl ObjectRef {
    /// What a version of these bytes is named by, written or not.
    pub fn of(key: &str, version: u64, payload: &[u8]) -> Self {
        let (bytes, crc32c) = (payload.len() as u64, crate::checksum::crc32c(payload));
        ObjectRef { key: key.to_owned(), version, bytes, crc32c }
    }

    pub(crate) fn record(&self) -> ObjectRecord {
        ObjectRecord { key: self.key.clone(), version: self.version, bytes: self.bytes, crc32c: self.crc32c }
    }

    pub(crate) fn from_record(record: ObjectRecord) -> Self {
        ObjectRef { key: record.key, version: record.version, bytes: record.bytes, crc32c: record.crc32c }
    }
}

fn directory_of(directory: &Directory, key: &str) -> PathBuf {
    directory.objects().join(key)
}

/// Where a version lies under the folder of all objects.
pub(crate) fn path_in(objects: &std::path::Path, key: &str, version: u64) -> PathBuf {
    objects.join(key).join(format!("{version:020}.safetensors"))
}

fn file_of(directory: &Directory, key: &str, version: u64) -> PathBuf {
    path_in(&directory.objects(), key, version)
}

/// Where a version lies.
pub(crate) fn path_of(directory: &Directory, object: &ObjectRef) -> PathBuf {
    file_of(directory, &object.key, object.version)
}

/// Reads a version and checks every byte of it.
pub(crate) fn read(directory: &Directory, object: &ObjectRef) -> Result<Vec<u8>> {
    check_name("object", &object.key)?; // a name may come from anybody, and a path would lead elsewhere
    let path = file_of(directory, &object.key, object.version);
    let payload = directory.disk.read(&path).map_err(|e| Cause::io("read", &path, e))?;
    if payload.len() as u64 != object.bytes || crate::checksum::crc32c(&payload) != object.crc32c {
        return Err(not_as_committed(object, path, payload.len() as u64));
    }
    Ok(payload)
}

/// The error of a version whose file holds something else.
pub(super) fn not_as_committed(object: &ObjectRef, path: PathBuf, found: u64) -> Error {
    let ObjectRef { key, version, bytes, .. } = object;
    let reason = format!(
        "object {key:?} version {version} has {found} bytes with another checksum than the {bytes} bytes that were committed"
    );
    Cause::Corrupt { path, offset: 0, reason }.into()
}

/// What the file of a version holds, whoever wrote it. It is read in pieces: a state of a trainer does not fit into memory twice.
///
/// # Errors
/// When the file is not there, or cannot be read.
pub(crate) fn found(directory: &Directory, object: &ObjectRef) -> io::Result<ObjectRef> {
    let file = directory.disk.open(&path_of(directory, object))?;
    let bytes = file.length()?;
    let crc32c = crate::checksum::crc32c_of(&*file, 0..bytes)?;
    Ok(ObjectRef { bytes, crc32c, ..object.clone() })
}

/// Checks that a version is there in its full length, without reading it.
pub(crate) fn check(directory: &Directory, object: &ObjectRef) -> Result<()> {
    let ObjectRef { key, version, bytes, .. } = object;
    let path = file_of(directory, key, *version);
    check_there(directory, object)?;
    let file = directory.disk.open(&path).map_err(|e| Cause::io("open", &path, e))?;
    let found = file.length().map_err(|e| Cause::io("measure", &path, e))?;
    if found != *bytes {
        let reason = format!("object {key:?} version {version} has {found} bytes, {bytes} are meant");
        return Err(Cause::Argument { what: "objects", reason }.into());
    }
    Ok(())
}

/// Checks that a version is there, by its name. For a decision under the state's lock, under which names are taken away.
pub(crate) fn check_there(directory: &Directory, object: &ObjectRef) -> Result<()> {
    let ObjectRef { key, version, .. } = object;
    if check_name("object", key).is_ok() {
        let path = file_of(directory, key, *version);
        if directory.disk.exists(&path).map_err(|e| Cause::io("look for", &path, e))? {
            return Ok(());
        }
    }
    let name = format!("{key} version {version}");
    Err(Cause::Unknown { what: "object", name, close: None }.into())
}

fn files_of(directory: &Directory, key: &str, extension: &str) -> Vec<PathBuf> {
    let mut files = directory.disk.list(&directory_of(directory, key)).unwrap_or_default();
    files.retain(|path| path.extension().is_some_and(|found| found == extension));
    files
}

/// The versions of a key that have a file, whoever wrote it.
pub(crate) fn versions_in(directory: &Directory, key: &str) -> Vec<u64> {
    files_of(directory, key, "safetensors").iter().filter_map(|path| number_of(path)).collect()
}

/// Files of a key that were set aside and not removed since.
pub(crate) fn left_aside(directory: &Directory, key: &str) -> Vec<PathBuf> {
    files_of(directory, key, ASIDE)
}
