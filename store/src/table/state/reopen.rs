//! Rows that can be trained on again.

use std::ops::RangeInclusive;

use super::{TableState, at};
use crate::table::Purpose;
use crate::texts::{TextId, Texts};

impl TableState {
    /// Rows that these steps consumed, in the order of their insertion.
    pub(crate) fn rows_consumed_in(&self, steps: RangeInclusive<u64>) -> Vec<u32> {
        self.rows_where(|_| true).filter(|&row| self.is_consumed_in(row, &steps)).collect()
    }

    /// Whether one of these steps consumed a row, and it is still there.
    pub(crate) fn is_consumed_in(&self, row: u32, steps: &RangeInclusive<u64>) -> bool {
        let step = u64::from(self.status(row).step);
        step != 0 && steps.contains(&step) && !self.is_removed(row)
    }

    /// Train rows that are fresh but for having been excluded for `reason`.
    pub(crate) fn rows_excluded_as(&self, reason: TextId) -> Vec<u32> {
        let matches = |&row: &u32| {
            let meta = self.meta(row);
            self.status(row).excluded == reason
                && !self.is_removed(row)
                && self.counting_version(row) >= self.freshness.oldest()
                && meta.purpose() == Purpose::Train
        };
        self.rows_where(|_| true).filter(matches).collect()
    }

    /// Train rows of a later version than `version`, or with a part that is, that are neither consumed nor excluded.
    pub(crate) fn open_rows_after(&self, version: u64) -> Vec<u32> {
        let parts = self.rare.has_ahead();
        let rows =
            self.rows_where(|chunk| chunk.summary.open > 0 && (parts || chunk.summary.version_max > version));
        let later = |&row: &u32| {
            let meta = self.meta(row);
            !meta.is_external() && (meta.policy_version > version || self.is_ahead(row))
        };
        rows.filter(|row| self.is_open(*row) && later(row)).collect()
    }

    /// Takes back that a row was trained on.
    pub(crate) fn unconsume(&mut self, row: u32) {
        self.chunk_mut(row).change_status(at(row), |status| status.step = 0);
        self.counts.consumed -= u64::from(self.is_open(row));
    }

    /// Takes back that a row was left out.
    pub(crate) fn readmit(&mut self, row: u32, texts: &Texts) {
        let status = self.status(row);
        if !status.is_excluded() {
            return;
        }
        self.chunk_mut(row).change_status(at(row), |status| status.excluded = TextId::EMPTY);
        let reason = texts.get(status.excluded);
        if self.is_open(row)
            && let Some(count) = self.counts.excluded.get_mut(reason)
        {
            *count -= 1;
            if *count == 0 {
                self.counts.excluded.remove(reason);
            }
        }
    }
}
