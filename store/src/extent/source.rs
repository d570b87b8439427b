//! Where values come from on their way into extents: the pools of writers and of free files.
//!
//! A call that brings values has a [`ValueWriter`]. It checks an open extent out of the pool with its first value, keeps
//! it for all of them, and puts it back when they are flushed; so there are as many open extents as there were ever
//! calls at the same time, and each is written by one thread at a time with no lock held.
//!
//! A writer whose extent is full begins the next, as large as [`Sizing`] says: a free file where one fits, else, if there
//! is [`Room`], a new one.

mod value_writer;

use std::sync::Arc;

use super::file::{Extent, ExtentFile};
use super::layout::{ExtentHeader, HEADER_BYTES, TRAILER_BYTES};
use super::liveness::Place;
use super::outlook::Outlook;
use super::registry::Extents;
use super::sizing::Sizing;
use super::writer::{Lifetime, Writer};
use crate::aside::Aside;
use crate::directory::Directory;
use crate::error::{Cause, Result};
use crate::limits::Budgets;
use crate::log::MakesRoom;
use crate::options::Options;
use crate::retention::Retention;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::sync::{Mutex, Rank};
use crate::sync_gate::SyncGate;

pub(crate) use value_writer::ValueWriter;

/// Open extents that nobody writes to at the moment; the one used longest ago is sealed when there are more.
const IDLE_WRITERS_MAX: usize = 64;

/// Buffers that nobody gathers in at the moment; they are large, and as many are needed as calls write at the same time.
const IDLE_BUFFERS_MAX: usize = 8;

/// As much of the free files makes way for the log on a full disk: a segment of it, with the default length.
const LOG_ROOM_BYTES: u64 = 64 << 20;

/// Who decides whether there is room for one more extent.
pub(crate) trait Room {
    /// Tries to make extents free that nobody needs any more.
    fn reclaim(&self);

    /// Waits until a new file may be made, and says of how many bytes: as many as are wished, or, where there is no room for those,
    /// the fewest that do; or why there is no room for these either.
    fn reserve(&self, wish: Wish, aside: Aside) -> Result<u64>;
}

/// How large a new file is to be, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) wished: u64,
    pub(crate) least: u64,
}

/// Whom a call asks for room, and how it waits for that.
#[derive(Clone, Copy)]
struct Asking<'a> {
    room: &'a dyn Room,
    aside: Aside,
}

/// The pools of writers and of free files.
#[derive(Debug)]
pub(crate) struct ValueSource {
    directory: Arc<Directory>,
    extents: Arc<Extents>,
    sizing: Sizing,
    bytes_first: usize,
    bytes_max: usize,
    free_bytes_max: u64,
    outlook: Outlook,
    idle: Mutex<Idle>,
    /// Files that nobody may read, with their next generation.
    free: Mutex<Vec<(Arc<ExtentFile>, u32)>>,
    next_extent: AtomicU32,
    written_bytes: AtomicU64,
    recycled: AtomicU64,
    never_synced: AtomicU64,
    /// A file was made since the last sync: its name is not on stable storage.
    begun_unsynced: AtomicBool,
    /// Passed by whoever syncs those names.
    names_gate: SyncGate,
}

/// What no call has.
#[derive(Debug, Default)]
struct Idle {
    /// The one used last at the end.
    writers: Vec<Writer>,
    buffers: Vec<Vec<u8>>,
}

impl ValueSource {
    pub(crate) fn new(
        directory: Arc<Directory>,
        extents: Arc<Extents>,
        named: u32,
        options: &Options,
    ) -> Self {
        ValueSource {
            next_extent: AtomicU32::new(extents.greatest().max(named).saturating_add(1)),
            directory,
            extents,
            sizing: Sizing::new(options.extent_bytes_first, options.extent_bytes_max),
            bytes_first: options.extent_bytes_first,
            bytes_max: options.extent_bytes_max,
            free_bytes_max: options.free_extent_bytes_max,
            outlook: Outlook::new(options),
            idle: Mutex::ranked(Rank::IdleWriters, Idle::default()),
            free: Mutex::ranked(Rank::FreeFiles, Vec::new()),
            written_bytes: AtomicU64::new(0),
            recycled: AtomicU64::new(0),
            never_synced: AtomicU64::new(0),
            begun_unsynced: AtomicBool::new(false),
            names_gate: SyncGate::default(),
        }
    }

    /// What becomes of versions and how much room there is, as far as it says how extents are made and sealed from now on.
    pub(crate) fn expect(&self, retention: Retention, budgets: Budgets) {
        self.outlook.change(retention, budgets);
    }

    /// Bytes of values written to extents since the store was opened.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }

    /// How many times a file was used again since the store was opened.
    pub(crate) fn recycled(&self) -> u64 {
        self.recycled.load(Ordering::Relaxed)
    }

    /// How many extents were over before their last values got to the disk, since the store was opened.
    pub(crate) fn never_synced(&self) -> u64 {
        self.never_synced.load(Ordering::Relaxed)
    }

    /// Bytes of the disk that free files take.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.free.lock().iter().map(|(file, _)| file.reserved()).sum()
    }

    /// Makes every value that was written before the call stable, but for those in extents that are `over`: to be called
    /// before a sync of the log that makes records naming them stable. Extents without unsynced bytes cost nothing; two
    /// calls at once share a sync.
    pub(crate) fn sync_written(&self, over: &[Place]) -> Result<()> {
        self.extents.sync(over)?;
        let path = self.directory.extents();
        let io = |e| Cause::io("sync", &path, e);
        let passing = self.names_gate.enter().map_err(io)?;
        if self.begun_unsynced.swap(false, Ordering::SeqCst) {
            self.directory.disk.sync_directory(&path).map_err(io)?;
        }
        passing.done();
        Ok(())
    }

    /// Begins a call that brings values.
    pub(crate) fn writer<'a>(&'a self, room: &'a dyn Room) -> ValueWriter<'a> {
        ValueWriter::new(self, Asking { room, aside: Aside::default() })
    }

    /// A new extent with room for `length` bytes of values, or as many as the largest has, for another process to fill.
    pub(crate) fn lend(&self, lifetime: Lifetime, length: usize, room: &dyn Room) -> Result<Arc<Extent>> {
        let length = length.min(self.bytes_max.saturating_sub(HEADER_BYTES + 64 + TRAILER_BYTES));
        // It is filled by calls, for which no page has to be made ready.
        self.extent(lifetime, 0, length, false, Asking { room, aside: Aside::default() })
    }

    /// Ends the writing to an extent that was lent, which was filled up to `end`.
    pub(crate) fn take_back(&self, extent: &Extent, end: usize) {
        extent.seal(end, self.outlook.tails_stay());
    }

    /// Seals the open extents of versions below `version`: what is still written to them gets extents of its own.
    pub(crate) fn seal_below(&self, version: u64) {
        let over = |writer: &Writer| match writer.lifetime {
            Lifetime::Version(of) | Lifetime::Fragments(of) => of < version,
            Lifetime::Shared | Lifetime::Moved => false,
        };
        let sealed: Vec<Writer> = self.idle.lock().writers.extract_if(.., |writer| over(writer)).collect();
        self.sizing.learn(&sealed);
        sealed.into_iter().for_each(|writer| drop(writer.seal(self.outlook.tails_stay())));
    }

    /// Seals the open extents of values that outlived theirs, and gives back what they have not filled.
    pub(crate) fn seal_moved(&self) {
        let is_moved = |writer: &mut Writer| writer.lifetime == Lifetime::Moved;
        let sealed: Vec<Writer> = self.idle.lock().writers.extract_if(.., is_moved).collect();
        sealed.into_iter().for_each(|writer| drop(writer.seal(false)));
    }

    /// Takes a file that nobody may read any more: into the pool, or off the disk when the pool is full.
    pub(super) fn give_free(&self, extent: Extent) -> Result<()> {
        let (file, generation) = (extent.file().clone(), extent.generation());
        drop(extent);
        file.let_handle_go();
        if file.is_unsynced() {
            self.never_synced.fetch_add(1, Ordering::Relaxed);
        }
        let reusable = file.capacity() >= self.bytes_first
            && self.extents.is_readable(file.number)
            && !file.has_failed();
        if let Some(next) = file.generation_after(generation).filter(|_| reusable) {
            let mut free = self.free.lock();
            let bytes: u64 = free.iter().map(|(file, _)| file.reserved()).sum();
            if bytes + file.reserved() <= self.free_bytes_max {
                free.push((file, next));
                return Ok(());
            }
        }
        self.remove(&file)
    }

    /// Takes files off the disk, from the pool of free ones, until at least `bytes` are gained. Gives what was.
    pub(crate) fn drop_free(&self, bytes: u64) -> Result<u64> {
        let mut gained = 0;
        while gained < bytes {
            let Some((file, _)) = self.free.lock().pop() else { break };
            gained += file.reserved();
            self.remove(&file)?;
        }
        Ok(gained)
    }

    fn remove(&self, file: &ExtentFile) -> Result<()> {
        tracing::debug!(extent = file.number, "extent deleted");
        let removed = self.directory.disk.remove(&file.path);
        removed.map_err(|e| Cause::io("remove", file.path.clone(), e).into())
    }

    /// A writer with room for a value: the one used last for that lifetime, or one with a new extent.
    fn check_out(
        &self,
        lifetime: Lifetime,
        length: usize,
        align: usize,
        asking: Asking<'_>,
    ) -> Result<Writer> {
        let (last, buffer) = {
            let mut idle = self.idle.lock();
            let last = idle.writers.iter().rposition(|writer| writer.lifetime == lifetime);
            (last.map(|index| idle.writers.remove(index)), idle.buffers.pop().unwrap_or_default())
        };
        let Some(mut writer) = last else {
            return self.begin(lifetime, 0, length, buffer, asking);
        };
        writer.gathered = buffer;
        if writer.fits(length, align) { Ok(writer) } else { self.follow(writer, length, asking) }
    }

    /// The next extent of a writer whose extent is full.
    fn follow(&self, full: Writer, length: usize, asking: Asking<'_>) -> Result<Writer> {
        let (lifetime, written) = (full.lifetime, full.chain_bytes());
        let buffer = full.seal(self.outlook.tails_stay());
        self.begin(lifetime, written, length, buffer, asking)
    }

    /// Takes back a writer whose values are flushed or given up, and its buffer for whoever comes next.
    fn check_in(&self, mut writer: Writer) {
        let buffer = std::mem::take(&mut writer.gathered);
        let oldest = {
            let mut idle = self.idle.lock();
            idle.writers.push(writer);
            if idle.buffers.len() < IDLE_BUFFERS_MAX {
                idle.buffers.push(buffer);
            }
            (idle.writers.len() > IDLE_WRITERS_MAX).then(|| idle.writers.remove(0))
        };
        if let Some(oldest) = oldest {
            oldest.seal(self.outlook.tails_stay());
        }
    }

    /// A writer with the next extent of a chain of which `written` bytes are there.
    fn begin(
        &self,
        lifetime: Lifetime,
        written: u64,
        length: usize,
        buffer: Vec<u8>,
        asking: Asking<'_>,
    ) -> Result<Writer> {
        let extent = self.extent(lifetime, written, length, self.outlook.fills_mapped(), asking)?;
        let path = self.outlook.path_for(extent.file());
        Ok(Writer::new(extent, lifetime, path, written).gathering_in(buffer))
    }

    /// The next extent of a chain of which `written` bytes are there, in a free file or a new one.
    fn extent(
        &self,
        lifetime: Lifetime,
        written: u64,
        length: usize,
        mapped: bool,
        Asking { room, aside }: Asking<'_>,
    ) -> Result<Arc<Extent>> {
        let least = (HEADER_BYTES + length + 64 + TRAILER_BYTES).next_power_of_two();
        let capacity = self.sizing.next(lifetime, written).max(least).min(self.bytes_max);
        let mut free = self.take_free(capacity, least);
        if free.is_none() {
            room.reclaim();
            free = self.take_free(capacity, least);
        }
        let (file, generation) = match free {
            Some(free) => free,
            None => {
                let fewest = least.max(self.bytes_first).min(capacity);
                let wish = Wish { wished: capacity as u64, least: fewest as u64 };
                let granted = room.reserve(wish, aside)? as usize;
                // What was waited for may be a free file.
                match self.take_free(granted, least) {
                    Some(free) => free,
                    None => (Arc::new(self.create_in_room(granted, fewest, mapped)?), 0),
                }
            }
        };
        match file.is_found() {
            true => aside.run(|| self.reuse(&file, generation))?, // it waits for the disk
            false => self.reuse(&file, generation)?,
        }
        tracing::debug!(extent = file.number, generation, capacity = file.capacity(), "extent begun");
        let extent = Arc::new(Extent::begun(file, generation));
        self.extents.add(extent.clone());
        Ok(extent)
    }

    /// The free file that fits best: the smallest that is large enough, else the largest that the value fits into.
    fn take_free(&self, wished: usize, least: usize) -> Option<(Arc<ExtentFile>, u32)> {
        let mut free = self.free.lock();
        let fitting = free.iter().enumerate().filter(|(_, (file, _))| file.capacity() >= least);
        let best = fitting.min_by_key(|(_, (file, _))| {
            let capacity = file.capacity();
            if capacity >= wished { (0, capacity) } else { (1, usize::MAX - capacity) }
        });
        let (index, _) = best?;
        self.recycled.fetch_add(1, Ordering::Relaxed);
        Some(free.swap_remove(index))
    }

    /// As [`create`](Self::create); on a full disk free files make way, and then fewer bytes have to do.
    fn create_in_room(&self, wished: usize, fewest: usize, mapped: bool) -> Result<ExtentFile> {
        let first = self.create(wished, mapped);
        let is_full = |made: &Result<ExtentFile>| {
            made.as_ref().is_err_and(|error| matches!(error.cause(), Cause::DiskFull { .. }))
        };
        if !is_full(&first) {
            return first;
        }
        let again = if self.drop_free(wished as u64)? > 0 { self.create(wished, mapped) } else { first };
        if is_full(&again) && fewest < wished { self.create(fewest, mapped) } else { again }
    }

    fn create(&self, capacity: usize, mapped: bool) -> Result<ExtentFile> {
        let next = self.next_extent.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_add(1));
        let number = next.map_err(|_| Cause::TooMany {
            what: "extents",
            limit: u32::MAX as usize,
            found: u32::MAX as usize,
        })?;
        let path = self.directory.extent_path(number);
        let file = ExtentFile::create(&self.directory, path.clone(), number, capacity, mapped)
            .map_err(|e| Cause::io("create", path, e))?;
        self.begun_unsynced.store(true, Ordering::SeqCst);
        Ok(file)
    }

    /// Puts the header of its next generation into a file. One that fails is neither free nor found any more.
    fn reuse(&self, file: &ExtentFile, generation: u32) -> Result<()> {
        let (store_id, number, capacity) = (self.directory.store_id, file.number, file.capacity() as u64);
        let header = ExtentHeader { number, generation, store_id, capacity };
        file.reuse(&*self.directory.disk, &header).map_err(|error| {
            let _ = self.directory.disk.remove(&file.path); // else the next opening finds it dead
            Cause::io("write to", file.path.clone(), error).into()
        })
    }
}

impl MakesRoom for ValueSource {
    fn make_room(&self) -> bool {
        let before = self.free_bytes();
        if let Err(error) = self.drop_free(LOG_ROOM_BYTES) {
            tracing::warn!(%error, "a free extent could not be removed");
        }
        self.free_bytes() < before // also where one of several could not be removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{DiskOperation, SimulatedDisk};
    use crate::extent::layout::ValueOwner;
    use crate::retention::Retention;
    use crate::schema::StorageClass;

    /// A store's worth of room, for tests of values alone.
    struct Plenty;

    impl Room for Plenty {
        fn reclaim(&self) {}

        fn reserve(&self, wish: Wish, _aside: Aside) -> Result<u64> {
            Ok(wish.wished)
        }
    }

    #[test]
    fn only_extents_with_unsynced_bytes_are_synced() {
        let disk = SimulatedDisk::default();
        let options = Options::default().disk(Arc::new(disk.clone())).extent_bytes(4096, 1 << 16);
        let directory = Arc::new(Directory::open(std::path::Path::new("/store"), &options).unwrap());
        let extents = Arc::new(Extents::open(&directory, true).unwrap());
        let source = ValueSource::new(directory, extents, 0, &options);
        let owner = ValueOwner { row_key: 1, table: 0, column: 0 };
        let write = || {
            let mut writer = source.writer(&Plenty);
            writer.write(&[&[7; 100]], StorageClass::View, Lifetime::Version(0), owner).unwrap();
            writer.flush().unwrap();
        };
        let syncs = || {
            let before = disk.operations();
            source.sync_written(&[]).unwrap();
            disk.operations() - before
        };
        assert_eq!(syncs(), 0, "no extent");
        write();
        assert_eq!((syncs(), syncs()), (2, 0), "one extent and its name, once");
        write();
        assert_eq!((syncs(), syncs()), (1, 0), "the same extent, written again");
    }

    // FX-B10
    #[test]
    fn a_tail_is_given_back_but_where_versions_go_by_themselves_and_no_budget_wants_every_byte() {
        let retired = Retention::default().versions(2);
        let cases = [
            (Options::default(), true),
            (Options::default().retention(retired), false),
            (Options::default().retention(retired).disk_bytes_max(1 << 30), true),
        ];
        for (options, gives_back) in cases {
            let disk = SimulatedDisk::default();
            let options = options.disk(Arc::new(disk.clone())).extent_bytes(1 << 18, 1 << 18);
            let directory = Arc::new(Directory::open(std::path::Path::new("/store"), &options).unwrap());
            let extents = Arc::new(Extents::open(&directory, true).unwrap());
            let source = ValueSource::new(directory, extents.clone(), 0, &options);
            let mut writer = source.writer(&Plenty);
            let owner = ValueOwner { row_key: 1, table: 0, column: 0 };
            let view = writer.write(&[&[7; 100]], StorageClass::View, Lifetime::Version(0), owner).unwrap();
            writer.flush().unwrap();
            drop(writer);
            source.seal_below(1);
            assert_eq!(disk.history().contains(&DiskOperation::Punch), gives_back, "{options:?}");
            let (extent, _) = extents.locate(view).unwrap();
            assert_eq!(extent.reserved() < 1 << 18, gives_back);
            assert!(
                extent.filled() < 4096,
                "an extent is thin by what was written to it, whatever its tail takes"
            );
        }
    }
}
