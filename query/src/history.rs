//! When steps were committed and what they moved: what the past of a table hangs on. A store tells it of all its policies;
//! an archive keeps it for each version that it holds, so that its past can be asked where the store is gone.

use std::collections::BTreeMap;

use forebay_store::{StepProgress, Store, Timestamp};
use serde::{Deserialize, Serialize};

/// A committed step, as one policy sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CommittedStep {
    pub(crate) step: u64,
    /// Microseconds since the Unix epoch, UTC.
    ended_at: i64,
    /// The version that it moved the policy to; `None` where it moved others alone.
    moved_to: Option<u64>,
}

impl CommittedStep {
    pub(crate) fn ended_at(&self) -> Timestamp {
        Timestamp(self.ended_at)
    }

    fn ends(&self, version: u64) -> bool {
        self.moved_to.is_some_and(|moved_to| moved_to > version)
    }
}

/// The committed steps of a run that are known, by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct History(BTreeMap<u64, CommittedStep>);

impl History {
    /// All that a store knows, as `policy` sees it.
    pub(crate) fn of_policy(store: &Store, policy: &str) -> Self {
        let steps = store.steps().into_iter().filter(|step| step.progress == StepProgress::Committed);
        let committed = steps.filter_map(|step| {
            let moved_to =
                step.updates.iter().find(|(moved, _)| moved == policy).map(|(_, version)| *version);
            Some(CommittedStep { step: step.step, ended_at: step.ended_at?.0, moved_to })
        });
        committed.collect()
    }

    /// The steps that were committed while a version was the current one, the one that ended it included.
    pub(crate) fn of_version(&self, version: u64) -> Vec<CommittedStep> {
        let begins = |step: &CommittedStep| step.moved_to.is_some_and(|moved_to| moved_to <= version);
        let before = self.0.values().rev().find(|step| begins(step)).map_or(0, |step| step.step);
        let since = self.0.values().filter(|step| step.step > before);
        let last = self.end_of(version).map_or(u64::MAX, |end| end.step);
        since.take_while(|step| step.step <= last).copied().collect()
    }

    /// The step that ended a version; `None` for the current one, and where it is not known.
    pub(crate) fn end_of(&self, version: u64) -> Option<CommittedStep> {
        self.0.values().find(|step| step.ends(version)).copied()
    }

    pub(crate) fn step(&self, number: u64) -> Option<CommittedStep> {
        self.0.get(&number).copied()
    }

    /// The last one.
    pub(crate) fn last(&self) -> Option<CommittedStep> {
        self.0.values().next_back().copied()
    }
}

impl FromIterator<CommittedStep> for History {
    fn from_iter<I: IntoIterator<Item = CommittedStep>>(steps: I) -> Self {
        History(steps.into_iter().map(|step| (step.step, step)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(moves: &[Option<u64>]) -> History {
        let step = |(at, moved_to): (usize, &Option<u64>)| CommittedStep {
            step: at as u64 + 1,
            ended_at: at as i64,
            moved_to: *moved_to,
        };
        moves.iter().enumerate().map(step).collect()
    }

    #[test]
    fn every_step_is_of_the_version_that_was_current() {
        // Step 2 moves another policy alone; steps 3 and 5 skip a version each; step 6 comes after the last move.
        let history = history(&[Some(1), None, Some(3), Some(4), Some(6), None]);
        for (version, steps) in [
            (0, vec![1]),
            (1, vec![2, 3]),
            (2, vec![2, 3]),
            (3, vec![4]),
            (4, vec![5]),
            (5, vec![5]),
            (6, vec![6]),
            (7, vec![6]),
        ] {
            let found: Vec<u64> = history.of_version(version).iter().map(|step| step.step).collect();
            assert_eq!(found, steps, "version {version}");
        }
        assert_eq!(history.end_of(2).map(|step| step.step), Some(3));
        assert_eq!(history.end_of(6), None);
        assert_eq!(History::default().of_version(0), []);
    }

    #[test]
    fn what_versions_keep_is_the_whole_again() {
        let whole = history(&[None, Some(1), None, Some(2), Some(3), None, Some(4)]);
        let kept: History = (0..4).flat_map(|version| whole.of_version(version)).collect();
        assert_eq!(kept.0, whole.0);
    }
}
