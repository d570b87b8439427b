//! What one call puts into extents.
//!
//! What is put there is with the kernel before the message is sent. Where the server does not know the extents any more when
//! the message comes, for the session was lost on the way, the values are read out of them again and sent: nobody else is
//! given an extent that its filler has not let go of.

use std::sync::Arc;

use bytes::Bytes;
use forebay_store::{CellName, Loan, Spot, Value};

use super::fillers::{Filler, Lender};
use super::{Layout, Neighbour, placeable};
use crate::changes::Changes;
use crate::error::Result;
use crate::wire::{
    CellOf, RowOf, from_changes, from_changes_placed, from_placed, malformed, proto, to_spot, unplace,
};

/// The extents that one call fills, until it is over.
#[derive(Debug)]
pub(crate) struct Filling {
    neighbour: Arc<Neighbour>,
    session: Bytes,
    taken: Vec<Filler>,
    /// Nothing more fits into these.
    full: Vec<Filler>,
    /// What is known of the table whose value came last.
    layout: Option<(Arc<str>, Option<Arc<Layout>>)>,
    /// Something could not be written: nothing of the call may be named.
    failed: bool,
}

impl Filling {
    /// Begins a call of a session.
    pub(crate) fn begin(neighbour: Arc<Neighbour>, session: Bytes) -> Self {
        Filling { neighbour, session, taken: Vec::new(), full: Vec::new(), layout: None, failed: false }
    }

    /// Changes on the wire, with their larger values in extents. Where that cannot be they are sent.
    pub(crate) fn message(&mut self, changes: &Changes<'_>, lender: &dyn Lender) -> proto::Changes {
        let message = from_changes_placed(changes, &mut |cell, value| self.place(cell, value, lender));
        if self.flush() { message } else { from_changes(changes) }
    }

    /// Puts a value into an extent, and says where; none to have it sent.
    fn place(&mut self, of: CellOf<'_>, value: &Value<'_>, lender: &dyn Lender) -> Option<proto::Value> {
        if matches!(of.row, RowOf::Several(_)) {
            return None; // each of the rows has a value of its own, and the store makes them
        }
        let (kind, bytes) = placeable(value).filter(|_| !self.failed)?;
        let cell = self.cell(of, lender);
        let at = self.filler(of.row.policy_version(), bytes.len() as u64, lender)?;
        match self.put_into(at, bytes, cell, lender) {
            Ok(placed) => placed.map(|(loan, spot)| from_placed(loan, kind, spot)),
            Err(error) => {
                tracing::warn!(%error, "a value could not be put into its extent; it is sent");
                self.failed = true;
                None
            }
        }
    }

    /// How a trailer names that cell, as far as it is known.
    fn cell(&mut self, CellOf { table, row, column }: CellOf<'_>, lender: &dyn Lender) -> Option<CellName> {
        let layouts = &self.neighbour.layouts;
        let layout = match &self.layout {
            Some((last, layout)) if last == table => layout.as_ref(),
            _ => self.layout.insert((table.clone(), layouts.of(table, lender))).1.as_ref(),
        }?;
        match layout.column(column) {
            Some(column) => layout.cell(row, column),
            None => {
                layouts.forget(table);
                None
            }
        }
    }

    /// Puts a value into an extent, or into the one that follows; none where that is not to be had.
    fn put_into(
        &mut self,
        at: usize,
        bytes: &[u8],
        cell: Option<CellName>,
        lender: &dyn Lender,
    ) -> Result<Option<(Loan, Spot)>> {
        let filler = &mut self.taken[at];
        if let Some(spot) = filler.place(bytes, cell)? {
            return Ok(Some((filler.extent.loan(), spot)));
        }
        let full = self.taken.swap_remove(at);
        let (policy_version, loan) = (full.policy_version, full.extent.loan());
        self.full.push(full);
        let Some(at) = self.next(policy_version, bytes.len() as u64, Some(loan), lender) else {
            return Ok(None);
        };
        let next = &mut self.taken[at];
        Ok(next.place(bytes, cell)?.map(|spot| (next.extent.loan(), spot)))
    }

    /// The place of the version's filler among those that are taken.
    fn filler(&mut self, policy_version: u64, bytes: u64, lender: &dyn Lender) -> Option<usize> {
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
        lender: &dyn Lender,
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
