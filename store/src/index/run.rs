//! A sorted run of entries.

use super::{Entry, RunPage};

/// Entries of the numbers below `end` (and above the run before), sorted.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) end: u32,
    pub(crate) entries: RunPage,
}

impl Run {
    /// The entries with the hash of `wanted`, greatest number first.
    pub(super) fn candidates(&self, wanted: Entry) -> impl Iterator<Item = Entry> {
        let entries = &***self.entries;
        let start = lower_bound(entries, wanted);
        let same = entries[start..].iter().take_while(|e| **e >> 32 == wanted >> 32).count();
        entries[start..start + same].iter().rev().copied()
    }
}

/// The place of the first entry that is not below `wanted`. Hashes are spread evenly, so the place can be guessed well
/// and only its neighbourhood is searched.
fn lower_bound(entries: &[Entry], wanted: Entry) -> usize {
    let guess = ((u128::from(wanted) * entries.len() as u128) >> 64) as usize;
    let mut step = 16;
    let (mut low, mut high) = (guess, guess);
    while low > 0 && entries[low - 1] >= wanted {
        low = low.saturating_sub(step);
        step *= 2;
    }
    while high < entries.len() && entries[high] < wanted {
        high = (high + step).min(entries.len());
        step *= 2;
    }
    low + entries[low..high].partition_point(|e| *e < wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guess_is_right_also_where_hashes_are_not_spread() {
        let cases: [Vec<u64>; 4] =
            [vec![], vec![5], (0..1000).collect(), (0..1000).map(|i| u64::MAX - 2000 + i).collect()];
        for entries in cases {
            for wanted in [0, 1, 5, 6, 500, 999, 1000, u64::MAX / 2, u64::MAX - 1500, u64::MAX] {
                let expected = entries.partition_point(|e| *e < wanted);
                assert_eq!(lower_bound(&entries, wanted), expected, "{wanted} of {}", entries.len());
            }
        }
    }
}
