//! Room on a disk with a byte budget.

use std::io;

/// What became of the wish for more room.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Bytes that are not to be had.
    pub(super) missing: usize,
}

impl Room {
    pub(super) fn check(self) -> io::Result<()> {
        if self.missing > 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}
