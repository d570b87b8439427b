//! Objects as a process sees them that reads beside the one that writes.
//!
//! It has no catalog, no lease, and changes nothing: it looks at what the writer leaves for whoever comes after it, the files of
//! the disk tier and the journal of the host tier. Nobody waits for it, so what it has found may be gone before it is read:
//! - A file stays as long as it is open, whatever becomes of its name; chunks are checked as they are read.
//! - Bytes of a segment are copied by `read`, and the journal is looked at again after that. The writer says there that a version
//!   is gone before its memory is anybody else's; so when it still stands where it was, what was copied is the version's, and
//!   otherwise it is looked for anew. Checksums are held against the copy besides.

mod copied;
mod found;

use std::fmt;
use std::io::ErrorKind;
use std::sync::Arc;

pub use copied::CopiedObject;
use copied::Source;
pub(crate) use found::files_set;
use found::{Found, Known, look, look_at_key};

use super::catalog::newest_as_text;
use super::host::{look_at_host, read_segment};
use super::objects::ObjectInfo;
use super::options::HostFolder;
use super::version::Tier;
use crate::directory::Directory;
use crate::error::{Cause, Result};

/// How often a version is looked for anew that was gone before it was read.
const TRIES: usize = 32;

/// Reads what is set under keys, beside the process that sets it; see [`Store::object_reader`](crate::Store::object_reader).
#[derive(Clone)]
pub struct ObjectReader {
    directory: Arc<Directory>,
    host_folder: HostFolder,
}

impl ObjectReader {
    pub(crate) fn new(directory: Arc<Directory>, host_folder: HostFolder) -> Self {
        ObjectReader { directory, host_folder }
    }

    /// Every version that can be had now, by key and number; one that goes from memory to its file meanwhile may be missing. How many
    /// hold one is known to the writing process alone: 0 here.
    ///
    /// # Errors
    /// `state` when a folder cannot be read.
    pub fn list(&self) -> Result<Vec<ObjectInfo>> {
        let keys = look(&self.directory, &self.host_folder)?;
        let found = keys.into_values().flat_map(|known| known.versions.into_values());
        let shown = found.map(|found| ObjectInfo {
            tiers: found.tiers(),
            manifest: Arc::new(found.manifest),
            leases: 0,
            once: found.once,
        });
        Ok(shown.collect())
    }

    /// The newest version of a key, in memory of this process's own or from its file.
    ///
    /// # Errors
    /// `input` when there never was such a key; `state` when there is no version of it; `corrupt` when its bytes are damaged;
    /// `retry` when versions come faster than they can be copied.
    pub fn newest(&self, key: &str) -> Result<CopiedObject> {
        self.copy(key, None)
    }

    /// A version of a key.
    ///
    /// # Errors
    /// As for [`newest`](Self::newest); `retry` when it has not come yet.
    pub fn exact(&self, key: &str, version: u64) -> Result<CopiedObject> {
        self.copy(key, Some(version))
    }

    fn copy(&self, key: &str, version: Option<u64>) -> Result<CopiedObject> {
        let mut missed = None;
        for _ in 0..TRIES {
            let mut known = look_at_key(&self.directory, &self.host_folder, key)?;
            let (found, wanted) = (known.take(version)?, version.unwrap_or(known.last));
            let is_it = found.as_ref().is_some_and(|found| found.manifest.version == wanted);
            // It may have gone from memory to its file between the looks at the two: a second pair says whether it is gone.
            if !is_it && missed.replace(wanted) != Some(wanted) {
                continue;
            }
            let Some(found) = found else { return Err(missing(key, version, &known).into()) };
            if let Some(copied) = self.copy_found(found)? {
                return Ok(copied);
            }
            missed = None;
        }
        Err(Cause::ObjectOutran { key: key.to_owned(), tries: TRIES }.into())
    }

    /// `None` when it is not there any more.
    fn copy_found(&self, found: Found) -> Result<Option<CopiedObject>> {
        let Found { manifest, places, disk, .. } = found;
        let copied = |source| Some(CopiedObject::new(manifest.clone(), source, self.directory.clone()));
        if let Some(places) = places {
            let read = look_at_host(&self.host_folder, &self.directory)
                .map_or(Ok(None), |folder| read_segment(&folder, &manifest, &places).map(Some));
            let again = look_at_key(&self.directory, &self.host_folder, &manifest.key)?;
            let now = again.versions.get(&manifest.version).and_then(|found| found.places.as_ref());
            match read {
                _ if now != Some(&places) => return Ok(None),
                Ok(read) => return Ok(read.and_then(|payloads| copied(Source::Memory(payloads)))),
                Err(error) if disk.is_none() => return Err(error),
                Err(error) => tracing::error!(%error, "a damaged copy in the host tier is passed over"),
            }
        }
        let Some(copy) = disk else { return Ok(None) };
        match self.directory.disk.open(&copy.path) {
            Ok(file) => Ok(copied(Source::Disk { file, copy })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Cause::io("open", &copy.path, error).into()),
        }
    }
}

/// Why there is nothing to copy.
fn missing(key: &str, version: Option<u64>, known: &Known) -> Cause {
    let (key, newest) = (key.to_owned(), newest_as_text(known.newest()));
    match version {
        _ if known.last == 0 => Cause::Unknown { what: "object", name: key, close: None },
        Some(wanted) if wanted > known.last => Cause::ObjectNotYet { key, wanted, newest },
        wanted => Cause::ObjectGone { key, wanted: wanted.unwrap_or(known.last), newest },
    }
}

impl Found {
    fn tiers(&self) -> Vec<Tier> {
        let host = self.places.iter().map(|_| Tier::Host);
        host.chain(self.disk.iter().map(|_| Tier::Disk)).collect()
    }
}

impl fmt::Debug for ObjectReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectReader of {}", self.directory.path.display())
    }
}
