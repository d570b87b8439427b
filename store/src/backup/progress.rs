//! How far a copy is, and whether it goes on.

use std::ops::ControlFlow;

use crate::error::{Cause, Result};

/// How far a copy of a store is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupProgress {
    /// Bytes that were copied.
    pub done_bytes: u64,
    /// Bytes that there are to copy, as far as is known.
    pub total_bytes: u64,
}

/// A copy under way.
pub(crate) struct Copying<'a> {
    progress: BackupProgress,
    tell: Option<&'a mut dyn FnMut(BackupProgress) -> ControlFlow<()>>,
}

impl<'a> Copying<'a> {
    pub(crate) fn watched(tell: &'a mut dyn FnMut(BackupProgress) -> ControlFlow<()>) -> Self {
        Copying { progress: BackupProgress::default(), tell: Some(tell) }
    }

    pub(crate) fn unwatched() -> Self {
        Copying { progress: BackupProgress::default(), tell: None }
    }

    /// So many bytes more are to be copied.
    pub(super) fn expect(&mut self, bytes: u64) {
        self.progress.total_bytes += bytes;
    }

    /// So many bytes more were copied.
    ///
    /// # Errors
    /// `Stopped` where it is not to go on.
    pub(super) fn copied(&mut self, bytes: u64) -> Result<()> {
        self.progress.done_bytes += bytes;
        self.progress.total_bytes = self.progress.total_bytes.max(self.progress.done_bytes);
        let Some(tell) = &mut self.tell else { return Ok(()) };
        match tell(self.progress) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Cause::Stopped { what: "copy" }.into()),
        }
    }
}
