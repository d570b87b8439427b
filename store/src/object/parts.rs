//! Objects that steps name, written and read in parts: for whoever has not, or does not want, all of one in memory.
//!
//! What is written so is as invisible as what [`Store::put_object`] writes until it is finished, and gone where it never is. What is
//! read is checked on the way, and its last part is given out only where all of them are what was committed.

use std::path::PathBuf;

use super::named::{self, ObjectRef};
use super::puts::Unnamed;
use crate::disk::DiskFile;
use crate::error::{Cause, Result};
use crate::schema::check_name;
use crate::store::Store;

/// A version of an object that is being written. Dropped before it is finished, it leaves nothing.
///
/// ```
/// # use forebay_store::*;
/// # let dir = tempfile::tempdir().unwrap();
/// # let store = Store::open(dir.path().join("store"), Options::default())?;
/// let mut put = store.begin_put("weights", 1)?;
/// put.write(b"half")?;
/// put.write(b" and half")?;
/// let object = put.finish()?;
/// assert_eq!(object, store.put_object("weights", 1, b"half and half")?);
/// # Ok::<(), forebay_store::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "what is not finished is gone"]
pub struct ObjectPut {
    store: Store,
    unnamed: Unnamed,
}

impl ObjectPut {
    pub(crate) fn new(store: Store, unnamed: Unnamed) -> Self {
        ObjectPut { store, unnamed }
    }

    /// Writes what comes next.
    ///
    /// # Errors
    /// `capacity` when the disk is full. What comes after an error is not to be finished.
    pub fn write(&mut self, part: &[u8]) -> Result<()> {
        self.unnamed.append(part)
    }

    /// How many bytes it has so far.
    pub fn bytes(&self) -> u64 {
        self.unnamed.object().bytes
    }

    /// The version is whole.
    ///
    /// # Errors
    /// As for [`Store::put_object`].
    pub fn finish(self) -> Result<ObjectRef> {
        self.store.finish_put(self.unnamed)
    }
}

/// A version of an object that is read from its beginning to its end.
#[derive(Debug)]
pub struct ObjectParts {
    object: ObjectRef,
    path: PathBuf,
    file: Box<dyn DiskFile>,
    at: u64,
    crc32c: u32,
}

impl Store {
    /// Reads an object in parts. It is read to its end also where its version is retired meanwhile.
    ///
    /// # Errors
    /// `input` when the key is no name; `corrupt` when it has not the length that was committed.
    pub fn object_parts(&self, object: &ObjectRef) -> Result<ObjectParts> {
        check_name("object", &object.key)?;
        let (object, path) = (object.clone(), named::path_of(&self.0.directory, object));
        let io = |verb: &'static str| {
            let path = path.clone();
            move |error| Cause::io(verb, &path, error)
        };
        let file = self.0.directory.disk.open(&path).map_err(io("open"))?;
        let found = file.length().map_err(io("measure"))?;
        let is_it = found == object.bytes && (found > 0 || object.crc32c == 0);
        let parts = ObjectParts { object, path, file, at: 0, crc32c: 0 };
        if is_it { Ok(parts) } else { Err(parts.corrupt(found)) }
    }
}

impl ObjectParts {
    /// The next part, of so many bytes at most; `None` behind the last.
    ///
    /// # Errors
    /// `corrupt` in place of the last part, where the bytes are not those that were committed.
    pub fn next_part(&mut self, bytes_max: usize) -> Result<Option<Vec<u8>>> {
        let left = self.object.bytes - self.at;
        if left == 0 {
            return Ok(None);
        }
        let mut part = vec![0; bytes_max.min(usize::try_from(left).unwrap_or(usize::MAX))];
        self.file.read_at(&mut part, self.at).map_err(|e| Cause::io("read", &self.path, e))?;
        self.crc32c = crate::checksum::crc32c_append(self.crc32c, &part);
        self.at += part.len() as u64;
        match self.at == self.object.bytes && self.crc32c != self.object.crc32c {
            false => Ok(Some(part)),
            true => Err(self.corrupt(self.at)),
        }
    }

    fn corrupt(&self, found: u64) -> crate::Error {
        named::not_as_committed(&self.object, self.path.clone(), found)
    }
}
