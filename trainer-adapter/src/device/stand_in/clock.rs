//! What is ordered before what: a vector clock over the streams.

/// Stream, and which of its copies.
pub(super) type CopyId = (usize, usize);

/// How many copies of each stream are known to come before.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Clock(Vec<usize>);

impl Clock {
    /// After this copy, and nothing of other streams.
    pub(super) fn up_to((stream, index): CopyId) -> Self {
        let mut counts = vec![0; stream + 1];
        counts[stream] = index + 1;
        Self(counts)
    }

    fn get(&self, stream: usize) -> usize {
        self.0.get(stream).copied().unwrap_or(0)
    }

    pub(super) fn join(&mut self, other: &Clock) {
        self.0.resize(self.0.len().max(other.0.len()), 0);
        self.0.iter_mut().zip(&other.0).for_each(|(own, &other)| *own = (*own).max(other));
    }

    pub(super) fn holds(&self, (stream, index): CopyId) -> bool {
        index < self.get(stream)
    }
}
