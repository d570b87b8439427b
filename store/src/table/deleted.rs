//! Identities of rows that were deleted by name in versions that are still there. They are never given again.
//!
//! Trajectories of an input and turn that follow one another are one run, however many they are, so who deletes all rows of an input, or
//! each row some time after the next was numbered, leaves a few runs behind.

use std::collections::BTreeMap;

use super::Identity;
use crate::heap::HeapBytes;
use crate::origin::EXTERNAL_VERSION;
use crate::texts::TextId;

/// Runs of identities, by the lane of their rows.
#[derive(Debug, Default)]
pub(super) struct DeletedIds {
    /// The last trajectory of a run, by where it begins.
    runs: BTreeMap<Start, u32>,
}

/// Lane, version, input, turn, and the first trajectory.
type Start = (u64, u64, u32, u32, u32);

/// The stored form of a run: version, input, turn, first and last trajectory.
pub(super) type RunRecord = (u64, u32, u32, u32, u32);

/// The text that a run names.
pub(super) fn text(run: &RunRecord) -> TextId {
    TextId(run.1)
}

impl DeletedIds {
    pub(super) fn insert(&mut self, lane: u64, id: &Identity) {
        self.insert_run(lane, (id.policy_version, id.input.0, id.turn, id.trajectory, id.trajectory));
    }

    /// Joined with the runs that it meets.
    fn insert_run(&mut self, lane: u64, (version, input, turn, mut first, mut last): RunRecord) {
        let at = |trajectory: u32| (lane, version, input, turn, trajectory);
        while let Some((&start, &end)) = self.runs.range(at(0)..=at(last.saturating_add(1))).next_back() {
            if end.saturating_add(1) < first {
                break;
            }
            self.runs.remove(&start);
            (first, last) = (first.min(start.4), last.max(end));
        }
        self.runs.insert(at(first), last);
    }

    pub(super) fn contains(&self, id: &Identity) -> bool {
        [id.policy_version, EXTERNAL_VERSION].into_iter().any(|lane| {
            let at = |trajectory: u32| (lane, id.policy_version, id.input.0, id.turn, trajectory);
            let before = self.runs.range(at(0)..=at(id.trajectory)).next_back();
            before.is_some_and(|(_, last)| *last >= id.trajectory)
        })
    }

    /// Forgets those of versions that are gone as a whole.
    pub(super) fn forget_versions(&mut self, is_gone: impl Fn(u64) -> bool) {
        self.runs.retain(|(_, version, ..), _| !is_gone(*version));
    }

    /// Forgets those of lanes below this one.
    pub(super) fn forget_lanes_below(&mut self, lane: u64) {
        self.runs = self.runs.split_off(&(lane, 0, 0, 0, 0));
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.runs.heap_bytes()
    }

    /// The stored form: this run's rows, and those of peers.
    pub(super) fn record(&self) -> (Vec<RunRecord>, Vec<RunRecord>) {
        let run =
            |(&(_, version, input, turn, first), &last): (&Start, &u32)| (version, input, turn, first, last);
        let peers = (EXTERNAL_VERSION, 0, 0, 0, 0);
        (self.runs.range(..peers).map(run).collect(), self.runs.range(peers..).map(run).collect())
    }

    /// Reads the stored form.
    pub(super) fn of(own: Vec<RunRecord>, of_peers: Vec<RunRecord>) -> Self {
        let mut ids = Self::default();
        let own = own.into_iter().map(|run| (run.0, run));
        let runs = own.chain(of_peers.into_iter().map(|run| (EXTERNAL_VERSION, run)));
        runs.filter(|(_, run)| run.3 <= run.4).for_each(|(lane, run)| ids.insert_run(lane, run));
        ids
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn id(policy_version: u64, input: u32, trajectory: u32) -> Identity {
        Identity { policy_version, input: TextId(input), turn: 0, trajectory }
    }

    #[test]
    fn whatever_the_order_what_was_inserted_is_there_and_neighbours_are_one_run() {
        for seed in 0..200_u64 {
            let (mut state, mut ids, mut plain) = (seed, DeletedIds::default(), BTreeSet::new());
            for _ in 0..60 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                // At both ends of the numbers too.
                let trajectory = match state >> 62 {
                    0 => u32::MAX - (state >> 33) as u32 % 4,
                    _ => (state >> 33) as u32 % 24,
                };
                let (input, version) = ((state >> 50) as u32 % 2, (state >> 55) % 2);
                ids.insert(version, &id(version, input, trajectory));
                plain.insert((version, input, trajectory));
            }
            let is_first = |&&(version, input, trajectory): &&(u64, u32, u32)| {
                trajectory == 0 || !plain.contains(&(version, input, trajectory - 1))
            };
            assert_eq!(ids.runs.len(), plain.iter().filter(is_first).count(), "seed {seed}");
            let (own, peers) = ids.record();
            for ids in [&ids, &DeletedIds::of(own, peers)] {
                for trajectory in (0..26).chain(u32::MAX - 5..=u32::MAX) {
                    for (version, input) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                        let there = plain.contains(&(version, input, trajectory));
                        assert_eq!(ids.contains(&id(version, input, trajectory)), there, "seed {seed}");
                    }
                }
            }
        }
    }

    #[test]
    fn rows_that_are_written_and_deleted_in_turn_leave_a_run() {
        let mut ids = DeletedIds::default();
        for trajectory in (0..100_000_u32).map(|at| at ^ 1) {
            ids.insert(0, &id(0, 7, trajectory));
        }
        assert_eq!(ids.record(), (vec![(0, 7, 0, 0, 99_999)], vec![]));
    }

    #[test]
    fn a_damaged_run_holds_nothing() {
        let ids = DeletedIds::of(vec![(0, 7, 0, 5, 3)], vec![]);
        assert!((0..8).all(|trajectory| !ids.contains(&id(0, 7, trajectory))));
    }
}
