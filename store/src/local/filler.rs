//! The other end of a lent extent: the process that fills it.

use std::path::Path;
use std::sync::Arc;

use super::cell_name::CellName;
use super::gathered::{Gathered, Unread};
use super::lent::ALIGN_BYTES;
use super::loan::Loan;
use super::lock::FillerLock;
use super::placed::Spot;
use crate::directory::Directory;
use crate::disk::{Disk, DiskFile, LocalDisk};
use crate::error::{Cause, Result};
use crate::extent::{ExtentHeader, HEADER_BYTES, TRAILER_BYTES, Trailer};

/// Fills an extent that a store of another process has lent to this one. Values lie behind each other; none is read or
/// moved again. Dropping it lets go of the extent.
#[derive(Debug)]
pub struct ExtentFiller {
    loan: Loan,
    file: Box<dyn DiskFile>,
    gathered: Gathered,
    _lock: FillerLock,
}

impl ExtentFiller {
    /// Opens an extent that was lent by the store at `path` with that identity.
    ///
    /// # Errors
    /// `state` when it is not lent any more, is another store's, or this process may not write it.
    pub fn open(path: &Path, store_id: u64, loan: Loan) -> Result<Self> {
        Self::open_on(Arc::new(LocalDisk), path, store_id, loan)
    }

    /// As [`open`](Self::open), on a disk of the caller's.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_on(disk: Arc<dyn Disk>, path: &Path, store_id: u64, loan: Loan) -> Result<Self> {
        let directory = Directory::of_neighbour(disk, path, store_id)?;
        let lock = FillerLock::take(&directory, &loan)?;
        let path = directory.extent_path(loan.extent);
        let io = |e| Cause::io("open", &path, e);
        let file = directory.disk.open_writable(&path).map_err(io)?;
        let mut header = [0; HEADER_BYTES];
        file.read_at(&mut header, 0).map_err(io)?;
        let fits = |header: ExtentHeader| {
            header.generation == loan.generation && header.capacity >= u64::from(loan.capacity)
        };
        if !ExtentHeader::decode(&header).is_ok_and(fits) {
            return Err(Cause::LoanOver { extent: loan.extent, generation: loan.generation }.into());
        }
        let first = HEADER_BYTES.next_multiple_of(ALIGN_BYTES);
        let gathered = Gathered::new(first, loan.capacity as usize);
        Ok(ExtentFiller { loan, file, gathered, _lock: lock })
    }

    /// What was lent.
    pub fn loan(&self) -> Loan {
        self.loan
    }

    /// Puts a value behind the others; none where there is no room. It is there after [`flush`](Self::flush). The store writes the trailer
    /// behind it when it takes the value.
    ///
    /// # Errors
    /// `capacity` and `state` as the disk has them.
    pub fn place(&mut self, bytes: &[u8]) -> Result<Option<Spot>> {
        self.put(bytes, |_| [0; TRAILER_BYTES])
    }

    /// The same with the trailer of a value of that cell, so that the store has only to look at it. Where it would write another one, it
    /// does.
    ///
    /// # Errors
    /// As for [`place`](Self::place).
    pub fn place_of(&mut self, bytes: &[u8], cell: CellName) -> Result<Option<Spot>> {
        let Loan { extent, generation, .. } = self.loan;
        let trailer = |Spot { length, crc32c, .. }| {
            Trailer { length, crc32c, owner: cell.0, generation }.encode(extent)
        };
        self.put(bytes, trailer)
    }

    fn put(
        &mut self,
        bytes: &[u8],
        trailer: impl FnOnce(Spot) -> [u8; TRAILER_BYTES],
    ) -> Result<Option<Spot>> {
        let spot = self.gathered.place(bytes, trailer);
        if self.gathered.is_much() {
            self.flush()?;
        }
        Ok(spot)
    }

    /// The bytes of a value that was placed, and brought to the kernel, held against its checksum. Also when the loan is over:
    /// nobody else has the extent while this holds it.
    ///
    /// # Errors
    /// `input` when it was not placed here; `state` as the disk has them.
    pub fn read(&self, spot: Spot) -> Result<Vec<u8>> {
        let read = self.gathered.read(spot, |bytes, offset| self.file.read_at(bytes, offset));
        read.map_err(|unread| match unread {
            Unread::Misplaced(reason) => spot.misplaced(self.loan.extent, reason),
            Unread::Io(error) => Cause::io("read", format!("extent {}", self.loan.extent), error).into(),
        })
    }

    /// Hands everything to the kernel. After an error nothing that was placed since the last time may be named.
    ///
    /// # Errors
    /// `capacity` and `state` as the disk has them.
    pub fn flush(&mut self) -> Result<()> {
        let file = &self.file;
        let flushed = self.gathered.flush(|offset, bytes| file.write_at(offset, bytes));
        flushed.map_err(|e| Cause::io("write to", format!("extent {}", self.loan.extent), e).into())
    }
}
