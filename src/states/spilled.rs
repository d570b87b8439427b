//! Parts and versions that are brought to the disk as well, and taken back where they cannot be.

use super::{ObjectStates, is_absent, object_of};
use crate::client;
use crate::store::Which as Newest;
use forebay_trainer_adapter::states::{StatesError, Which};

impl ObjectStates {
    /// After a commit, before anybody is told of it. What another coordinator has removed by then has nothing to survive: a part's own
    /// coordinator hears of it from its commit, and a version was committed whatever came after it.
    pub(super) fn keep(&self, object: &str, which: Newest) -> client::Result<()> {
        match self.spills.then(|| self.objects.spill(object, which)) {
            Some(Err(error)) if !is_absent(&error) => Err(error),
            _spilled_or_absent => Ok(()),
        }
    }

    /// Removes a part that nobody is to name, before its next try takes as much memory again. What cannot be removed is left to the next
    /// commit of its key.
    pub(super) fn let_go(&self, object: &str, version: u64) {
        if let Err(error) = self.objects.delete(object, version) {
            tracing::warn!(%error, part = object, "a part that nobody is to name was not removed");
        }
    }

    /// Keeps a version that was just committed after `expected`, or takes it back: nobody goes on from what is less than was promised.
    pub(super) fn keep_version(&self, key: &str, version: u64, expected: u64) -> Result<(), StatesError> {
        let object = object_of(key)?;
        let Err(source) = self.keep(&object, Newest::Exact(version)) else { return Ok(()) };
        // It is better than none, where the one before it is gone.
        let stands = expected == 0 || matches!(self.record(key, Which::Exact(expected)), Ok(Some(_)));
        // Of a file that had its name for a moment the deletion says on stable storage that it is over, or is refused.
        let is_taken_back = stands && self.objects.delete(&object, version).is_ok();
        if !is_taken_back {
            tracing::warn!(%source, object, version, "a state is set, and not on the disk: a power failure may take it");
        }
        let (key, source) = (key.to_owned(), Box::new(source));
        Err(StatesError::NotDurable { key, version, is_taken_back, source })
    }
}
