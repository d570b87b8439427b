//! An open file of a simulated disk.

use std::io;
use std::sync::Arc;

use super::inode::Inode;
use super::operation::DiskOperation;
use super::{Part, SimulatedDisk};
use crate::disk::mapping::StoreTarget;
use crate::disk::{DiskFile, Mapping};
use crate::sync::Mutex;

/// A handle: it does nothing any more once its process is gone.
#[derive(Clone, Debug)]
pub(super) struct SimulatedFile {
    pub(super) disk: SimulatedDisk,
    pub(super) inode: Arc<Mutex<Inode>>,
    pub(super) writable: bool,
    pub(super) life: u64,
}

impl SimulatedFile {
    fn ask(&self, operation: DiskOperation, bytes: usize) -> io::Result<Part> {
        if operation.changes() && !self.writable {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        self.disk.ask(self.life, operation, bytes)
    }

    /// Room that a write at `offset` needs beyond what the file has.
    fn grows_by(&self, end: usize) -> usize {
        end.saturating_sub(self.inode.lock().len())
    }

    fn write(&self, bytes: &[u8], offset: Option<u64>) -> io::Result<()> {
        let offset = offset.map(usize::try_from).transpose().map_err(io::Error::other)?;
        let start = offset.unwrap_or_else(|| self.inode.lock().len());
        let part = self.ask(DiskOperation::Write, bytes.len())?;
        let room = self.disk.room(self.grows_by(start + bytes.len()));
        let kept = part.of(bytes.len()).min(bytes.len() - room.missing);
        self.inode.lock().write(start, &bytes[..kept])?;
        part.end()?;
        room.check()
    }
}

impl DiskFile for SimulatedFile {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        self.write(bytes, None)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write(bytes, Some(offset))
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.ask(DiskOperation::Read, 0)?.end()?;
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        let inode = self.inode.lock();
        let range = inode.bytes().get(offset..offset.saturating_add(buffer.len()));
        buffer.copy_from_slice(range.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.inode.lock().len() as u64)
    }

    fn occupied(&self) -> io::Result<u64> {
        Ok(self.inode.lock().occupied())
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        let part = self.ask(DiskOperation::Allocate, 0)?;
        let length = usize::try_from(length).map_err(io::Error::other)?;
        let (grows_by, holes) = (self.grows_by(length), self.inode.lock().holes_before(length));
        self.disk.room(grows_by + holes).check()?;
        if part.whole() && grows_by + holes > 0 {
            self.inode.lock().reserve_space(length)?;
        }
        part.end()
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        let part = self.ask(DiskOperation::SetLength, 0)?;
        if part.whole() {
            self.inode.lock().set_length(usize::try_from(length).map_err(io::Error::other)?)?;
        }
        part.end()
    }

    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        let part = self.ask(DiskOperation::Punch, 0)?;
        if part.whole() {
            let [offset, length] = [offset, length].map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
            self.inode.lock().punch(offset, length);
        }
        part.end()
    }

    fn sync(&self) -> io::Result<()> {
        let part = self.disk.ask(self.life, DiskOperation::Sync, 0)?;
        if part.forgets() {
            self.disk.with_dice(|dice| self.inode.lock().sync_some_and_forget(dice));
        } else if part.whole() {
            self.inode.lock().sync();
        }
        part.end()
    }

    /// What begins its way there may arrive at any time, as all that is not synced may.
    fn begin_sync(&self, _offset: u64, _length: u64) -> io::Result<()> {
        let part = self.disk.ask(self.life, DiskOperation::BeginSync, 0)?;
        if part.forgets() {
            self.disk.with_dice(|dice| self.inode.lock().sync_some_and_forget(dice));
        }
        part.end()
    }

    fn drop_cached(&self) -> io::Result<()> {
        self.disk.with_dice(|dice| self.inode.lock().drop_cached(dice));
        Ok(())
    }

    fn map(&self, length: usize) -> io::Result<Arc<Mapping>> {
        self.ask(DiskOperation::Map, 0)?.end()?;
        let pages = self.inode.lock().pages(length, self.writable)?;
        Ok(Arc::new(Mapping::simulated(pages, length, Box::new(self.clone()))))
    }
}

impl StoreTarget for SimulatedFile {
    fn store(&self, offset: usize, bytes: &[u8]) {
        assert!(self.writable, "a store into a read-only mapping");
        // Nobody hears of an error here: the thread is dead, or was never there.
        if let Ok(part) = self.disk.ask(self.life, DiskOperation::MappedStore, bytes.len()) {
            self.inode.lock().store(offset, &bytes[..part.of(bytes.len())]);
        }
    }
}
