//! What is told of process groups.

use std::time::Duration;

use forebay_trainer_adapter::process_group::GroupCounts;

/// What an agent's process group has been through in this life of the run.
#[derive(Clone, Debug)]
pub struct GroupReport {
    /// The agent.
    pub agent: String,
    /// Its ranks.
    pub world: usize,
    /// Starts, suspensions and losses.
    pub counts: GroupCounts,
    /// What an earlier life of the run had left in its state.
    pub found: Found,
}

/// Gradients of the step that is begun again which an earlier life has left in a state: they are not computed again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// In its cache.
    pub accumulated: u64,
    /// In its weights: the update was made, and not committed yet.
    pub applied: u64,
}

impl GroupReport {
    /// The report for people, in one line.
    pub(super) fn to_text(&self) -> String {
        let GroupReport { agent, world, counts, found } = self;
        let (resumes, suspends) = (counts.starts, counts.suspends);
        let processes = if *world == 1 { "process" } else { "processes" };
        let mut text = format!(
            "groups    {agent} in {world} {processes}: {} resumes ({:.0} ms each, {:.0} ms at most), {} suspends ({:.0} ms each, {:.0} ms at \
             most), {} ranks lost, {} starts failed",
            resumes.times,
            milliseconds(resumes.mean()),
            milliseconds(resumes.longest),
            suspends.times,
            milliseconds(suspends.mean()),
            milliseconds(suspends.longest),
            counts.lost_ranks,
            counts.failed_starts,
        );
        if found.accumulated + found.applied > 0 {
            let (cached, applied) = (found.accumulated, found.applied);
            text.push_str(&format!("; found {cached} gradients in its cache, {applied} in its weights"));
        }
        text
    }
}

pub(super) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
