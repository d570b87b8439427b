//! What one call puts into extents.
//!
//! What is put there is with the kernel before the message is sent. Where the server does not know the extents any more when
//! the message comes, for the session was lost on the way, the values are read out of them again and sent: nobody else is
//! given an extent that its filler has not let go of.

use std::sync::Arc;

use bytes::Bytes;
use forebay_store::{Loan, Spot, Value};

use super::fillers::{Filler, Lender};
use super::{Neighbour, placeable};
use crate::changes::Changes;
use crate::error::Result;
use crate::wire::{from_changes, from_changes_placed, from_placed, malformed, proto, to_spot, unplace};

/// The extents that one call fills, until it is over.
#[derive(Debug)]
pub(crate) struct Filling {
    neighbour: Arc<Neighbour>,
    session: Bytes,
    taken: Vec<Filler>,
    /// Nothing more fits into these.
    full: Vec<Filler>,
    /// Something could not be written: nothing of the call may be named.
    failed: bool,
}

impl Filling {
    /// Begins a call of a session.
    pub(crate) fn begin(neighbour: Arc<Neighbour>, session: Bytes) -> Self {
        Filling { neighbour, session, taken: Vec::new(), full: Vec::new(), failed: false }
    }

    /// Changes on the wire, with their larger values in extents. Where that cannot be they are sent.
    pub(crate) fn message(&mut self, changes: &Changes<'_>, lender: &Lender<'_>) -> proto::Changes {
        let message = from_changes_placed(changes, &mut |version, value| self.place(version, value, lender));
        if self.flush() { message } else { from_changes(changes) }
    }

    /// Puts a value into an extent, and says where; none to have it sent.
    fn place(&mut self, policy_version: u64, value: &Value<'_>, lender: &Lender<'_>) -> Option<proto::Value> {
        let (kind, bytes) = placeable(value).filter(|_| !self.failed)?;
        let at = self.filler(policy_version, bytes.len() as u64, lender)?;
        match self.put_into(at, bytes, lender) {
            Ok(placed) => placed.map(|(loan, spot)| from_placed(loan, kind, spot)),
            Err(error) => {
                tracing::warn!(%error, "a value could not be put into its extent; it is sent");
                self.failed = true;
                None
            }
        }
    }

    /// Puts a value into an extent, or into the one that follows; none where that is not to be had.
    fn put_into(&mut self, at: usize, bytes: &[u8], lender: &Lender<'_>) -> Result<Option<(Loan, Spot)>> {
        let filler = &mut self.taken[at];
        if let Some(spot) = filler.extent.place(bytes)? {
            return Ok(Some((filler.extent.loan(), spot)));
        }
        let full = self.taken.swap_remove(at);
        let (policy_version, loan) = (full.policy_version, full.extent.loan());
        self.full.push(full);
        let Some(at) = self.next(policy_version, bytes.len() as u64, Some(loan), lender) else {
            return Ok(None);
        };
        let next = &mut self.taken[at].extent;
        Ok(next.place(bytes)?.map(|spot| (next.loan(), spot)))
    }

    /// The place of the version's filler among those that are taken.
    fn filler(&mut self, policy_version: u64, bytes: u64, lender: &Lender<'_>) -> Option<usize> {
        if let Some(at) = self.taken.iter().position(|filler| filler.policy_version == policy_version) {
            return Some(at);
        }
        match self.neighbour.fillers.take(&self.session, policy_version) {
            Some(filler) => {
                self.taken.push(filler);
                Some(self.taken.len() - 1)
            }
            None => self.next(policy_version, bytes, None, lender),
        }
    }

    fn next(
        &mut self,
        policy_version: u64,
        bytes: u64,
        last: Option<Loan>,
        lender: &Lender<'_>,
    ) -> Option<usize> {
        match self.neighbour.fillers.next(policy_version, bytes, last, lender) {
            Ok(filler) => {
                self.taken.push(filler);
                Some(self.taken.len() - 1)
            }
            Err(error) => {
                tracing::info!(%error, "no extent was lent; values are sent");
                None
            }
        }
    }

    /// Brings everything to the kernel. Whether all of it is there.
    fn flush(&mut self) -> bool {
        for filler in self.taken.iter_mut().chain(&mut self.full) {
            if let Err(error) = filler.extent.flush() {
                tracing::warn!(%error, "values could not be put into their extent; they are sent");
                self.failed = true;
            }
        }
        !self.failed
    }

    /// The message with its values in it, for a server that does not know these extents any more.
    ///
    /// # Errors
    /// As the disk has them.
    pub(crate) fn unplaced(&self, mut message: proto::Changes) -> Result<proto::Changes> {
        unplace(&mut message, &mut |placed| {
            let fills = |filler: &&Filler| {
                let loan = filler.extent.loan();
                (loan.extent, loan.generation) == (placed.extent, placed.generation)
            };
            let filler = self.taken.iter().chain(&self.full).find(fills);
            let filler =
                filler.ok_or_else(|| malformed("a value in an extent that this call did not fill"))?;
            Ok(filler.extent.read(to_spot(placed))?)
        })?;
        Ok(message)
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        if self.failed {
            self.full.append(&mut self.taken);
        }
        let (idle, full) = (std::mem::take(&mut self.taken), std::mem::take(&mut self.full));
        self.neighbour.fillers.put_back(&self.session, idle, full);
    }
}
