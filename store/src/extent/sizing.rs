//! How large extents are.
//!
//! What a writer writes of one lifetime is a chain of extents, and of the last one half is left over on the average. A
//! tail that is given back has to be reserved and zeroed again for whoever uses the file next, which costs more than storing
//! the values; one that stays is space that nobody has. So an extent is a small part of its chain: of what was written to the chain before, and, where the
//! chain is of a policy's version, of what a chain of the last version came to, for versions are much alike.

use super::writer::{Lifetime, Writer};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// A chain that is as long as was known has at least so many extents, and about twice as many at most.
const PARTS: u64 = 8;

/// Says how large the next extent is to be.
#[derive(Debug)]
pub(super) struct Sizing {
    bytes_first: usize,
    bytes_max: usize,
    /// What the chains of the last version that is over came to, in the mean.
    chain_bytes: AtomicU64,
    /// The last version that is over. What comes late of one before it says nothing of the next.
    last_over: Mutex<Option<u64>>,
}

impl Sizing {
    pub(super) fn new(bytes_first: usize, bytes_max: usize) -> Self {
        Sizing { bytes_first, bytes_max, chain_bytes: AtomicU64::new(0), last_over: Mutex::default() }
    }

    /// The size of the next extent of a chain of which `written` bytes are there.
    pub(super) fn next(&self, lifetime: Lifetime, written: u64) -> usize {
        let known = match lifetime {
            Lifetime::Version(_) => self.chain_bytes.load(Ordering::Relaxed),
            Lifetime::Fragments(_) | Lifetime::Shared | Lifetime::Moved => 0,
        };
        let part = usize::try_from(known.max(written) / PARTS).unwrap_or(usize::MAX).min(self.bytes_max);
        let power_of_two = 1 << part.checked_ilog2().unwrap_or(0);
        power_of_two.max(self.bytes_first)
    }

    /// Learns of writers whose versions are over.
    pub(super) fn learn(&self, over: &[Writer]) {
        let of_version = over.iter().filter_map(|writer| match writer.lifetime {
            Lifetime::Version(version) => Some((version, writer.chain_bytes())),
            Lifetime::Fragments(_) | Lifetime::Shared | Lifetime::Moved => None,
        });
        self.note(&of_version.collect::<Vec<_>>());
    }

    /// Notes chains of versions that are over: version and bytes.
    fn note(&self, chains: &[(u64, u64)]) {
        let Some(newest) = chains.iter().map(|(version, _)| *version).max() else { return };
        let mut last_over = self.last_over.lock();
        if last_over.is_some_and(|last| last >= newest) {
            return;
        }
        *last_over = Some(newest);
        let of_newest = chains.iter().filter(|(version, _)| *version == newest);
        let (count, bytes) = of_newest.fold((0, 0), |(count, sum), (_, bytes)| (count + 1, sum + bytes));
        self.chain_bytes.store(bytes / count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_grow_with_their_chain_up_to_the_limit() {
        let sizing = Sizing::new(1 << 20, 1 << 30);
        let sizes = |written: u64| {
            let lifetimes = [Lifetime::Version(3), Lifetime::Fragments(3), Lifetime::Shared, Lifetime::Moved];
            lifetimes.map(|lifetime| sizing.next(lifetime, written))
        };
        for (written, expected) in
            [(0, 1 << 20), (8 << 20, 1 << 20), (16 << 20, 2 << 20), (100 << 20, 8 << 20), (1 << 40, 1 << 30)]
        {
            assert_eq!(sizes(written), [expected; 4], "after {written} bytes");
        }
    }

    #[test]
    fn a_version_begins_with_what_the_last_one_came_to_whatever_came_late() {
        let sizing = Sizing::new(1 << 20, 1 << 30);
        sizing.note(&[(4, 40 << 20), (4, 88 << 20), (3, 1 << 20)]);
        assert_eq!(sizing.next(Lifetime::Version(5), 0), 8 << 20, "two chains of 64 MiB in the mean");
        assert_eq!(sizing.next(Lifetime::Shared, 0), 1 << 20, "what many versions share is no version's");
        sizing.note(&[(4, 100), (2, 100)]);
        assert_eq!(sizing.next(Lifetime::Version(5), 0), 8 << 20, "late values of versions that were over");
        sizing.note(&[(5, 16 << 20)]);
        assert_eq!(sizing.next(Lifetime::Version(6), 0), 2 << 20);
        assert_eq!(sizing.next(Lifetime::Version(6), 64 << 20), 8 << 20, "more than was known");
    }
}
