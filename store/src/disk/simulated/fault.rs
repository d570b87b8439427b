//! What can go wrong.

use std::io;

use rustix::io::Errno;

use super::operation::DiskOperation;

/// A failure of a [`SimulatedDisk`](super::SimulatedDisk). It is armed for a point and strikes the first operation from
/// there on that it fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DiskFault {
    /// The process ends in the middle of the operation. What it wrote stays.
    ProcessDies,
    /// The machine stops in the middle of the operation. What was not synced is lost, kept or torn, sector by sector.
    PowerFails,
    /// The operation fails, after a part of it was done.
    IoError,
    /// Every operation fails from here on.
    IoErrors,
    /// The operation finds the disk full.
    NoRoom,
    /// The disk is full from here on.
    NoMoreRoom,
    /// A write writes a part of its bytes and fails.
    ShortWrite,
    /// A sync fails, or the beginning of one; what was not synced is still to be written.
    SyncFails,
    /// A sync fails, or the beginning of one, and the kernel takes what it could not write for written, as Linux does: a later
    /// sync leaves it out, and it may be gone from the page cache when the next process looks.
    SyncFailsAndForgets,
    /// Space cannot be reserved, for another reason than a full disk.
    AllocateFails,
    /// The process has no handles left: nothing can be created or opened from here on.
    NoHandles,
    /// The file system is mounted read-only from here on.
    ReadOnly,
}

impl DiskFault {
    /// All of them.
    pub const ALL: [DiskFault; 12] = [
        DiskFault::ProcessDies,
        DiskFault::PowerFails,
        DiskFault::IoError,
        DiskFault::IoErrors,
        DiskFault::NoRoom,
        DiskFault::NoMoreRoom,
        DiskFault::ShortWrite,
        DiskFault::SyncFails,
        DiskFault::SyncFailsAndForgets,
        DiskFault::AllocateFails,
        DiskFault::NoHandles,
        DiskFault::ReadOnly,
    ];

    /// Whether it can strike an operation.
    pub fn fits(self, operation: DiskOperation) -> bool {
        use DiskOperation::*;
        match self {
            DiskFault::ProcessDies | DiskFault::PowerFails => true,
            // A store into memory does not fail; that its bytes cannot be written is found by a sync.
            DiskFault::IoError | DiskFault::IoErrors => !matches!(operation, MappedStore | Lock),
            DiskFault::NoRoom | DiskFault::NoMoreRoom => operation.takes_room(),
            DiskFault::ShortWrite => operation == Write,
            DiskFault::SyncFails | DiskFault::SyncFailsAndForgets => matches!(operation, Sync | BeginSync),
            DiskFault::AllocateFails => operation == Allocate,
            DiskFault::NoHandles => matches!(operation, Create | Open | List | SyncDirectory),
            DiskFault::ReadOnly => operation.changes() && operation != MappedStore,
        }
    }

    /// Whether everything stops.
    pub fn is_death(self) -> bool {
        matches!(self, DiskFault::ProcessDies | DiskFault::PowerFails)
    }

    /// Whether it goes on after it has struck.
    pub fn lasts(self) -> bool {
        matches!(
            self,
            DiskFault::IoErrors | DiskFault::NoMoreRoom | DiskFault::NoHandles | DiskFault::ReadOnly
        )
    }

    /// Whether a part of a write is done before it fails.
    pub(super) fn leaves_a_part(self) -> bool {
        !matches!(self, DiskFault::NoHandles | DiskFault::ReadOnly | DiskFault::AllocateFails)
    }

    pub(super) fn error(self) -> io::Error {
        let number = match self {
            DiskFault::ProcessDies | DiskFault::PowerFails => return super::dead(),
            DiskFault::IoError | DiskFault::IoErrors | DiskFault::ShortWrite => Errno::IO,
            DiskFault::NoRoom | DiskFault::NoMoreRoom => Errno::NOSPC,
            DiskFault::SyncFails | DiskFault::SyncFailsAndForgets => Errno::IO,
            DiskFault::AllocateFails => Errno::FBIG,
            DiskFault::NoHandles => Errno::MFILE,
            DiskFault::ReadOnly => Errno::ROFS,
        };
        number.into()
    }
}
