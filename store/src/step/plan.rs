//! What a step is to take.

use crate::consumer::ConsumerHandle;

/// The membership of a step: what each trainer consumer takes before the step can be committed.
///
/// Consumers that are not named take nothing in the step, and their policies keep their versions.
#[derive(Clone, Debug, Default)]
pub struct StepPlan {
    pub(crate) entries: Vec<(usize, Vec<String>, u64)>,
}

impl StepPlan {
    /// An empty plan.
    pub fn new() -> Self {
        Self::default()
    }

    /// Plans whole groups, by group key. The consumer takes groups by name only, so rows of other groups that happen to
    /// be ready are left for a step that plans them.
    pub fn groups<K: Into<String>>(
        mut self,
        consumer: &ConsumerHandle,
        keys: impl IntoIterator<Item = K>,
    ) -> Self {
        let mut keys: Vec<String> = keys.into_iter().map(Into::into).collect();
        keys.sort();
        keys.dedup();
        self.entries.push((consumer.index(), keys, 0));
        self
    }

    /// Plans a number of rows, whichever become ready first.
    pub fn rows(mut self, consumer: &ConsumerHandle, rows: u64) -> Self {
        self.entries.push((consumer.index(), Vec::new(), rows));
        self
    }
}
