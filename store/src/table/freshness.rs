//! Which rows of a table are fresh: of versions that its trainer may train on as its policy stands now.
//!
//! Strict is the default: a row's own version is the policy's current one. A trainer that declares a window of `n`
//! versions takes a row while the *oldest trainable span* of it is at most `n` versions behind: the version that made the
//! first token that is trained on, which is the row's own unless the tokens before are
//! [masked](crate::Table::trainable_from). A row of which a part was made by a version that the policy has not reached, or
//! has been taken back from, waits for that version, window or not. Rows of peers are of no version, and always fresh.
//!
//! # Invariants
//! - Nothing here is stored but what rows say of themselves: the version is the policy's, the window the trainer's.
//! - Time only ages a row: what is told of a row later (a span, a mask) can make it younger, never older. So a row is left
//!   behind when its policy moves, and at no other time.

use super::state::TableState;
use crate::origin::EXTERNAL_VERSION;

/// As of when rows of a table are fresh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Freshness {
    /// The version of the table's policy.
    pub(crate) current: u64,
    /// How many versions behind that a row may be for the table's trainer; `None` for strict, by the row's own version.
    pub(crate) window: Option<u64>,
}

impl Freshness {
    /// The oldest version that is fresh.
    pub(crate) fn oldest(self) -> u64 {
        self.oldest_at(self.current)
    }

    /// The oldest version that is fresh when the policy stands at `version`.
    pub(crate) fn oldest_at(self, version: u64) -> u64 {
        version.saturating_sub(self.window.unwrap_or(0))
    }
}

impl TableState {
    /// The version by which a row is fresh or not.
    pub(crate) fn counting_version(&self, row: u32) -> u64 {
        let own = self.meta(row).lane();
        if self.freshness.window.is_none() || own == EXTERNAL_VERSION {
            own
        } else {
            self.rare.oldest_trainable(row).unwrap_or(own)
        }
    }

    /// Whether a part of the row was made by a version that is still to come.
    pub(crate) fn is_ahead(&self, row: u32) -> bool {
        let part = |version| version > self.freshness.current;
        self.rare.has_ahead() && self.rare.newest(row).is_some_and(part) && !self.meta(row).is_external()
    }

    /// The own version of the oldest row that is fresh. Older ones are nobody's business any more.
    pub(crate) fn oldest_own_version(&self) -> u64 {
        let oldest = self.freshness.oldest();
        let masked =
            self.rare.masked_rows().filter(|&row| self.freshness.window.is_some() && self.is_open(row));
        let fresh = masked.filter(|&row| self.counting_version(row) >= oldest);
        fresh.map(|row| self.meta(row).lane()).min().unwrap_or(oldest).min(oldest)
    }

    /// No older version has a row that is fresh while the policy stands at `version`, or at one after it.
    pub(crate) fn oldest_own_version_at(&self, version: u64) -> u64 {
        let oldest = self.freshness.oldest_at(version);
        let masked = self.rare.masked_rows().filter(|_| self.freshness.window.is_some());
        masked.map(|row| self.meta(row).lane()).fold(oldest, u64::min)
    }

    /// Open train rows that are not fresh.
    pub(crate) fn rows_left_behind(&self) -> Vec<u32> {
        let oldest = self.freshness.oldest();
        let Some(before) = oldest.checked_sub(1) else { return Vec::new() };
        let mut rows = self.open_rows_up_to(before);
        rows.retain(|&row| self.counting_version(row) < oldest);
        rows
    }

    /// The policy stands at another version. Gives the rows of which a part was ahead of it and is no more.
    pub(crate) fn set_current_version(&mut self, version: u64) -> Vec<u32> {
        let rises = version >= self.freshness.current;
        self.freshness.current = version;
        if rises { self.rare.caught_up(version) } else { self.find_ahead() }
    }

    /// Looks through all spans for rows of which a part is ahead: none of them catches up by that.
    pub(crate) fn find_ahead(&mut self) -> Vec<u32> {
        self.rare.find_ahead(self.freshness.current);
        Vec::new()
    }
}
