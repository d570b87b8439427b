//! The moments at which a process that ends leaves something to be told.

use std::fmt;
use std::sync::Arc;

/// A moment of a publish or a get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Publisher: readers hold the slot that is needed, and it waits for them.
    Waiting,
    /// Publisher: a slot is chosen, and has no version any more.
    SlotTaken,
    /// Publisher: all values are in the slot.
    SlotFilled,
    /// Publisher: the version can be had.
    Published,
    /// Publisher: a version can be had in place.
    InPlace,
    /// Publisher: a version in place cannot be had any more, and readers may be under way.
    Ending,
    /// Reader: the domain is there.
    Connected,
    /// Reader: it holds the version, and has mapped its memory.
    Granted,
    /// Reader: copies are queued.
    Copying,
    /// Reader: all values are on its device.
    Copied,
    /// Reader: the hold is over, and the version was still the one.
    Released,
}

impl Step {
    /// Those of a publisher, but for [`Waiting`](Self::Waiting), which comes only where it has to.
    pub const PUBLISHER: [Self; 5] =
        [Self::SlotTaken, Self::SlotFilled, Self::Published, Self::InPlace, Self::Ending];
    /// Those of a reader.
    pub const READER: [Self; 5] =
        [Self::Connected, Self::Granted, Self::Copying, Self::Copied, Self::Released];
}

/// Is told of steps, by the thread that reaches them: to trace, and in tests to end the process there. Default: nobody is told.
#[derive(Clone, Default)]
pub struct StepObserver(Option<Arc<dyn Fn(Step) + Send + Sync>>);

impl StepObserver {
    /// Tells `told`.
    pub fn new(told: impl Fn(Step) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(told)))
    }

    pub(super) fn reached(&self, step: Step) {
        if let Some(told) = &self.0 {
            told(step);
        }
    }
}

impl fmt::Debug for StepObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "StepObserver(told)" } else { "StepObserver(nobody)" })
    }
}
