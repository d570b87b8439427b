//! Writes values into extents.
//!
//! A call that brings values checks a writer out of the pool, writes without holding any lock, and puts it back. So
//! there are as many open extents as there were ever calls at the same time, and each is written by one thread at a time.
//! A writer whose extent is full begins the next, twice as large.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::reader::{Extent, Extents};
use super::view::{INLINE_BYTES_MAX, View};
use super::{HEADER_BYTES, TRAILER_BYTES, ValueOwner, header, trailer};
use crate::directory::Directory;
use crate::error::{Cause, Result};
use crate::schema::StorageClass;

/// Where values come from on their way into extents: the pool of writers.
#[derive(Debug)]
pub(crate) struct ValueSource {
    directory: Arc<Directory>,
    extents: Arc<Extents>,
    bytes_first: usize,
    bytes_max: usize,
    idle: Mutex<Vec<Writer>>,
    next_extent: AtomicU32,
    written_bytes: AtomicU64,
    /// An extent was begun since the last sync: its name is not on stable storage.
    begun_unsynced: AtomicBool,
}

#[derive(Debug)]
struct Writer {
    extent: Arc<Extent>,
    next: usize,
}

impl ValueSource {
    pub(crate) fn new(
        directory: Arc<Directory>,
        extents: Arc<Extents>,
        bytes_first: usize,
        bytes_max: usize,
    ) -> Self {
        let next_extent = AtomicU32::new(extents.greatest().saturating_add(1));
        ValueSource {
            directory,
            extents,
            bytes_first,
            bytes_max,
            idle: Mutex::default(),
            next_extent,
            written_bytes: AtomicU64::new(0),
            begun_unsynced: AtomicBool::new(false),
        }
    }

    /// Bytes of values written to extents since the store was opened.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }

    /// Makes every value that was written before the call stable: to be called before a sync of the log that makes
    /// records naming them stable. Extents without unsynced bytes cost nothing; two calls at once share a sync.
    pub(crate) fn sync_written(&self) -> Result<()> {
        self.extents.sync()?;
        if self.begun_unsynced.swap(false, Ordering::AcqRel) {
            let path = self.directory.extents();
            self.directory.disk.sync_directory(&path).map_err(|e| Cause::io("sync", path, e))?;
        }
        Ok(())
    }

    /// Writes one value, made of `parts` in a row, and says where it lies.
    pub(crate) fn write(&self, parts: &[&[u8]], class: StorageClass, owner: ValueOwner) -> Result<View> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if class == StorageClass::View && length <= INLINE_BYTES_MAX {
            return Ok(View::inline(&parts.concat()));
        }
        if length == 0 {
            return Ok(View::default());
        }
        let align = if class == StorageClass::Slice { 64 } else { 8 };
        let needed = HEADER_BYTES + length + 64 + TRAILER_BYTES;
        if needed > self.bytes_max {
            return Err(Cause::ValueTooLarge { bytes: length, limit: self.bytes_max }.into());
        }
        let mut writer = self.check_out(length, align)?;
        let view = writer.write(parts, length, align, owner);
        self.written_bytes.fetch_add(length as u64, Ordering::Relaxed);
        self.idle.lock().push(writer);
        Ok(view)
    }

    /// A writer with room for a value: the one used last, or one with a new extent.
    fn check_out(&self, length: usize, align: usize) -> Result<Writer> {
        let last = self.idle.lock().pop();
        match last {
            Some(writer) if writer.fits(length, align) => Ok(writer),
            Some(full) => self.begin(full.extent.capacity() * 2, length),
            None => self.begin(self.bytes_first, length),
        }
    }

    fn begin(&self, wished: usize, length: usize) -> Result<Writer> {
        let least = (HEADER_BYTES + length + 64 + TRAILER_BYTES).next_power_of_two();
        let capacity = wished.max(least).min(self.bytes_max);
        let number = self.next_extent.fetch_add(1, Ordering::Relaxed);
        let path = self.directory.extents().join(format!("{number:08}.extent"));
        let extent = self.create(number, capacity, &path).map_err(|e| Cause::io("create", &path, e))?;
        tracing::debug!(extent = number, capacity, "extent begun");
        let extent = Arc::new(extent);
        self.extents.add(extent.clone());
        self.begun_unsynced.store(true, Ordering::Release);
        Ok(Writer { extent, next: HEADER_BYTES })
    }

    fn create(&self, number: u32, capacity: usize, path: &Path) -> std::io::Result<Extent> {
        let file = self.directory.disk.create(path)?;
        file.append(&header(self.directory.store_id, number, capacity as u64))?;
        file.allocate(capacity as u64)?;
        Ok(Extent::begun(number, file.map(capacity)?, file))
    }
}

impl Writer {
    fn place(&self, length: usize, align: usize) -> (usize, usize) {
        let start = self.next.next_multiple_of(align);
        (start, (start + length).next_multiple_of(8))
    }

    fn fits(&self, length: usize, align: usize) -> bool {
        self.place(length, align).1 + TRAILER_BYTES <= self.extent.capacity()
    }

    fn write(&mut self, parts: &[&[u8]], length: usize, align: usize, owner: ValueOwner) -> View {
        let (start, end) = self.place(length, align);
        let mapping = self.extent.mapping();
        let mut at = start;
        for part in parts {
            mapping.write(at, part);
            at += part.len();
        }
        let value = mapping.stable(start, length).unwrap_or_default();
        mapping.write(end, &trailer(value, owner, self.extent.number()));
        self.next = end + TRAILER_BYTES;
        self.extent.changed();
        View::located(length as u32, self.extent.number(), 0, start as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::SimulatedDisk;
    use crate::options::Options;

    #[test]
    fn only_extents_with_unsynced_bytes_are_synced() {
        let disk = SimulatedDisk::default();
        let options = Options::default().disk(Arc::new(disk.clone()));
        let directory = Arc::new(Directory::open(Path::new("/store"), &options).unwrap());
        let extents = Arc::new(Extents::open(&directory).unwrap());
        let source = ValueSource::new(directory, extents, 4096, 1 << 16);
        let owner = ValueOwner { row_key: 1, table: 0, column: 0 };
        let syncs = || {
            let before = disk.operations();
            source.sync_written().unwrap();
            disk.operations() - before
        };
        assert_eq!(syncs(), 0, "no extent");
        source.write(&[&[7; 100]], StorageClass::View, owner).unwrap();
        assert_eq!((syncs(), syncs()), (2, 0), "one extent and its name, once");
        source.write(&[&[7; 100]], StorageClass::View, owner).unwrap();
        assert_eq!((syncs(), syncs()), (1, 0), "the same extent, written again");
    }
}
