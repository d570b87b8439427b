//! What a store shows of itself, for those who look inside.

use std::time::Duration;

use super::Store;
use crate::claim::ClaimInfo;
use crate::extent::{ExtentInfo, PinInfo};
use crate::policy::PolicyInfo;
use crate::state::ConsumerInfo;
use crate::stats::Stats;
use crate::step::StepInfo;
use crate::sync::atomic::Ordering;

impl Store {
    /// Who holds back the space of values that are no longer part of any table, the greatest first.
    pub fn pins(&self) -> Vec<PinInfo> {
        self.0.pins()
    }

    /// How the store was opened: each setting by the name of its method of [`Options`](crate::Options), times in milliseconds; `None` for
    /// a limit that is not set. Budgets and retention are those that hold now.
    pub fn settings(&self) -> Vec<(&'static str, Option<String>)> {
        self.0.options.shown(&self.0.limits)
    }

    /// The age from which on a snapshot gives no values; `None` where none is too great.
    pub fn snapshot_age_max(&self) -> Option<Duration> {
        self.0.options.snapshot_age_max
    }

    /// Whether values are held against their checksums as they are read ([`Options::check_values`](crate::Options::check_values)).
    pub fn checks_values(&self) -> bool {
        self.0.options.check_values
    }

    /// Every extent that may hold something to read, with what is live in it.
    pub fn extents(&self) -> Vec<ExtentInfo> {
        self.0.show_extents()
    }

    /// Every live claim, and the last ones that ended.
    pub fn claims(&self) -> Vec<ClaimInfo> {
        self.0.state.lock().show_claims()
    }

    /// Every step.
    pub fn steps(&self) -> Vec<StepInfo> {
        self.0.state.lock().show_steps()
    }

    /// Every policy.
    pub fn policies(&self) -> Vec<PolicyInfo> {
        self.0.state.lock().show_policies()
    }

    /// Every consumer, once for each of its tables.
    pub fn consumers(&self) -> Vec<ConsumerInfo> {
        self.0.state.lock().show_consumers()
    }

    /// Counters since the store was opened.
    pub fn stats(&self) -> Stats {
        let (extents, extent_bytes) = self.0.extents.totals();
        let commits = self.0.state.lock().commits;
        Stats {
            commits,
            log_bytes: self.0.log.bytes(),
            syncs: self.0.log.syncs(),
            durable_commits: self.0.log.durable_through(),
            value_bytes_written: self.0.values.written_bytes(),
            value_reads: self.0.extents.value_reads(),
            extents: extents as u64,
            extent_bytes,
            memory_bytes: self.0.memory_bytes(),
            free_extent_bytes: self.0.values.free_bytes(),
            extents_recycled: self.0.values.recycled(),
            extents_never_synced: self.0.values.never_synced(),
            duties_failed: self.0.duties_failed.load(Ordering::Relaxed),
        }
    }
}
