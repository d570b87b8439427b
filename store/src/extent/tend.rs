//! The background duty of extents.

use std::time::Duration;

use crate::clock::Timestamp;
use crate::error::Result;
use crate::shared::Shared;
use crate::sync::atomic::Ordering;

/// Less space than this is not worth a proof of its own.
const PROOF_BYTES_MIN: u64 = 64 << 20;
/// Where extents were made free so lately, more will be soon: writers that find none make new ones.
const FREED_LATELY: Duration = Duration::from_secs(1);
/// After so long it is looked then whether more are over.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

impl Shared {
    /// Seals extents of versions that are over, evacuates thin ones, frees those that are over, and lets go of
    /// what snapshots hold back that are held for too long. A damaged value keeps nothing but its own extent from that; it is the
    /// error at the end.
    pub(crate) fn tend_extents(&self) -> Result<()> {
        if self.options.read_only || self.closed.get().is_some() {
            return Ok(());
        }
        self.let_overdue_pins_go();
        self.seal_what_is_over();
        self.reclaim()?;
        let evacuated = self.evacuate()?;
        if evacuated.moved > 0 {
            self.reclaim()?;
        }
        if self.prove_to_reclaim()? {
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
        (freed..freed.after(FREED_LATELY)).contains(&now).then(|| now.after(LOOK_AGAIN))
    }

    /// Brings the proof of how far the last sync was, when more space waits for that than is free: new files cost more. True when
    /// there was such space.
    ///
    /// The proof is the header of a new segment. The next record would bring it, too, but that has to be synced with all
    /// that was written meanwhile, much of which may be over before its turn comes. What waits is what lived when the last sync began,
    /// and there is no more of it before the next one, whatever is written: no sync comes before its time for it.
    fn prove_to_reclaim(&self) -> Result<bool> {
        if self.options.sync_interval == Duration::MAX {
            return Ok(false);
        }
        let waiting = self.unproven_bytes();
        if waiting < PROOF_BYTES_MIN.max(self.values.free_bytes()) {
            return Ok(false);
        }
        let proven = self.log.proven_through();
        self.log.prove_durable().map_err(|error| self.close_after(&error))?;
        Ok(self.log.proven_through() > proven)
    }
}
