//! One extent: a file, its mapping, and the generation of it that this is.
//!
//! An [`Extent`] is one generation. Whoever may read or write its bytes holds an `Arc` of it; the next generation is
//! another `Extent` over the same [`ExtentFile`], made only when no such `Arc` is left but the registry's. So the count
//! of the `Arc` is the token that holds back recycling.

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_buffer::Buffer;

use super::layout::{ExtentHeader, HEADER_BYTES};
use super::liveness::Place;
use crate::copy::StoreFence;
use crate::directory::Directory;
use crate::disk::{Disk, DiskFile, LARGE_PAGE_BYTES, Mapping};
use crate::error::Cause;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync_gate::SyncGate;

/// Tails shorter than this are not worth giving back: the extent would have to reserve them again.
const PUNCH_BYTES_MIN: u64 = 64 << 10;
const PAGE_BYTES: u64 = 4096;
/// In larger extents whole large pages are given back: one that is cut is small pages from then on.
const LARGE_PUNCH_BYTES_MIN: usize = 8 * LARGE_PAGE_BYTES as usize;

/// After so long pages may be protected though nobody has synced them: the kernel looks this often for what it brings to the disk by
/// itself (`dirty_writeback_centisecs`).
const WRITTEN_BACK_AFTER: Duration = Duration::from_secs(5);

/// More generations than a file can have before the kernel brings its header to the disk by itself: each takes a mebibyte of
/// values by default, and it looks for what is half a minute old.
const LOST_GENERATIONS_MAX: u32 = 1 << 16;

/// What stays the same over all generations of an extent.
#[derive(Debug)]
pub(super) struct ExtentFile {
    pub(super) number: u32,
    pub(super) path: PathBuf,
    pub(super) mapping: Arc<Mapping>,
    /// Open while there may be unsynced bytes that somebody needs or a writer; closed otherwise, for file handles are few.
    file: Mutex<Option<Arc<dyn DiskFile>>>,
    /// Something was written since the last sync began.
    unsynced: AtomicBool,
    /// Passed by whoever syncs the file, so that nobody takes a sync under way, or one that failed, for one that is done.
    gate: SyncGate,
    /// Bytes of the disk that it takes.
    reserved: AtomicU64,
    /// Its bytes lie in large pages of memory, as far as is known: then it is filled through the mapping.
    large: AtomicBool,
    /// It was there when the store was opened, and has not been used again since. Generations may have been begun before of which
    /// its header does not tell, for the machine went down; and values of theirs that lie in it would be taken for those of a
    /// later one with that number. So many numbers are passed over, and the header that says so is made stable before anything
    /// else: the next process passes over what may be lost after it.
    found: AtomicBool,
    /// Since when its pages have been mapped; `None` when a sync has protected them since.
    mapped: Mutex<Option<Instant>>,
    /// Whoever opens the store next may use the file again, so the store stays locked for as long as anybody may read it.
    directory: Arc<Directory>,
}

impl ExtentFile {
    /// A file that was there when the store was opened.
    pub(super) fn found(
        directory: &Arc<Directory>,
        number: u32,
        path: PathBuf,
        mapping: Arc<Mapping>,
        occupied: u64,
    ) -> Self {
        let reserved = occupied.min(mapping.len() as u64); // a tail may have been given back
        let found = Self::new(directory, number, path, mapping, None, reserved);
        found.found.store(true, Ordering::Relaxed);
        found
    }

    /// Makes a new file with all of its space reserved, `mapped` if it is to be filled through the mapping where that
    /// pays. What a failure leaves of it is removed.
    pub(super) fn create(
        directory: &Arc<Directory>,
        path: PathBuf,
        number: u32,
        capacity: usize,
        mapped: bool,
    ) -> io::Result<Self> {
        let disk = &directory.disk;
        let file = disk.create(&path)?;
        let map = || if mapped { file.map_to_fill(capacity) } else { Ok((file.map(capacity)?, false)) };
        match file.allocate(capacity as u64).and_then(|()| map()) {
            Ok((mapping, large)) => {
                let created = Self::new(directory, number, path, mapping, Some(file.into()), capacity as u64);
                created.large.store(large, Ordering::Relaxed);
                Ok(created)
            }
            Err(error) => {
                drop(file);
                let _ = disk.remove(&path); // holds nothing; at worst it is found and removed by the next opening
                Err(error)
            }
        }
    }

    fn new(
        directory: &Arc<Directory>,
        number: u32,
        path: PathBuf,
        mapping: Arc<Mapping>,
        file: Option<Arc<dyn DiskFile>>,
        reserved: u64,
    ) -> Self {
        ExtentFile {
            number,
            path,
            mapping,
            file: Mutex::new(file),
            unsynced: AtomicBool::new(false),
            gate: SyncGate::default(),
            reserved: AtomicU64::new(reserved),
            large: AtomicBool::new(false),
            found: AtomicBool::new(false),
            mapped: Mutex::new(Some(Instant::now())),
            directory: directory.clone(),
        }
    }

    /// Whether it is still in its folder. Where nobody can tell, it is held to be.
    pub(super) fn is_named(&self) -> bool {
        !matches!(self.directory.disk.exists(&self.path), Ok(false))
    }

    /// Whether a fault of the mapping maps a large page, and waits for no disk.
    pub(super) fn is_large(&self) -> bool {
        self.large.load(Ordering::Relaxed)
    }

    /// The open file. The lock is let go before anything is done with it, so that no writer waits for a sync.
    fn handle(&self) -> Option<Arc<dyn DiskFile>> {
        self.file.lock().clone()
    }

    pub(super) fn capacity(&self) -> usize {
        self.mapping.len()
    }

    pub(super) fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Notes that something was written; called before any record names it.
    fn changed(&self) {
        self.unsynced.swap(true, Ordering::SeqCst); // after the bytes, in the eyes of every thread
    }

    /// Makes what was written before the call stable. `close` lets the file handle go when that is done: also where somebody
    /// else did it before, for handles are few.
    fn sync(&self, close: bool) -> io::Result<()> {
        let passing = self.gate.enter()?;
        if self.unsynced.swap(false, Ordering::SeqCst) {
            match self.handle() {
                Some(file) => file.sync()?,
                // Closed by who had an earlier generation in hand.
                None if self.is_named() => self.directory.disk.open(&self.path)?.sync()?,
                None => {}
            }
            *self.mapped.lock() = None;
        }
        if close && !self.is_unsynced() {
            *self.file.lock() = None;
        }
        passing.done();
        Ok(())
    }

    /// Whether something was written since the last sync began.
    pub(super) fn is_unsynced(&self) -> bool {
        self.unsynced.load(Ordering::SeqCst)
    }

    /// Whether no sync of it counts any more.
    pub(super) fn has_failed(&self) -> bool {
        self.gate.has_failed()
    }

    /// Closes the file, which nobody writes to or reads any more.
    pub(super) fn let_handle_go(&self) {
        *self.file.lock() = None;
    }

    /// Makes the file ready for its next generation: space reserved again, the new header in place.
    pub(super) fn reuse(&self, disk: &dyn Disk, header: &ExtentHeader) -> io::Result<()> {
        let file = match self.handle() {
            Some(file) => file,
            None => Arc::from(disk.open_writable(&self.path)?),
        };
        *self.file.lock() = Some(file.clone());
        let is_used = header.generation > 0;
        if is_used && self.is_large() && !file.is_cached(self.reserved()) {
            self.large.store(false, Ordering::Relaxed); // what comes back comes in small pages
        }
        if self.reserved() < self.capacity() as u64 {
            file.allocate(self.capacity() as u64)?;
            self.reserved.store(self.capacity() as u64, Ordering::Relaxed);
        }
        if is_used && self.is_large() {
            self.let_go_of_protected();
        }
        file.write_at(0, &header.encode())?;
        self.changed();
        if self.found.swap(false, Ordering::Relaxed) { self.sync(false) } else { Ok(()) }
    }

    /// Whether it was there when the store was opened, and has not been used again since: then that waits for the disk.
    pub(super) fn is_found(&self) -> bool {
        self.found.load(Ordering::Relaxed)
    }

    /// The number of the generation after one, while there is any.
    pub(super) fn generation_after(&self, last: u32) -> Option<u32> {
        last.checked_add(if self.is_found() { LOST_GENERATIONS_MAX + 1 } else { 1 })
    }

    /// Lets go of pages that are protected, or may be: the kernel brings to the disk by itself what has been there for long.
    fn let_go_of_protected(&self) {
        let now = Instant::now();
        let mut mapped = self.mapped.lock();
        if mapped.is_none_or(|since| now.duration_since(since) >= WRITTEN_BACK_AFTER) {
            self.mapping.let_go_of_pages();
            *mapped = Some(now);
        }
    }

    /// Writes by a call to the kernel, which needs no page of the mapping.
    pub(super) fn write_at(&self, offset: usize, bytes: &[u8]) -> io::Result<()> {
        match self.handle() {
            Some(file) => file.write_at(offset as u64, bytes)?,
            None => self.mapping.write(offset, bytes),
        }
        self.changed();
        Ok(())
    }

    /// Has whole pages of what was written begin their way to the disk, for a sync is about to come. Where one is under way
    /// they wait for the next: what failed here beside it, it could take for written.
    pub(super) fn begin_sync(&self, written: Range<usize>) {
        let [start, end] = [written.start, written.end].map(|at| at as u64 / PAGE_BYTES * PAGE_BYTES);
        let Some(file) = self.handle() else { return };
        let Some(passing) = self.gate.try_enter() else { return };
        match file.begin_sync(start, end - start) {
            Ok(()) => passing.done(),
            Err(error) => {
                tracing::warn!(extent = self.number, %error, "values did not get to the disk");
                // Nor does a sync of the next process prove anything, which knows of this one by that alone.
                self.directory.doubt(&Cause::io("sync", self.path.clone(), error).into());
            }
        }
    }

    /// Fills `buffer` by a call to the kernel, which never fails by a signal.
    fn read_at(&self, buffer: &mut [u8], offset: usize) -> io::Result<()> {
        let file = match self.handle() {
            Some(file) => file,
            None => Arc::from(self.directory.disk.open(&self.path)?),
        };
        file.read_at(buffer, offset as u64)
    }

    /// Stores through the mapping.
    pub(super) fn store(&self, offset: usize, bytes: &[u8]) {
        self.mapping.write(offset, bytes);
    }

    /// As [`store`](Self::store), and adds the bytes to a crc32c. Others may look at them once `fence` has
    /// ordered the stores.
    pub(super) fn store_summed(&self, offset: usize, bytes: &[u8], crc: u32, fence: &StoreFence) -> u32 {
        self.mapping.write_summed(offset, bytes, crc, fence)
    }

    /// As [`changed`](Self::changed), for stores through the mapping.
    pub(super) fn stored(&self) {
        self.changed();
    }

    /// Gives back what lies behind `end`.
    fn punch_behind(&self, end: usize) {
        let large = self.is_large() && self.capacity() >= LARGE_PUNCH_BYTES_MIN;
        let page_bytes = if large { LARGE_PAGE_BYTES } else { PAGE_BYTES };
        let (start, capacity) = ((end as u64).next_multiple_of(page_bytes), self.capacity() as u64);
        if start + PUNCH_BYTES_MIN > capacity {
            return;
        }
        let Some(file) = self.handle() else { return };
        match file.punch(start, capacity - start) {
            Ok(()) => self.reserved.store(start, Ordering::Relaxed),
            Err(error) => tracing::debug!(extent = self.number, %error, "a tail was not given back"),
        }
    }
}

/// One generation of an extent.
#[derive(Debug)]
pub(crate) struct Extent {
    file: Arc<ExtentFile>,
    generation: u32,
    /// Nothing is written to it any more.
    sealed: AtomicBool,
    /// Up to where it was written, once it is sealed.
    filled: AtomicU64,
    /// What else is kept by whoever may read it.
    _kept: Option<Arc<dyn Kept>>,
}

/// Something that lives for as long as a reader's values do.
pub(crate) trait Kept: std::fmt::Debug + Send + Sync {}

/// A panic while values are written leaves bytes that no record names; nothing that a reader sees is half done.
impl std::panic::RefUnwindSafe for Extent {}

impl Extent {
    /// A generation that a writer begins.
    pub(super) fn begun(file: Arc<ExtentFile>, generation: u32) -> Self {
        let filled = AtomicU64::new(file.reserved());
        Extent { file, generation, sealed: AtomicBool::new(false), filled, _kept: None }
    }

    /// A generation that was there when the store was opened.
    pub(super) fn found(file: ExtentFile, generation: u32) -> Self {
        Extent::sealed(Arc::new(file), generation, None)
    }

    /// A generation that is read for an answer, which keeps what it was given for it.
    pub(super) fn shown(file: Arc<ExtentFile>, generation: u32, kept: Arc<dyn Kept>) -> Self {
        Extent::sealed(file, generation, Some(kept))
    }

    fn sealed(file: Arc<ExtentFile>, generation: u32, kept: Option<Arc<dyn Kept>>) -> Self {
        let filled = AtomicU64::new(file.reserved());
        Extent { file, generation, sealed: AtomicBool::new(true), filled, _kept: kept }
    }

    pub(super) fn file(&self) -> &Arc<ExtentFile> {
        &self.file
    }

    pub(crate) fn number(&self) -> u32 {
        self.file.number
    }

    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// Number and generation.
    pub(super) fn place(&self) -> Place {
        (self.number(), self.generation)
    }

    pub(crate) fn capacity(&self) -> usize {
        self.file.capacity()
    }

    /// Bytes of the disk that it takes.
    pub(crate) fn reserved(&self) -> u64 {
        self.file.reserved()
    }

    /// Bytes of it that were written, header included; all of them where that is not known.
    pub(super) fn filled(&self) -> u64 {
        self.filled.load(Ordering::Relaxed)
    }

    pub(super) fn is_sealed(&self) -> bool {
        self.sealed.load(Ordering::Acquire)
    }

    /// Nothing more is written to it; what lies behind `end` is given back, unless it may stay.
    pub(super) fn seal(&self, end: usize, tail_stays: bool) {
        if !tail_stays {
            self.file.punch_behind(end.max(HEADER_BYTES));
        }
        self.filled.store(end as u64, Ordering::Relaxed);
        self.sealed.store(true, Ordering::Release);
    }

    /// Makes what was written before the call stable.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync(self.is_sealed())
    }

    /// Where its file is.
    pub(crate) fn path(&self) -> &std::path::Path {
        &self.file.path
    }

    /// Reads what another process may be writing.
    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: usize) -> io::Result<()> {
        self.file.read_at(buffer, offset)
    }

    /// Writes beside another process that does.
    pub(crate) fn write_at(&self, offset: usize, bytes: &[u8]) -> io::Result<()> {
        self.file.write_at(offset, bytes)
    }

    /// Notes that another process has written to it; called before any record names what it wrote.
    pub(crate) fn filled_by_other(&self) {
        self.file.changed();
    }

    /// The bytes of a range that was written before, and does not change while this generation is held.
    pub(crate) fn stable(&self, offset: usize, length: usize) -> Option<&[u8]> {
        self.file.mapping.stable(offset, length)
    }

    /// A range of written values as an Arrow buffer, not copied; the buffer holds the extent.
    pub(crate) fn buffer(self: &Arc<Self>, range: Range<usize>) -> Buffer {
        assert!(self.stable(range.start, range.len()).is_some(), "a window outside its extent");
        let start = self.file.mapping.address(range.start);
        #[allow(unsafe_code, reason = "an Arrow buffer over mapped bytes")]
        // SAFETY: the range lies inside the mapping, as just checked; the mapping lives as long as the `Arc` that the
        // buffer holds; the bytes of values in the range do not change while it is held (see the head of this folder).
        // Bytes between values (padding, trailers, values of others) are written before a later value's record exists. Of an
        // extent that another process fills that is so for all that it says is filled; what it writes there beside that is what
        // being trusted with the files allows, and shows in no value, for each is held against its checksum before it is named.
        unsafe {
            Buffer::from_custom_allocation(start, range.len(), self.clone())
        }
    }
}
