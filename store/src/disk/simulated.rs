//! A disk in memory that fails when told to.
//!
//! It plays the death of a *process*: what was written stays (the kernel has it), the operation under way when the
//! process dies is done in part, and nothing after it happens at all. Each creating, writing, allocating, renaming,
//! removing or syncing call is one point at which that can happen. [`SimulatedDisk::fail_at`] picks the point,
//! [`SimulatedDisk::operations`] counts them, and [`SimulatedDisk::restart`] gives the disk to the next process.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Disk, DiskFile, HeldLock, LockKind, Mapping};

/// A file system in memory; clones share it.
#[derive(Clone, Debug, Default)]
pub struct SimulatedDisk(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    files: BTreeMap<PathBuf, Arc<Mutex<Image>>>,
    directories: Vec<PathBuf>,
    locks: BTreeMap<PathBuf, Arc<()>>,
    operations: u64,
    fail_at: Option<u64>,
    dead: bool,
    boots: u64,
}

/// What one file holds: bytes that are appended, or one mapping that is stored into.
#[derive(Debug)]
enum Image {
    Bytes(Vec<u8>),
    Mapped(Arc<Mapping>),
}

impl Image {
    fn overwrite(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let end = start.checked_add(bytes.len()).ok_or(io::ErrorKind::InvalidInput)?;
        match self {
            Image::Mapped(mapping) if end > mapping.len() => return Err(io::ErrorKind::InvalidInput.into()),
            Image::Mapped(mapping) => mapping.write(start, bytes),
            Image::Bytes(image) => {
                image.resize(image.len().max(end), 0);
                image[start..end].copy_from_slice(bytes);
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct SimulatedFile {
    disk: SimulatedDisk,
    image: Arc<Mutex<Image>>,
}

#[derive(Debug)]
struct SimulatedLock {
    _token: Arc<()>,
}

impl HeldLock for SimulatedLock {}

impl SimulatedDisk {
    /// How many operations that can fail have been asked for so far.
    pub fn operations(&self) -> u64 {
        self.0.lock().operations
    }

    /// The process dies in its `operation`-th operation from the disk's first on (counted from 1).
    pub fn fail_at(&self, operation: u64) {
        self.0.lock().fail_at = Some(operation);
    }

    /// The next process finds the disk as the last one left it, with its locks released.
    pub fn restart(&self) {
        let mut inner = self.0.lock();
        inner.dead = false;
        inner.fail_at = None;
        inner.locks.clear();
    }

    /// As [`restart`](Self::restart), after the machine was started again: the next process cannot rely on the kernel to
    /// have kept anything. What a power failure took is for the test to take away.
    pub fn reboot(&self) {
        self.restart();
        self.0.lock().boots += 1;
    }

    /// Changes one byte of a file, as a failing medium would.
    pub fn flip_byte(&self, path: &Path, offset: usize) {
        let image = self.0.lock().files[path].clone();
        match &mut *image.lock() {
            Image::Bytes(bytes) => bytes[offset] ^= 0x5A,
            Image::Mapped(mapping) => {
                let byte = mapping.stable(offset, 1).map_or(0, |bytes| bytes[0]);
                mapping.write(offset, &[byte ^ 0x5A]);
            }
        }
    }

    /// Cuts a file to `length` bytes, as a torn append leaves it.
    pub fn truncate(&self, path: &Path, length: usize) {
        if let Image::Bytes(bytes) = &mut *self.0.lock().files[path].lock() {
            bytes.truncate(length);
        }
    }

    /// Counts one operation. `Ok(true)` when the process dies in the middle of it.
    fn step(&self) -> io::Result<bool> {
        let mut inner = self.0.lock();
        if inner.dead {
            return Err(io::Error::other("the simulated process is dead"));
        }
        inner.operations += 1;
        inner.dead = inner.fail_at == Some(inner.operations);
        Ok(inner.dead)
    }

    /// An operation that either happens or not: the process dies before it.
    fn step_whole(&self) -> io::Result<()> {
        if self.step()? { Err(io::Error::other("the simulated process died here")) } else { Ok(()) }
    }

    fn file(&self, path: &Path) -> io::Result<Arc<Mutex<Image>>> {
        self.0.lock().files.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl DiskFile for SimulatedFile {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let dies = self.disk.step()?;
        let kept = if dies { bytes.len() / 2 } else { bytes.len() };
        match &mut *self.image.lock() {
            Image::Bytes(image) => image.extend_from_slice(&bytes[..kept]),
            Image::Mapped(_) => return Err(io::Error::other("append to a mapped file")),
        }
        if dies { Err(io::Error::other("the simulated process died in this write")) } else { Ok(()) }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let dies = self.disk.step()?;
        let kept = if dies { bytes.len() / 2 } else { bytes.len() };
        self.image.lock().overwrite(offset, &bytes[..kept])?;
        if dies { Err(io::Error::other("the simulated process died in this write")) } else { Ok(()) }
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        let image = self.image.lock();
        let bytes = match &*image {
            Image::Bytes(bytes) => bytes.as_slice(),
            Image::Mapped(mapping) => mapping.stable(0, mapping.len()).unwrap_or_default(),
        };
        let range =
            bytes.get(offset..offset.saturating_add(buffer.len())).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(range);
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(match &*self.image.lock() {
            Image::Bytes(bytes) => bytes.len() as u64,
            Image::Mapped(mapping) => mapping.len() as u64,
        })
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        self.disk.step_whole()?;
        let length = usize::try_from(length).map_err(io::Error::other)?;
        if let Image::Bytes(bytes) = &mut *self.image.lock() {
            bytes.resize(length, 0);
        }
        Ok(())
    }

    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        self.disk.step_whole()?;
        let length = usize::try_from(length).map_err(io::Error::other)?;
        self.image.lock().overwrite(offset, &vec![0; length])
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.step_whole()
    }

    fn map(&self, length: usize) -> io::Result<Arc<Mapping>> {
        let mut image = self.image.lock();
        let mapping = match &*image {
            Image::Mapped(mapping) => return Ok(mapping.clone()),
            Image::Bytes(bytes) => {
                let mapping = Mapping::memory(length);
                mapping.write(0, &bytes[..bytes.len().min(length)]);
                Arc::new(mapping)
            }
        };
        *image = Image::Mapped(mapping.clone());
        Ok(mapping)
    }
}

impl Disk for SimulatedDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.step_whole()?;
        let image = Arc::new(Mutex::new(Image::Bytes(Vec::new())));
        let mut inner = self.0.lock();
        if inner.files.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        inner.files.insert(path.to_owned(), image.clone());
        Ok(Box::new(SimulatedFile { disk: self.clone(), image }))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(SimulatedFile { disk: self.clone(), image: self.file(path)? }))
    }

    fn open_writable(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.open(path)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.step_whole()?;
        let mut inner = self.0.lock();
        inner.directories.extend(path.ancestors().map(Path::to_owned));
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let inner = self.0.lock();
        if !inner.directories.iter().any(|directory| directory == path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut names: Vec<PathBuf> = inner
            .files
            .keys()
            .chain(&inner.directories)
            .filter(|p| p.parent() == Some(path))
            .cloned()
            .collect();
        names.sort();
        names.dedup();
        Ok(names)
    }

    fn exists(&self, path: &Path) -> bool {
        let inner = self.0.lock();
        inner.files.contains_key(path) || inner.directories.iter().any(|directory| directory == path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step_whole()?;
        let mut inner = self.0.lock();
        let image = inner.files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        inner.files.insert(to.to_owned(), image);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.step_whole()?;
        self.0.lock().files.remove(path).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync_directory(&self, _path: &Path) -> io::Result<()> {
        self.step_whole()
    }

    fn boot(&self) -> u128 {
        u128::from(self.0.lock().boots) + 1
    }

    fn lock(&self, path: &Path, _kind: LockKind, note: &str) -> io::Result<Option<Box<dyn HeldLock>>> {
        let mut inner = self.0.lock();
        if inner.locks.get(path).is_some_and(|token| Arc::strong_count(token) > 1) {
            return Ok(None);
        }
        let token = Arc::new(());
        inner.locks.insert(path.to_owned(), token.clone());
        inner.files.insert(path.to_owned(), Arc::new(Mutex::new(Image::Bytes(note.as_bytes().to_vec()))));
        Ok(Some(Box::new(SimulatedLock { _token: token })))
    }
}
