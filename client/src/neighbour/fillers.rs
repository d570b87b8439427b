//! The extents that this client was lent, and what it puts into them.
//!
//! A call that brings values takes the fillers that it needs out of the pool, or has the server lend it new ones, and puts
//! them back when it was answered; so each is filled by one call at a time, and none is given back that a message names
//! which is still on its way. What is put into them is with the kernel before the message is sent.
//!
//! Loans are a session's. When the session is another, all that were had before are over.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use forebay_store::{ExtentFiller, Loan, Spot, Value};

use super::placeable;
use crate::changes::Changes;
use crate::error::Result;
use crate::wire::{from_changes, from_changes_placed, from_placed, proto};

/// The most extents that lie here unused; the one used longest ago is given back when there are more.
const IDLE_MAX: usize = 16;
/// What is asked for of a version at first, and at most, in bytes. Each further extent is twice as large.
const FIRST_BYTES: u64 = 1 << 20;
const MOST_BYTES: u64 = 64 << 20;
/// What a value takes beside its bytes: its trailer, and the way to the next multiple of 64.
const AROUND_BYTES: u64 = 96;

/// Who lends extents: a version, how many bytes at least, and what is given back for it.
pub(crate) type Lender<'l> = dyn Fn(u64, u64, Vec<Loan>) -> Result<Loan> + 'l;

/// The extents that this client was lent.
#[derive(Debug)]
pub(crate) struct Fillers {
    directory: PathBuf,
    store_id: u64,
    pool: Mutex<Pool>,
}

#[derive(Debug, Default)]
struct Pool {
    session: Bytes,
    /// The one used last at the end.
    idle: Vec<Filler>,
    /// Nothing more is put into these.
    back: Vec<Loan>,
}

#[derive(Debug)]
struct Filler {
    policy_version: u64,
    extent: ExtentFiller,
}

/// The extents that one call fills, until it is over.
pub(crate) struct Filling<'f> {
    fillers: &'f Fillers,
    session: &'f Bytes,
    lender: &'f Lender<'f>,
    taken: Vec<Filler>,
    /// Nothing more fits into these.
    full: Vec<Filler>,
    /// Something could not be written: nothing of the call may be named.
    failed: bool,
}

impl Fillers {
    pub(super) fn new(directory: PathBuf, store_id: u64) -> Self {
        Fillers { directory, store_id, pool: Mutex::default() }
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner) // whoever panicked left whole entries
    }

    /// Begins a call of a session.
    pub(crate) fn begin<'f>(&'f self, session: &'f Bytes, lender: &'f Lender<'f>) -> Filling<'f> {
        Filling { fillers: self, session, lender, taken: Vec::new(), full: Vec::new(), failed: false }
    }

    /// A filler of a version, as this session has it.
    fn take(&self, session: &Bytes, policy_version: u64) -> Option<Filler> {
        let mut pool = self.pool();
        if pool.session != *session {
            *pool = Pool { session: session.clone(), ..Pool::default() };
        }
        let at = pool.idle.iter().rposition(|filler| filler.policy_version == policy_version)?;
        Some(pool.idle.remove(at))
    }

    /// A new extent for values of a version, twice as large as the last one that is full.
    fn next(
        &self,
        policy_version: u64,
        bytes: u64,
        last: Option<Loan>,
        lender: &Lender<'_>,
    ) -> Result<Filler> {
        let wished = last.map_or(FIRST_BYTES, |last| (2 * u64::from(last.capacity)).min(MOST_BYTES));
        let back = std::mem::take(&mut self.pool().back);
        let loan = lender(policy_version, wished.max(bytes + AROUND_BYTES), back)?;
        let extent = ExtentFiller::open(&self.directory, self.store_id, loan)?;
        Ok(Filler { policy_version, extent })
    }
}

impl Filling<'_> {
    /// Changes on the wire, with their larger values in extents. Where that cannot be they are sent.
    pub(crate) fn message(&mut self, changes: &Changes<'_>) -> proto::Changes {
        let message = from_changes_placed(changes, &mut |version, value| self.place(version, value));
        if self.flush() { message } else { from_changes(changes) }
    }

    /// Puts a value into an extent, and says where; none to have it sent.
    fn place(&mut self, policy_version: u64, value: &Value<'_>) -> Option<proto::Value> {
        let (kind, bytes) = placeable(value).filter(|_| !self.failed)?;
        let at = self.filler(policy_version, bytes.len() as u64)?;
        match self.put_into(at, bytes) {
            Ok(placed) => placed.map(|(loan, spot)| from_placed(loan, kind, spot)),
            Err(error) => {
                tracing::warn!(%error, "a value could not be put into its extent; it is sent");
                self.failed = true;
                None
            }
        }
    }

    /// Puts a value into an extent, or into the one that follows; none where that is not to be had.
    fn put_into(&mut self, at: usize, bytes: &[u8]) -> Result<Option<(Loan, Spot)>> {
        let filler = &mut self.taken[at];
        if let Some(spot) = filler.extent.place(bytes)? {
            return Ok(Some((filler.extent.loan(), spot)));
        }
        let full = self.taken.swap_remove(at);
        let (policy_version, loan) = (full.policy_version, full.extent.loan());
        self.full.push(full);
        let Some(at) = self.next(policy_version, bytes.len() as u64, Some(loan)) else { return Ok(None) };
        let next = &mut self.taken[at].extent;
        Ok(next.place(bytes)?.map(|spot| (next.loan(), spot)))
    }

    /// The place of the version's filler among those that are taken.
    fn filler(&mut self, policy_version: u64, bytes: u64) -> Option<usize> {
        if let Some(at) = self.taken.iter().position(|filler| filler.policy_version == policy_version) {
            return Some(at);
        }
        match self.fillers.take(self.session, policy_version) {
            Some(filler) => {
                self.taken.push(filler);
                Some(self.taken.len() - 1)
            }
            None => self.next(policy_version, bytes, None),
        }
    }

    fn next(&mut self, policy_version: u64, bytes: u64, last: Option<Loan>) -> Option<usize> {
        match self.fillers.next(policy_version, bytes, last, self.lender) {
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
}

impl Drop for Filling<'_> {
    /// The call is over: what it filled is there for others, or goes back.
    fn drop(&mut self) {
        if self.failed {
            self.full.append(&mut self.taken);
        }
        let full: Vec<Loan> = self.full.drain(..).map(|full| full.extent.loan()).collect();
        let mut pool = self.fillers.pool();
        if pool.session != *self.session {
            return; // their loans are over
        }
        pool.back.extend(full);
        pool.idle.append(&mut self.taken);
        let too_many = pool.idle.len().saturating_sub(IDLE_MAX);
        let oldest: Vec<Loan> = pool.idle.drain(..too_many).map(|oldest| oldest.extent.loan()).collect();
        pool.back.extend(oldest);
    }
}
