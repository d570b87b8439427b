//! The background duty of extents.

use std::time::Duration;

use crate::clock::Timestamp;
use crate::durability::Durability;
use crate::error::Result;
use crate::shared::Shared;
use crate::sync::atomic::Ordering;

/// Less space than this is not worth a proof of its own.
const PROOF_BYTES_MIN: u64 = 64 << 20;
/// A segment of the log is not followed by another for a proof before it is so long, where another sync is to come.
const PROVING_SEGMENT_BYTES_MIN: u64 = 1 << 20;
/// All is looked after so often; in between what comes and goes with versions, and no more.
const LOOK_AT_ALL: Duration = Duration::from_millis(200);
/// Where extents were made free so lately, more will be soon: writers that find none make new ones.
const FREED_LATELY: Duration = Duration::from_secs(1);
/// After so long it is looked then whether more are over.
const TEND_AGAIN: Duration = Duration::from_millis(20);

impl Shared {
    /// Whether all duties are to be looked at once more, or what comes and goes with versions alone.
    pub(crate) fn is_due_for_all(&self) -> bool {
        let (now, last) = (self.options.clock.now(), Timestamp(self.tended_at.load(Ordering::Relaxed)));
        let is_due = !(last..last.after(LOOK_AT_ALL)).contains(&now);
        if is_due {
            self.tended_at.store(now.0, Ordering::Relaxed);
        }
        is_due
    }

    /// Seals extents of versions that are over, frees those that nobody needs, and proves how far the log is safe where more waits
    /// for that than is free.
    pub(crate) fn free_extents(&self) -> Result<()> {
        if self.options.read_only || self.closed.get().is_some() {
            return Ok(());
        }
        self.seal_what_is_over();
        self.reclaim()?;
        if self.prove_to_reclaim()? {
            self.reclaim()?;
        }
        Ok(())
    }

    /// Seals extents of versions that are over, evacuates thin ones, frees those that are over, and lets go of
    /// what snapshots hold back that are held for too long. A damaged value keeps nothing but its own extent from that; it is the
    /// error at the end.
    pub(crate) fn tend_extents(&self) -> Result<()> {
        if self.options.read_only || self.closed.get().is_some() {
            return Ok(());
        }
        self.let_overdue_pins_go();
        self.free_extents()?;
        let evacuated = self.evacuate()?;
        if evacuated.moved > 0 {
            self.reclaim()?;
        }
        for pin in self.pins().iter().filter(|pin| pin.overdue) {
            tracing::warn!(
                owner = pin.owner,
                memory_bytes = pin.memory_bytes,
                "a snapshot is held for longer than the store allows, and gives no values any more"
            );
        }
        evacuated.whole().map(drop)
    }

    /// What snapshots hold back that are older than they may be is held back no longer.
    pub(super) fn let_overdue_pins_go(&self) {
        if let Some(age_max) = self.options.snapshot_age_max {
            self.extents.pins().let_overdue_go(self.options.clock.now(), age_max);
        }
    }

    /// Seals the extents of versions that no policy stands at any more.
    pub(crate) fn seal_what_is_over(&self) {
        let current = self.state.lock().policies.iter().map(|policy| policy.version).min();
        self.values.seal_below(current.unwrap_or(0));
    }

    /// When extents should be looked at again, where some come and go.
    pub(crate) fn tend_again(&self) -> Option<Timestamp> {
        let (now, freed) = (self.options.clock.now(), Timestamp(self.freed_at.load(Ordering::Relaxed)));
        (freed..freed.after(FREED_LATELY)).contains(&now).then(|| now.after(TEND_AGAIN))
    }

    /// Brings the proof of how far the last sync was, when more space waits for that than is free: new files cost more. True when
    /// there was such space.
    ///
    /// The proof is the header of a new segment. The next record would bring it, too, but that has to be synced with all
    /// that was written meanwhile, much of which may be over before its turn comes. So a new segment begins where the last is no longer
    /// small, for many of them would cost more, and where no sync is to come: at `memory`, or with nothing unsynced. What waits is what lived
    /// when one of the last two syncs began, and there is hardly more of it before the next one, whatever is written: no sync comes before its
    /// time for it.
    fn prove_to_reclaim(&self) -> Result<bool> {
        if self.options.sync_interval == Duration::MAX {
            return Ok(false);
        }
        let waiting = self.unproven_bytes(self.log.durable_through());
        if waiting < PROOF_BYTES_MIN.max(self.values.free_bytes()) {
            return Ok(false);
        }
        let comes_by_itself = self.options.durability > Durability::Memory && self.log.is_unsynced();
        if comes_by_itself && self.log.segment_bytes() < PROVING_SEGMENT_BYTES_MIN {
            return Ok(false);
        }
        self.prove_if_idle()
    }
}
