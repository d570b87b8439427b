//! The copies that a version has, one a tier at most.

use std::path::PathBuf;
use std::sync::Arc;

use super::disk::DiskCopy;
use super::host::HostExtent;
use super::manifest::{Chunk, Manifest};
use crate::error::{Cause, Result};
use crate::sync::atomic::{AtomicBool, Ordering};

/// Where an object's bytes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Memory of this machine.
    #[default]
    Host,
    /// A file in the store's directory.
    Disk,
}

/// A version's bytes in memory. The memory is given back with the last one who knows it.
#[derive(Debug)]
pub(crate) struct HostCopy {
    pub(crate) extents: Arc<Vec<HostExtent>>,
    /// Whether its bytes have matched their checksums since this process knows them.
    checked: AtomicBool,
    /// Whether nobody but this process was ever given to write it.
    pub(crate) ours: bool,
}

impl HostCopy {
    pub(crate) fn new(extents: Arc<Vec<HostExtent>>, checked: bool, ours: bool) -> Self {
        HostCopy { extents, checked: AtomicBool::new(checked), ours }
    }

    /// Where the payloads lie in segments; `None` when one of them does not.
    pub(crate) fn places(&self) -> Option<Vec<(u32, u64)>> {
        self.extents.iter().map(HostExtent::place).collect()
    }

    /// Checks one chunk.
    pub(crate) fn check_chunk(&self, manifest: &Manifest, chunk: &Chunk) -> Result<()> {
        let extent = &self.extents[chunk.payload];
        if extent.sum(chunk.range.start, chunk.range.end - chunk.range.start) == manifest.checksum(chunk) {
            return Ok(());
        }
        let (path, offset) = extent.name_of(chunk.range.start);
        Err(Cause::Corrupt { path, offset, reason: manifest.mismatch(chunk) }.into())
    }

    pub(crate) fn verify(&self, manifest: &Manifest) -> Result<()> {
        manifest.chunks().try_for_each(|chunk| self.check_chunk(manifest, &chunk))?;
        self.checked.store(true, Ordering::Release);
        Ok(())
    }

    /// Checks what an earlier process has left, once.
    pub(crate) fn verify_once(&self, manifest: &Manifest) -> Result<()> {
        if self.checked.load(Ordering::Acquire) { Ok(()) } else { self.verify(manifest) }
    }
}

/// The copies of a version.
#[derive(Clone, Debug, Default)]
pub(crate) struct Copies {
    pub(crate) host: Option<Arc<HostCopy>>,
    pub(crate) disk: Option<Arc<DiskCopy>>,
}

impl Copies {
    pub(crate) fn host(copy: Arc<HostCopy>) -> Self {
        Copies { host: Some(copy), disk: None }
    }

    pub(crate) fn tiers(&self) -> Vec<Tier> {
        let host = self.host.iter().map(|_| Tier::Host);
        host.chain(self.disk.iter().map(|_| Tier::Disk)).collect()
    }

    /// The file, if there is one.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        self.disk.as_ref().map(|disk| disk.path.clone())
    }
}
