//! The machine's own file system.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSliceMut, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Advice, FallocateFlags, FlockOperation};
use rustix::io::ReadWriteFlags;

use super::linkless::Linkless;
use super::past_cache::PastCache;
use super::{Disk, DiskFile, HeldLock, LARGE_PAGE_BYTES, LockKind, Mapping};

/// Files of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalDisk;

/// An open file of theirs.
#[derive(Debug)]
pub(super) struct LocalFile {
    file: File,
    writable: bool,
}

/// An advisory `flock`. The kernel drops it with the last descriptor of the open file; a process that is being forked off
/// while the owner lets go has one too until it becomes another program, so the owner lets go in so many words. A forked
/// child must not: the lock is its parent's.
#[derive(Debug)]
struct LocalLock {
    file: File,
    owner: u32,
}

impl Drop for LocalLock {
    fn drop(&mut self) {
        if self.owner == std::process::id() {
            let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock); // else it goes with the descriptor
        }
    }
}

impl HeldLock for LocalLock {}

impl LocalFile {
    pub(super) fn of(file: File, writable: bool) -> Self {
        LocalFile { file, writable }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Whether the kernel holds a byte in memory.
    pub(super) fn has_cached(&self, offset: u64) -> bool {
        let mut byte = [0];
        let into = &mut [IoSliceMut::new(&mut byte)];
        rustix::io::preadv2(&self.file, into, offset, ReadWriteFlags::NOWAIT).is_ok()
    }
}

impl DiskFile for LocalFile {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        (&self.file).write_all(bytes)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn occupied(&self) -> io::Result<u64> {
        const BLOCK_BYTES: u64 = 512; // of `st_blocks`, whatever the file system's own are
        Ok(self.file.metadata()?.blocks() * BLOCK_BYTES)
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, length) {
            // A file system that cannot reserve (some network and memory ones) still gets a file of the right length.
            Err(rustix::io::Errno::OPNOTSUPP) => self.file.set_len(length),
            other => Ok(other?),
        }
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, how, offset, length) {
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            other => Ok(other?),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn begin_sync(&self, offset: u64, length: u64) -> io::Result<()> {
        start_writeback(&self.file, offset, length)
    }

    fn drop_cached(&self) -> io::Result<()> {
        Ok(rustix::fs::fadvise(&self.file, 0, None, Advice::DontNeed)?) // no length: to the end
    }

    fn map(&self, length: usize) -> io::Result<Arc<Mapping>> {
        Mapping::file(&self.file, length, self.writable).map(Arc::new)
    }

    fn map_to_fill(&self, length: usize) -> io::Result<(Arc<Mapping>, bool)> {
        let mapping = self.map(length)?;
        if (length as u64) < LARGE_PAGE_BYTES {
            return Ok((mapping, false));
        }
        mapping.advise_large_pages();
        mapping.write(0, &[0]); // what the file holds there; the whole of a large page comes with it
        Ok((mapping, self.has_cached(LARGE_PAGE_BYTES - 1)))
    }

    fn is_cached(&self, length: u64) -> bool {
        (0..length).step_by(LARGE_PAGE_BYTES as usize).all(|offset| self.has_cached(offset))
    }
}

/// Starts the writing of the dirty pages of a range. Where the system has no such call nothing is lost: the sync does it all.
fn start_writeback(file: &File, offset: u64, length: u64) -> io::Result<()> {
    let [Ok(offset), Ok(length)] = [offset, length].map(i64::try_from) else { return Ok(()) };
    #[allow(unsafe_code, reason = "rustix has no sync_file_range")]
    // SAFETY: the descriptor is open for as long as `file` is borrowed, and the call takes numbers alone.
    let done =
        unsafe { libc::sync_file_range(file.as_raw_fd(), offset, length, libc::SYNC_FILE_RANGE_WRITE) };
    match (done == 0).then_some(()).ok_or_else(io::Error::last_os_error) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL | libc::ESPIPE)) => {
            Ok(())
        }
        other => other,
    }
}

fn created(path: &Path) -> io::Result<File> {
    OpenOptions::new().create_new(true).read(true).write(true).open(path)
}

impl Disk for LocalDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(LocalFile::of(created(path)?, true)))
    }

    fn create_past_cache(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(PastCache::of(LocalFile::of(created(path)?, true), true))
    }

    fn open_past_cache(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(PastCache::of(LocalFile::of(File::open(path)?, false), false))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(LocalFile { file: File::open(path)?, writable: false }))
    }

    fn open_writable(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut file = OpenOptions::new().read(true).write(true).open(path)?;
        file.seek(io::SeekFrom::End(0))?;
        Ok(Box::new(LocalFile { file, writable: true }))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let mut paths: Vec<PathBuf> =
            fs::read_dir(path)?.map(|entry| entry.map(|e| e.path())).collect::<io::Result<_>>()?;
        paths.sort();
        Ok(paths)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn without_links(&self, from: &Path, path: &Path) -> io::Result<Option<Box<dyn Disk>>> {
        Ok(Some(Box::new(Linkless::open(from, path)?)))
    }

    fn boot(&self) -> u128 {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        u128::from_str_radix(&digits, 16).unwrap_or(0)
    }

    fn lock(&self, path: &Path, kind: LockKind, note: &str) -> io::Result<Option<Box<dyn HeldLock>>> {
        let exclusive = kind == LockKind::Exclusive;
        let file =
            OpenOptions::new().create(exclusive).read(true).write(exclusive).truncate(false).open(path)?;
        let operation = match kind {
            LockKind::Exclusive => FlockOperation::NonBlockingLockExclusive,
            LockKind::Shared => FlockOperation::NonBlockingLockShared,
        };
        match rustix::fs::flock(&file, operation) {
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            other => other?,
        }
        if exclusive {
            file.set_len(0)?;
            file.write_all_at(note.as_bytes(), 0)?;
        }
        Ok(Some(Box::new(LocalLock { file, owner: std::process::id() })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::StoreFence;

    #[test]
    fn pages_that_are_let_go_of_come_back_with_what_was_stored_and_take_more() {
        let folder = tempfile::tempdir().unwrap();
        let length = 2 * LARGE_PAGE_BYTES as usize;
        let file = LocalDisk.create(&folder.path().join("extent")).unwrap();
        file.allocate(length as u64).unwrap();
        let (mapping, _) = file.map_to_fill(length).unwrap();
        let value: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
        for offset in [0, 4096, length - value.len()] {
            let crc = mapping.write_summed(offset, &value, 0, &StoreFence::default());
            assert_eq!(crc, crate::checksum::crc32c(&value));
            file.sync().unwrap(); // protects the pages
            mapping.let_go_of_pages();
            assert_eq!(
                mapping.stable(offset, value.len()),
                Some(&value[..]),
                "at {offset}, through the mapping"
            );
            let mut read = vec![0; value.len()];
            file.read_at(&mut read, offset as u64).unwrap();
            assert_eq!(read, value, "at {offset}, out of the file");
        }
    }
}
