//! Copies that may not be done yet, with the memory that they use.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::stream::Event;

/// A memory that is not freed while a copy uses it.
pub(super) struct Kept(Arc<dyn Any + Send + Sync>);

impl Kept {
    pub(super) fn of<T: Send + Sync + 'static>(memory: &Arc<T>) -> Self {
        Self(Arc::<T>::clone(memory))
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kept({} times)", Arc::strong_count(&self.0))
    }
}

/// One copy.
#[derive(Debug)]
pub(super) struct Copy {
    pub(super) end: Arc<Event>,
    pub(super) _kept: [Kept; 2],
}

/// The copies under way. Looked through whenever another is added or one was found to be done, so handles may be dropped while
/// their copies run, and nothing is kept once somebody knows that they have.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    copies: Mutex<Vec<Copy>>,
}

impl UnderWay {
    fn copies(&self) -> MutexGuard<'_, Vec<Copy>> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the memory of a copy until it is done, and lets go of that of others that are.
    pub(super) fn add(&self, copy: Copy) {
        self.sweep();
        self.copies().push(copy);
    }

    /// Lets go of the memory of copies that are done. A failed copy is over too: the context is broken.
    pub(super) fn sweep(&self) {
        let mut copies = self.copies();
        let (over, open): (Vec<Copy>, Vec<Copy>) =
            std::mem::take(&mut *copies).into_iter().partition(|copy| copy.end.is_done().unwrap_or(true));
        *copies = open;
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
