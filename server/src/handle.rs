//! Names that a client of Flight SQL was given: of a prepared statement, of a query that may run.
//!
//! They count up, so another client can guess them. That gains it nothing: a handle is found only by the caller to whom it was given,
//! since a statement sees what that one's token is for, and a query is ended by who asked it.

use crate::access::Caller;

/// A name, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Handle {
    bytes: Vec<u8>,
    owner: Caller,
}

impl Handle {
    /// The name of those bytes, as that caller knows it.
    pub(crate) fn new(bytes: &[u8], owner: &Caller) -> Self {
        Handle { bytes: bytes.to_owned(), owner: owner.clone() }
    }

    /// To whom it was given.
    pub(crate) fn owner(&self) -> &Caller {
        &self.owner
    }

    /// What the client is told.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
