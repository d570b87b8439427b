//! Copies that may not be done yet, with the memory that they use.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::memory::{Allocation, Pinned};
use super::stream::Event;

/// One copy.
#[derive(Debug)]
pub(super) struct Copy {
    pub(super) end: Arc<Event>,
    pub(super) _device: Arc<Allocation>,
    pub(super) _host: Arc<Pinned>,
}

/// The copies under way. Looked through whenever another is added, so handles may be dropped while their copies run.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    copies: Mutex<Vec<Copy>>,
}

impl UnderWay {
    fn copies(&self) -> MutexGuard<'_, Vec<Copy>> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the memory of a copy until it is done, and lets go of that of others that are. A failed copy is over too: the
    /// context is broken.
    pub(super) fn add(&self, copy: Copy) {
        let mut copies = self.copies();
        let (over, open): (Vec<Copy>, Vec<Copy>) =
            std::mem::take(&mut *copies).into_iter().partition(|copy| copy.end.is_done().unwrap_or(true));
        *copies = open;
        copies.push(copy);
        drop(copies);
        drop(over);
    }
}

impl Drop for UnderWay {
    /// The device's last handle: whatever still runs comes to its end before the memory goes.
    fn drop(&mut self) {
        for copy in self.copies().iter() {
            let _ = copy.end.wait();
        }
    }
}
