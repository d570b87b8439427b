//! What a group has been through: for whoever reports on a run.

use std::time::Duration;

/// How often something was done, and what it took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
    /// How often.
    pub times: u64,
    /// All of them together.
    pub total: Duration,
    /// The longest.
    pub longest: Duration,
}

impl Spent {
    /// One of them on the average; 0 of none.
    pub fn mean(&self) -> Duration {
        let mean = self.total.as_nanos() / u128::from(self.times.max(1));
        Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX))
    }

    pub(super) fn add(&mut self, took: Duration) {
        self.times += 1;
        self.total += took;
        self.longest = self.longest.max(took);
    }
}

/// What a group has been through since it was created. A *swap* is a suspension and the start that follows.
///
/// ```
/// use forebay_trainer_adapter::process_group::GroupCounts;
/// let counts = GroupCounts::default();
/// assert_eq!((counts.starts.times, counts.starts.mean().as_millis()), (0, 0));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GroupCounts {
    /// Starts, from the first process on until all ranks had their state.
    pub starts: Spent,
    /// Suspensions, from the call on until the last process had ended.
    pub suspends: Spent,
    /// Starts that failed; no process was left.
    pub failed_starts: u64,
    /// Ranks that were lost while the group was active.
    pub lost_ranks: u64,
}
