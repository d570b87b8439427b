//! What outlives a process, and how much of it must.

use forebay_store::{Durability, Stats};

use super::op::End;
use super::row::ModelRow;

/// The states that a policy stood on that are kept.
pub(super) const STATES_KEPT: usize = 3;
/// The versions whose rows retention keeps.
pub(super) const VERSIONS_KEPT: u64 = 3;

/// A committed step that stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    pub(super) step: u64,
    /// The policy's version after it.
    pub(super) version: u64,
    /// Whether it moved the policy.
    pub(super) moved: bool,
}

/// The content of a store, as plain rows.
#[derive(Clone, Debug)]
pub(super) struct Life {
    pub(super) rows: Vec<ModelRow>,
    pub(super) version: u64,
    /// Rows of versions before are nobody's business.
    pub(super) floor: u64,
    /// The greatest number of a committed step, undone ones among them.
    pub(super) last_step: u64,
    /// Steps that stand, after the beginning as step 0.
    pub(super) steps: Vec<Standing>,
    /// The oldest step that a rewind goes back to, with its version. It never goes back itself.
    pub(super) oldest: (u64, u64),
}

impl Default for Life {
    fn default() -> Self {
        let beginning = Standing { step: 0, version: 0, moved: true };
        Life { rows: Vec::new(), version: 0, floor: 0, last_step: 0, steps: vec![beginning], oldest: (0, 0) }
    }
}

impl Life {
    /// A step was committed: it moved the policy to `self.version`, or took nothing.
    pub(super) fn committed(&mut self, moved: bool) {
        self.last_step += 1;
        self.steps.push(Standing { step: self.last_step, version: self.version, moved });
        let kept = self.steps.iter().rev().filter(|step| step.moved).nth(STATES_KEPT - 1);
        let oldest = kept.map_or((0, 0), |step| (step.step, step.version));
        self.oldest = self.oldest.max(oldest);
    }

    /// Whether a rewind may need the row.
    pub(super) fn needs(&self, row: &ModelRow, window: Option<u64>) -> bool {
        let (step, version) = self.oldest;
        let comes_back = match window {
            None => row.version >= version,
            Some(versions) => row.oldest >= version.saturating_sub(versions),
        };
        row.step.is_some_and(|of| of > step) || (row.excluded == Some("stale") && comes_back)
    }

    /// What retention leaves of rows of versions that are over: all of them, or none where somebody holds one.
    pub(super) fn retain(&mut self) {
        let beyond = self.version.checked_sub(VERSIONS_KEPT).zip(self.oldest.1.checked_sub(1));
        let Some(beyond) = beyond.map(|(by_rule, by_need)| by_rule.min(by_need)) else { return };
        let over = |row: &ModelRow| row.version <= beyond && !row.deleted;
        if !self.rows.iter().any(|row| over(row) && row.is_held()) {
            self.rows.iter_mut().filter(|row| over(row)).for_each(delete);
        }
    }

    /// Goes back to a step that stands.
    pub(super) fn rewind(&mut self, at: usize, exclude: bool) {
        let undone = self.steps.split_off(at + 1);
        let step = self.steps[at].step;
        self.version = self.steps[at].version;
        if !undone.iter().any(|step| step.moved) {
            return;
        }
        let version = self.version;
        self.floor = version;
        for row in self.rows.iter_mut().filter(|row| !row.deleted) {
            let trained = row.step.is_some_and(|of| of > step);
            if trained {
                (row.step, row.train) = (None, super::row::Hold::Free);
            }
            if row.excluded == Some("stale") && row.version >= version {
                row.excluded = None;
            }
            let future = row.newest > version && row.step.is_none() && row.excluded.is_none();
            let future = future && !row.eval && !row.peer;
            if exclude && (trained || future) {
                row.exclude("rewound");
            }
        }
    }
}

/// Deletes a row. One that was open counts as excluded from then on.
pub(super) fn delete(row: &mut ModelRow) {
    if row.step.is_none() {
        row.exclude("deleted");
    }
    row.deleted = true;
}

/// Every content that may be found by the next process, by the number of records that lead to it.
#[derive(Debug)]
pub(super) struct History {
    contents: Vec<(u64, Life)>,
    /// Records that were there after the last call.
    records: u64,
    logged: u64,
    synced: u64,
}

impl History {
    pub(super) fn new(commits: u64, life: Life) -> Self {
        // The record of the opening itself may still be in memory, and says nothing of the content.
        History { contents: vec![(commits - 1, life)], records: commits, logged: commits - 1, synced: 0 }
    }

    /// A call was acknowledged at this level. One that made no record promises nothing.
    pub(super) fn acknowledged(&mut self, stats: Stats, level: Durability, life: &Life) {
        let commits = stats.commits;
        if std::mem::replace(&mut self.records, commits) < commits {
            self.logged = if level >= Durability::Logged { commits } else { self.logged };
            self.synced = if level >= Durability::Synced { commits } else { self.synced };
        }
        self.synced_through(stats.durable_commits);
        self.contents.push((commits, life.clone()));
    }

    /// So many records are on stable storage.
    pub(super) fn synced_through(&mut self, commits: u64) {
        self.synced = self.synced.max(commits);
        self.logged = self.logged.max(self.synced);
    }

    /// What may be found when `survived` records are: the content that they lead to, or, where they end inside of a call
    /// that makes several, what was before that call and what was after it.
    ///
    /// # Panics
    /// When more has been lost than this end may take.
    pub(super) fn survived(&self, how: End, survived: u64) -> &[(u64, Life)] {
        let all = self.contents.last().map_or(0, |(commits, _)| *commits);
        let promised = match how {
            End::Closed => all,
            End::Killed => self.logged,
            End::PowerFailed => self.synced,
        };
        assert!(
            survived >= promised,
            "{how:?}: {survived} records are left of {promised} that were promised"
        );
        let behind = self.contents.partition_point(|(commits, _)| *commits <= survived);
        let exact = self.contents[behind - 1].0 == survived || behind == self.contents.len();
        &self.contents[behind - 1..if exact { behind } else { behind + 1 }]
    }

    /// The next process goes on from what it found, after `commits` records with its own. What was not synced before may
    /// still be lost with the power; what was found after that is stable.
    pub(super) fn begin_again(&mut self, how: End, commits: u64, life: &Life) {
        let found = commits - 1;
        self.contents.retain(|(records, _)| *records <= found);
        self.contents.push((found, life.clone()));
        (self.records, self.logged) = (commits, found);
        if how == End::PowerFailed {
            self.synced = found;
        }
    }
}
