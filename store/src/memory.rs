//! The memory budget: what the store takes, and what happens when that is all that it may take.
//!
//! # What counts
//! Everything that grows with what is stored or in flight: rows, their index and texts, the words, queues and groups of
//! consumers, claims, steps, what few rows have, pages that nobody but snapshots keeps, the log's buffers, numbers that are
//! given out. Not what
//! lies in files that are mapped: extents, and pages of a checkpoint that have not changed since the store was opened
//! or since they were let go. Not what callers hold: Arrow arrays, batches that are not committed.
//!
//! # What it costs to know
//! To count is to look at every page, so it is done seldom: a count holds until so much has been logged since that the
//! budget could have been reached, or a 64th of it gone beyond. A record makes the state grow by a few times its own
//! bytes at the most, and by a copied chunk's pages where a snapshot is held.
//!
//! # At the budget
//! The last eighth is kept for rows that are there: a batch that does nothing but begin rows waits at seven eighths,
//! other writes wait at the whole. So rows that were begun can be finished, trained on, and go. Who waits first lets go
//! of what lies in a checkpoint as well: it takes one, and maps its pages instead of holding them. Then it waits for a
//! snapshot to be dropped, rows to be deleted, a step to end, the budget to be raised, to its deadline, and is refused with the largest of what
//! is in the way. Claims, steps, exclusions and deletions never wait: they are what brings relief.

use crate::aside::Aside;
use crate::clock::Timestamp;
use crate::error::{Cause, Error, Result};
use crate::log::record::Event;
use crate::shared::Shared;
use crate::snapshot::{HeldBytes, Holdings};
use crate::state::{Request, State};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, Rank};

/// How many bytes the state grows by at most for a byte of a record.
const GROWTH: u64 = 4;
/// How many bytes of pages a record may copy that a snapshot holds.
const COPIED_BYTES: u64 = 1 << 20;
/// The bytes that a change of one row takes at least while it is in flight: its meta, its status, its place in the index.
const REQUEST_BYTES: u64 = 256;
/// The same of a span: as an operation, in the record, and where it is kept.
const SPAN_BYTES: u64 = 128;

/// What is known of the memory that a store takes.
#[derive(Debug)]
pub(crate) struct Memory {
    /// What snapshots hold.
    pub(crate) holdings: Holdings,
    last: Mutex<Option<Count>>,
    /// How many wait for memory.
    waiting: AtomicUsize,
}

impl Default for Memory {
    fn default() -> Self {
        let last = Mutex::ranked(Rank::MemoryCount, None);
        Memory { holdings: Holdings::default(), last, waiting: AtomicUsize::new(0) }
    }
}

/// A count, and how much had been logged by then.
#[derive(Clone, Copy, Debug)]
struct Count {
    bytes: u64,
    logged_bytes: u64,
    /// The number of the record that came next.
    records: u64,
}

/// What a batch may take of the budget.
#[derive(Clone, Copy, Debug)]
struct Wish {
    /// The bytes that it may grow to.
    most: u64,
    bytes: u64,
}

impl Wish {
    fn fits(self, taken: u64) -> bool {
        taken.saturating_add(self.bytes) <= self.most
    }
}

impl Shared {
    /// Bytes of memory that the store takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let state = self.state.lock();
        let (bytes, held) = self.count_memory(&state);
        drop(state); // before what was looked at
        drop(held);
        bytes
    }

    fn count_memory(&self, state: &State) -> (u64, HeldBytes) {
        let held = self.memory.holdings.bytes(state);
        let beside = self.log.heap_bytes() + self.numbering.heap_bytes();
        (state.heap_bytes() as u64 + held.all + beside as u64, held)
    }

    /// Returns once a batch may grow the store, or with the reason why not.
    /// What a finished claim brings `finishes`: it may use all of the budget.
    pub(crate) fn admit_growth(
        &self,
        requests: &[Request],
        until: Option<Timestamp>,
        finishes: bool,
        aside: Aside,
    ) -> Result<()> {
        let Some(limit) = self.limits.memory_bytes_max() else { return Ok(()) };
        let grow = requests.iter().filter(|request| request.grows());
        let bytes = grow.map(|request| REQUEST_BYTES + request.spans() as u64 * SPAN_BYTES).sum();
        if bytes == 0 {
            return Ok(());
        }
        let begins = !finishes && requests.iter().all(Request::begins);
        let wish = |limit: u64| {
            let reserve = if begins { limit / 8 } else { 0 };
            Wish { most: limit - reserve, bytes }
        };
        if self.has_memory(wish(limit), false) {
            return Ok(());
        }
        self.memory.waiting.fetch_add(1, Ordering::SeqCst);
        let outcome = aside.run(|| self.wait_for_memory(wish, until));
        self.memory.waiting.fetch_sub(1, Ordering::SeqCst);
        outcome
    }

    /// The budget may become another while somebody waits: what is wished for follows from it.
    fn wait_for_memory(&self, wish: impl Fn(u64) -> Wish, until: Option<Timestamp>) -> Result<()> {
        loop {
            let freed = self.memory.holdings.freed.listen();
            let Some(limit) = self.limits.memory_bytes_max() else { return Ok(()) };
            let wish = wish(limit);
            if self.has_memory(wish, true) || (self.let_pages_go(limit)? && self.has_memory(wish, true)) {
                return Ok(());
            }
            self.check_writable("write to it")?;
            if until.is_some_and(|until| self.options.clock.now() >= until) {
                return Err(self.no_memory(wish, limit));
            }
            self.options.clock.wait(freed, until);
        }
    }

    /// Whether a wish fits. Counts where what was counted last may have changed too much since, or where that is asked for.
    fn has_memory(&self, wish: Wish, count: bool) -> bool {
        let mut last = self.memory.last.lock();
        if let Some(known) = last.filter(|_| !count) {
            let grown = self.growth_since(&known);
            let close = grown <= wish.most / 64 && wish.fits(known.bytes);
            if close || wish.fits(known.bytes.saturating_add(grown)) {
                return true;
            }
        }
        let state = self.state.lock();
        let (records, logged_bytes) = (self.log.next_sequence(), self.log.bytes());
        let (bytes, held) = self.count_memory(&state);
        drop(state); // before what was looked at
        drop(held);
        *last = Some(Count { bytes, logged_bytes, records });
        wish.fits(bytes)
    }

    /// By how much the store may have grown since a count.
    fn growth_since(&self, count: &Count) -> u64 {
        let logged = self.log.bytes().saturating_sub(count.logged_bytes).saturating_mul(GROWTH);
        let records = self.log.next_sequence().saturating_sub(count.records);
        let copied = if self.memory.holdings.is_any() { records.saturating_mul(COPIED_BYTES) } else { 0 };
        logged.saturating_add(copied)
    }

    /// Something was applied that may let memory go. Called with no lock held.
    pub(crate) fn memory_may_be_free(&self) {
        if self.memory.waiting.load(Ordering::SeqCst) > 0 {
            self.memory.holdings.freed.notify(usize::MAX);
        }
    }

    /// Lets go of pages that lie in a checkpoint as well, after taking one; if that is worth it: an eighth of the budget.
    /// True when it was done.
    fn let_pages_go(&self, limit: u64) -> Result<bool> {
        let held = self.state.lock().full_chunk_bytes() as u64;
        if held == 0 || held < limit / 8 {
            return Ok(false);
        }
        self.checkpoint_and_map()?;
        self.memory_may_be_free();
        Ok(true)
    }

    /// Lets go of what can be let go before anybody has to wait for it: a background duty.
    pub(crate) fn tend_memory(&self) -> Result<()> {
        let Some(limit) = self.limits.memory_bytes_max() else { return Ok(()) };
        let wish = Wish { most: limit - limit / 4, bytes: 0 };
        if !self.options.read_only && self.closed.get().is_none() && !self.has_memory(wish, false) {
            self.let_pages_go(limit)?;
        }
        Ok(())
    }

    fn no_memory(&self, wish: Wish, limit: u64) -> Error {
        let (used, held, largest) = {
            let state = self.state.lock();
            let (used, held) = self.count_memory(&state);
            let largest = state.tables.iter().max_by_key(|table| table.heap_bytes());
            (used, held, largest.map(|table| (table.name.clone(), table.heap_bytes())))
        };
        let pins = self.extents.pins().held();
        let owner = |pin: u64| pins.iter().find(|held| held.id == pin);
        let snapshot = held.by_pin.iter().max_by_key(|(_, bytes)| *bytes).filter(|(_, bytes)| *bytes > 0);
        let pin = match (snapshot.and_then(|(pin, bytes)| Some((owner(*pin)?, bytes))), largest) {
            (Some((pin, bytes)), _) => {
                let since = pin.since.map(|since| format!(" since {since}")).unwrap_or_default();
                format!(
                    "the largest pin is {:?}{since}, which keeps {bytes} bytes of former pages",
                    pin.owner
                )
            }
            (None, Some((table, bytes))) => {
                format!("no snapshot keeps any; {bytes} of them are table {table:?}'s")
            }
            (None, None) => "no snapshot keeps any".to_owned(),
        };
        Cause::NoMemory { needed: wish.bytes, used, usable: wish.most, limit, pin }.into()
    }
}

impl Event {
    /// Whether memory may be let go after it.
    pub(crate) fn frees_memory(&self) -> bool {
        use Event::*;
        matches!(
            self,
            Deleted { .. }
                | StepCommitted { .. }
                | Rewound { .. }
                | WentBack { .. }
                | SteppedBack { .. }
                | GroupsForgotten { .. }
        )
    }
}
