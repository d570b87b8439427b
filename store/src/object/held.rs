//! What a get gives: a version that stays as long as it is held.
//!
//! A lease keeps the file of a version in its place and no handle on it: handles are few, and whoever may read may have thousands of
//! leases. The file is open while it is read.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::bytes::ObjectBytes;
use super::catalog::Ask;
use super::disk::DiskCopy;
use super::host::HostExtent;
use super::layout::Tensor;
use super::lent::Lent;
use super::manifest::Manifest;
use super::mapping::ObjectMapping;
use super::objects::{Get, Objects};
use super::version::{HostCopy, Tier};
use crate::disk::DiskFile;
use crate::error::{Cause, Result};

/// A lease: the version stays, with its bytes, until it is dropped.
#[derive(Debug)]
pub(super) struct Leased {
    pub(super) objects: Objects,
    lease: u64,
    pub(super) manifest: Arc<Manifest>,
}

impl Leased {
    pub(super) fn new(objects: Objects, lease: u64, manifest: Arc<Manifest>) -> Self {
        Leased { objects, lease, manifest }
    }

    /// The version in the tier that is asked for.
    pub(super) fn hold(self, get: &Get) -> Result<Held> {
        let begun = self.objects.now();
        let counters = &self.objects.core.counters;
        if let Some(layout) = get.layout.as_ref().filter(|layout| **layout != self.manifest.layout) {
            counters.layout_mismatches.add(1);
            let (key, version) = (self.manifest.key.clone(), self.manifest.version);
            let (expected, found) = (layout.fingerprint(), self.manifest.layout.fingerprint());
            return Err(Cause::LayoutMismatch { key, version, expected, found }.into());
        }
        let mut lent = None;
        let source = match get.tier {
            Tier::Host => {
                let copy = self.objects.host_copy(&self.manifest)?;
                lent = Lent::lend(&self.objects, &get.owner, &copy.extents)?;
                counters.host_gets.add(1);
                counters.host_get_bytes.add(self.manifest.bytes());
                Source::Host(copy)
            }
            Tier::Disk => {
                let copy = self.objects.disk_copy(&self.manifest)?;
                copy.open(&*self.objects.core.directory.disk)?; // what cannot be read is not given
                counters.disk_gets.add(1);
                counters.disk_get_bytes.add(self.manifest.bytes());
                Source::Disk
            }
        };
        counters.get_microseconds.add(self.objects.now().since(begun).as_micros() as u64);
        Ok(Held { source, lent, leased: self })
    }

    pub(super) fn version(&self) -> u64 {
        self.manifest.version
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        if self.objects.store.check_process().is_err() {
            return; // a forked child: the lease is its parent's
        }
        let kept = self.objects.core.options.versions_kept;
        let (gone, changed) = self.objects.core.catalog.lock().release(self.lease, kept);
        changed.into_iter().for_each(|changed| _ = changed.notify(usize::MAX));
        self.objects.bury(gone);
    }
}

enum Source {
    Host(Arc<HostCopy>),
    Disk,
}

/// A version of an object. As long as it is held its bytes stay where they are, whatever else happens to the key.
pub struct Held {
    // Before the lease: whoever comes next may have the memory once all are gone.
    source: Source,
    /// Where another process has it mapped.
    lent: Option<Lent>,
    leased: Leased,
}

/// One tensor of a held version, or some of its rows.
#[derive(Debug)]
pub struct TensorView<'a> {
    held: &'a Held,
    tensor: &'a Tensor,
    /// In its payload.
    range: Range<u64>,
}

impl Held {
    /// What is known of it.
    pub fn manifest(&self) -> &Manifest {
        &self.leased.manifest
    }

    /// The same, for whoever keeps it.
    pub fn manifest_shared(&self) -> Arc<Manifest> {
        self.leased.manifest.clone()
    }

    /// Its number.
    pub fn version(&self) -> u64 {
        self.leased.version()
    }

    /// Where its bytes are read from.
    pub fn tier(&self) -> Tier {
        if matches!(self.source, Source::Host(_)) { Tier::Host } else { Tier::Disk }
    }

    /// Where the payloads lie in the segments, for another process that maps them: segment and offset. `None` for one in heap
    /// memory or on disk.
    pub fn places(&self) -> Vec<Option<(u32, u64)>> {
        match &self.source {
            Source::Host(copy) => copy.extents.iter().map(HostExtent::place).collect(),
            Source::Disk => vec![None; self.manifest().layout.payloads().len()],
        }
    }

    /// One tensor.
    ///
    /// # Errors
    /// `input` with the nearest name when there is none of that name.
    pub fn tensor(&self, name: &str) -> Result<TensorView<'_>> {
        let tensor = self.manifest().layout.tensor(name)?;
        Ok(TensorView { held: self, tensor, range: tensor.range() })
    }

    /// Fills `buffer` with the bytes of a memory class from byte `offset` of its payload on.
    ///
    /// # Errors
    /// `input` when there are fewer; `corrupt` when their file is damaged, `capacity` when no more files can be opened.
    pub fn read_class(&self, class: &str, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let payload = self.manifest().layout.payload(class)?;
        let limit = self.manifest().layout.payloads()[payload].bytes;
        let end = offset.checked_add(buffer.len() as u64).filter(|end| *end <= limit).ok_or_else(|| {
            let found = format!("{} bytes at {offset}", buffer.len());
            Cause::TensorLength { tensor: class.to_owned(), found, limit }
        })?;
        self.read(payload, offset..end, buffer)
    }

    fn read(&self, payload: usize, range: Range<u64>, buffer: &mut [u8]) -> Result<()> {
        if let Source::Host(copy) = &self.source {
            copy.extents[payload].read(range.start, buffer);
            return Ok(());
        }
        let (copy, file) = self.open()?;
        let read = copy.read_range(&*file, self.manifest(), (payload, range), buffer);
        read.inspect_err(|error| self.leased.objects.count_corrupt(error))
    }

    /// The file that it is read from, opened for one call.
    fn open(&self) -> Result<(Arc<DiskCopy>, Box<dyn DiskFile>)> {
        let objects = &self.leased.objects;
        objects.store.check_process()?; // a forked child: the lease is its parent's, and the file goes with that
        let copy = objects.disk_copy(self.manifest())?;
        let file = copy.open(&*objects.core.directory.disk)?;
        Ok((copy, file))
    }

    /// The bytes of a payload where they lie, which stay for as long as somebody has them; `None` for one on disk.
    pub fn payload_bytes(self: &Arc<Self>, payload: usize) -> Option<ObjectBytes> {
        let length = self.manifest().layout.payloads().get(payload)?.bytes;
        self.address(payload).map(|_| ObjectBytes::held(self.clone(), payload, length))
    }

    pub(super) fn address(&self, payload: usize) -> Option<usize> {
        let Source::Host(copy) = &self.source else { return None };
        Some(copy.extents[payload].address())
    }

    pub(super) fn mapping(&self, payload: usize) -> Option<(ObjectMapping, usize)> {
        let Source::Host(copy) = &self.source else { return None };
        copy.extents[payload].mapping()
    }

    pub(super) fn read_in_memory(&self, payload: usize, offset: u64, buffer: &mut [u8]) {
        if let Source::Host(copy) = &self.source {
            copy.extents[payload].read(offset, buffer);
        }
    }

    /// Checks every chunk where the bytes are now.
    ///
    /// # Errors
    /// `corrupt` with key, version, chunk and tensors.
    pub fn verify(&self) -> Result<()> {
        let manifest = self.manifest();
        let verified = match &self.source {
            Source::Host(copy) => copy.verify(manifest),
            Source::Disk => {
                self.open().and_then(|(copy, file)| copy.read_all(&*file, manifest, |_, _| Ok(())))
            }
        };
        verified.inspect_err(|error| self.leased.objects.count_corrupt(error))
    }

    /// Lets go of it, also where another process had it mapped: it says that it does not use it any more. Dropping it instead
    /// leaves memory that such a process may still use in quarantine until it has ended.
    pub fn release(self) {
        self.let_go();
    }

    /// The same for one that several have: the version goes with the last of them.
    pub fn let_go(&self) {
        self.lent.iter().for_each(Lent::let_go);
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let manifest = self.manifest();
        write!(f, "Held({} version {} in {:?})", manifest.key, manifest.version, self.tier())
    }
}

impl<'a> TensorView<'a> {
    /// What the whole tensor is.
    pub fn tensor(&self) -> &'a Tensor {
        self.tensor
    }

    /// How many bytes there are.
    pub fn bytes_count(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Some of the rows (indices of the first dimension), for readers that take a part each.
    ///
    /// # Errors
    /// `input` when there are fewer.
    pub fn rows(&self, rows: Range<u64>) -> Result<TensorView<'a>> {
        let there = self.tensor.shape.first().copied().unwrap_or(1);
        if rows.start > rows.end || rows.end > there {
            let reason = format!("{:?} has {there} rows, {rows:?} are asked for", self.tensor.name);
            return Err(Cause::Argument { what: "rows", reason }.into());
        }
        let row_bytes = self.tensor.row_bytes();
        let (start, end) = (rows.start * row_bytes, rows.end * row_bytes);
        let range = self.tensor.offset + start..self.tensor.offset + end;
        Ok(TensorView { range, ..*self })
    }

    /// Fills a buffer of exactly as many bytes as there are.
    ///
    /// # Errors
    /// `input` when it has another length; as [`Held::read_class`].
    pub fn read(&self, buffer: &mut [u8]) -> Result<()> {
        if buffer.len() as u64 != self.bytes_count() {
            let found = format!("a buffer of {} bytes", buffer.len());
            let (tensor, limit) = (self.tensor.name.clone(), self.bytes_count());
            return Err(Cause::TensorLength { tensor, found, limit }.into());
        }
        self.held.read(self.tensor.payload, self.range.clone(), buffer)
    }

    /// The bytes in memory of the caller's own.
    ///
    /// # Errors
    /// As [`Held::read_class`].
    pub fn to_vec(&self) -> Result<Vec<u8>> {
        let mut buffer = vec![0; self.bytes_count() as usize];
        self.read(&mut buffer)?;
        Ok(buffer)
    }

    /// The bytes where they lie; `None` where that cannot be had: on disk, and in memory that another process was given to fill.
    pub fn as_bytes(&self) -> Option<&'a [u8]> {
        match &self.held.source {
            Source::Host(copy) if copy.ours => {
                Some(copy.extents[self.tensor.payload].stable(self.range.start, self.bytes_count()))
            }
            _ => None,
        }
    }
}

/// What is asked for by number.
pub(super) fn exactly(manifest: &Manifest) -> Ask {
    Ask::Exact(manifest.version)
}
