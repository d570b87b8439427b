//! The extents that this client was lent.
//!
//! A call that brings values takes the fillers that it needs out of the pool, or has the server lend it new ones, and puts
//! them back when it was answered ([`Filling`](super::Filling)); so each is filled by one call at a time, and none is given
//! back that a message names which is still on its way.
//!
//! Loans are a session's. When the session is another, all that were had before are over.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use forebay_store::{CellName, ExtentFiller, Loan, Spot};

use super::layouts::Layout;
use crate::error::Result;

/// The most extents that lie here unused; the one used longest ago is given back when there are more.
const IDLE_MAX: usize = 16;
/// How large the first extent of a version is wished, and the largest, in bytes. Each further one is four times as large.
const FIRST_BYTES: u64 = 4 << 20;
const MOST_BYTES: u64 = 64 << 20;
/// What a value takes beside its bytes: its trailer, and the way to the next multiple of 64.
const AROUND_BYTES: u64 = 96;

/// The server, as far as it is asked for what a call fills.
pub(crate) trait Lender {
    /// Lends an extent of a version with so many bytes at least. What is not needed any more is given back for it.
    fn lend(&self, policy_version: u64, bytes: u64, back: Vec<Loan>) -> Result<Loan>;

    /// Tells how the cells of a table are named; none where it does not.
    fn layout(&self, table: &str) -> Result<Option<Layout>>;
}

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

/// An extent that this client fills.
#[derive(Debug)]
pub(super) struct Filler {
    pub(super) policy_version: u64,
    pub(super) extent: ExtentFiller,
}

impl Filler {
    /// Puts a value behind the others, with the trailer of its cell where that is known; none where there is no room.
    pub(super) fn place(&mut self, bytes: &[u8], cell: Option<CellName>) -> Result<Option<Spot>> {
        Ok(match cell {
            Some(cell) => self.extent.place_of(bytes, cell)?,
            None => self.extent.place(bytes)?,
        })
    }
}

impl Fillers {
    pub(super) fn new(directory: PathBuf, store_id: u64) -> Self {
        Fillers { directory, store_id, pool: Mutex::default() }
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner) // whoever panicked left whole entries
    }

    /// A filler of a version, as this session has it.
    pub(super) fn take(&self, session: &Bytes, policy_version: u64) -> Option<Filler> {
        let mut pool = self.pool();
        if pool.session != *session {
            *pool = Pool { session: session.clone(), ..Pool::default() };
        }
        let at = pool.idle.iter().rposition(|filler| filler.policy_version == policy_version)?;
        Some(pool.idle.remove(at))
    }

    /// A new extent for values of a version, four times as large as the last one that is full.
    pub(super) fn next(
        &self,
        policy_version: u64,
        bytes: u64,
        last: Option<Loan>,
        lender: &dyn Lender,
    ) -> Result<Filler> {
        let wished = last.map_or(FIRST_BYTES, |last| (4 * u64::from(last.capacity)).min(MOST_BYTES));
        let wished = wished - 2 * AROUND_BYTES; // with its header that many
        let back = std::mem::take(&mut self.pool().back);
        let loan = lender.lend(policy_version, wished.max(bytes + AROUND_BYTES), back)?;
        let extent = ExtentFiller::open(&self.directory, self.store_id, loan)?;
        Ok(Filler { policy_version, extent })
    }

    /// A call of a session is over: what it filled is there for others, or goes back.
    pub(super) fn put_back(&self, session: &Bytes, idle: Vec<Filler>, full: Vec<Filler>) {
        let loans = |fillers: Vec<Filler>| fillers.into_iter().map(|filler| filler.extent.loan()).collect();
        let full: Vec<Loan> = loans(full);
        let mut pool = self.pool();
        if pool.session != *session {
            return; // their loans are over
        }
        pool.back.extend(full);
        pool.idle.extend(idle);
        let too_many = pool.idle.len().saturating_sub(IDLE_MAX);
        let oldest: Vec<Loan> = loans(pool.idle.drain(..too_many).collect());
        pool.back.extend(oldest);
    }
}
