//! How much of one operation happens.

use std::io;

use super::fault::DiskFault;

/// What an operation is to do: all of it, or a part and then fail.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) fault: Option<DiskFault>,
    /// How many of its bytes are written.
    pub(super) bytes: usize,
    /// Whether an operation without parts happens before it fails.
    pub(super) happens: bool,
}

impl Part {
    /// Everything.
    pub(super) const WHOLE: Part = Part { fault: None, bytes: usize::MAX, happens: true };

    /// How many of `length` bytes are written.
    pub(super) fn of(self, length: usize) -> usize {
        self.bytes.min(length)
    }

    /// Whether an operation without parts happens.
    pub(super) fn whole(self) -> bool {
        self.happens
    }

    /// Whether a sync takes what it did not write for written.
    pub(super) fn forgets(self) -> bool {
        self.fault == Some(DiskFault::SyncFailsAndForgets)
    }

    /// What the caller is told.
    pub(super) fn end(self) -> io::Result<()> {
        self.fault.map_or(Ok(()), |fault| Err(fault.error()))
    }
}
