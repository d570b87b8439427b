//! The background duty of extents.

use std::time::Duration;

use crate::durability::Durability;
use crate::error::Result;
use crate::shared::Shared;

/// Less space than this is not worth a sync of its own.
const SYNC_BYTES_MIN: u64 = 64 << 20;
/// A segment of the log is not followed by another for a proof before it is so long.
const PROVING_SEGMENT_BYTES_MIN: u64 = 1 << 20;

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
        if self.sync_to_reclaim()? {
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

    /// Syncs before its time when more space waits for that than is free: new files cost more than a sync, and what is
    /// written meanwhile would grow the store. True when there was such space.
    ///
    /// The proof of how far that was is the header of a new segment. The next record would bring it, too, but that has to be
    /// synced with all that was written meanwhile, much of which may be over before its turn comes. So it does only where the
    /// segment is small: many of those would cost more.
    ///
    /// At `memory` such space is what lived when something else was synced, and there is no more of it before the next sync,
    /// whatever is written: it waits for that, and only the proof is brought.
    fn sync_to_reclaim(&self) -> Result<bool> {
        if self.options.sync_interval == Duration::MAX {
            return Ok(false);
        }
        let waiting = self.unproven_bytes();
        if waiting < SYNC_BYTES_MIN.max(self.values.free_bytes()) {
            return Ok(false);
        }
        if self.options.durability > Durability::Memory {
            self.sync_all()?;
            if self.log.is_unsynced() && self.log.segment_bytes() < PROVING_SEGMENT_BYTES_MIN {
                self.sync_all()?;
                return Ok(true);
            }
        }
        let proven = self.log.proven_through();
        self.log.prove_durable().map_err(|error| self.close_after(&error))?;
        Ok(self.log.proven_through() > proven)
    }
}
