//! What came of a proof of how far the log is durable.

use crate::error::{Error, Result};

/// What came of a proof that was to be brought without a record that carries it.
#[derive(Debug)]
#[must_use]
pub(crate) enum Proof {
    /// More is proven than was.
    Brought,
    /// As before: there was nothing more to prove, or somebody syncs who would have had to be waited for.
    Left,
    /// As before: a full disk has no room for it.
    NoRoom(Error),
}

impl Proof {
    /// For who needs it.
    ///
    /// # Errors
    /// `capacity` where there was no room for it.
    pub(crate) fn needed(self) -> Result<()> {
        if let Proof::NoRoom(error) = self { Err(error) } else { Ok(()) }
    }
}
