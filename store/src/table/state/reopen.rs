//! Rows that can be trained on again.

use std::ops::RangeInclusive;

use super::TableState;
use crate::table::Purpose;

impl TableState {
    /// Rows that these steps consumed, in the order of their insertion.
    pub(crate) fn rows_consumed_in(&self, steps: RangeInclusive<u64>) -> Vec<u32> {
        let rows = 0..self.row_count();
        rows.filter(|&row| self.status(row).step != 0 && steps.contains(&self.status(row).step)).collect()
    }

    /// Train rows of a version, or of one after it, that were excluded for `reason`.
    pub(crate) fn rows_excluded_as(&self, reason: &str, version: u64) -> Vec<u32> {
        let matches = |&row: &u32| {
            let meta = self.meta(row);
            self.status(row).excluded.as_deref() == Some(reason)
                && meta.policy_version >= version
                && meta.purpose == Purpose::Train
        };
        (0..self.row_count()).filter(matches).collect()
    }

    /// Train rows of a later version than `version` that are neither consumed nor excluded.
    pub(crate) fn open_rows_after(&self, version: u64) -> Vec<u32> {
        let later = version.saturating_add(1)..;
        self.open.range(later).flat_map(|(_, rows)| rows).copied().collect()
    }

    /// Takes back that a row was trained on.
    pub(crate) fn unconsume(&mut self, row: u32) {
        self.status_mut(row).step = 0;
        if self.reopen(row) {
            self.counts.consumed -= 1;
        }
    }

    /// Takes back that a row was left out.
    pub(crate) fn readmit(&mut self, row: u32) {
        let Some(reason) = self.status_mut(row).excluded.take() else { return };
        if self.reopen(row)
            && let Some(count) = self.counts.excluded.get_mut(&*reason)
        {
            *count -= 1;
            if *count == 0 {
                self.counts.excluded.remove(&*reason);
            }
        }
    }

    fn reopen(&mut self, row: u32) -> bool {
        let meta = self.meta(row);
        let (version, train) = (meta.policy_version, meta.purpose == Purpose::Train);
        train && self.open.entry(version).or_default().insert(row)
    }
}
