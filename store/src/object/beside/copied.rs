//! A version that a reader beside the writer has.

use std::fmt;
use std::sync::Arc;

use crate::directory::Directory;
use crate::disk::DiskFile;
use crate::error::Result;
use crate::object::disk::DiskCopy;
use crate::object::set::too_long;
use crate::object::{Manifest, Tier};

/// Where its bytes are.
pub(super) enum Source {
    /// In memory of this process's own, one buffer a payload.
    Memory(Vec<Vec<u8>>),
    Disk {
        file: Box<dyn DiskFile>,
        copy: DiskCopy,
    },
}

/// A version of an object that was copied, or whose file is open: it stays whatever becomes of the version.
pub struct CopiedObject {
    manifest: Manifest,
    source: Source,
    /// As long as it is held, so is the reader's place beside the writer.
    _directory: Arc<Directory>,
}

impl CopiedObject {
    pub(super) fn new(manifest: Manifest, source: Source, directory: Arc<Directory>) -> Self {
        CopiedObject { manifest, source, _directory: directory }
    }

    /// What is known of it.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Its number.
    pub fn version(&self) -> u64 {
        self.manifest.version
    }

    /// Where its bytes were found.
    pub fn tier(&self) -> Tier {
        match self.source {
            Source::Memory(_) => Tier::Host,
            Source::Disk { .. } => Tier::Disk,
        }
    }

    /// The bytes of a tensor: its elements, little-endian, row by row.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn tensor(&self, name: &str) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.manifest.layout.tensor(name)?.bytes as usize];
        self.read(name, 0, &mut bytes)?;
        Ok(bytes)
    }

    /// Fills `buffer` from byte `offset` of a tensor on.
    ///
    /// # Errors
    /// `input` when there is no such tensor, or it has fewer bytes; `corrupt` when the file that they are read from is damaged.
    pub fn read(&self, tensor: &str, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let found = self.manifest.layout.tensor(tensor)?;
        let end = offset.checked_add(buffer.len() as u64).filter(|end| *end <= found.bytes);
        let end =
            end.ok_or_else(|| too_long(tensor, format!("{} bytes at {offset}", buffer.len()), found.bytes))?;
        let range = found.offset + offset..found.offset + end;
        match &self.source {
            Source::Memory(payloads) => {
                buffer.copy_from_slice(&payloads[found.payload][range.start as usize..range.end as usize]);
                Ok(())
            }
            Source::Disk { file, copy } => {
                copy.read_range(&**file, &self.manifest, (found.payload, range), buffer)
            }
        }
    }
}

impl fmt::Debug for CopiedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Manifest { key, version, .. } = &self.manifest;
        write!(f, "CopiedObject({key} version {version} from {:?})", self.tier())
    }
}
