//! Numbers that leave an index together.

use std::ops::RangeInclusive;

/// A set of numbers that is asked about every number of an index.
///
/// Versions whose rows were written in turns leave thousands of runs: a bit a number answers in one look, however many they are.
pub(super) struct Gone {
    /// From the least to the greatest.
    within: RangeInclusive<u32>,
    /// A bit a number of that range; none where all of it is gone.
    bits: Vec<u64>,
}

impl Gone {
    /// The numbers of some runs from one number on. A run is given by its first and its last; they come in any order.
    pub(super) fn new(runs: &[(u32, u32)], from: u32) -> Self {
        let runs: Vec<(u32, u32)> =
            runs.iter().filter(|run| run.1 >= from).map(|run| (run.0.max(from), run.1)).collect();
        let first = runs.iter().map(|run| run.0).min();
        let last = runs.iter().map(|run| run.1).max();
        let (Some(first), Some(last)) = (first, last) else {
            return Gone { within: RangeInclusive::new(1, 0), bits: Vec::new() };
        };
        let mut gone = Gone { within: first..=last, bits: Vec::new() };
        if runs.len() > 1 {
            gone.bits.resize((last - first) as usize / 64 + 1, 0);
            runs.iter().flat_map(|run| run.0..=run.1).for_each(|number| {
                let at = (number - first) as usize;
                gone.bits[at / 64] |= 1 << (at % 64);
            });
        }
        gone
    }

    /// Whether a number is one of them.
    pub(super) fn contains(&self, number: u32) -> bool {
        let at = || (number - self.within.start()) as usize;
        self.within.contains(&number)
            && (self.bits.is_empty() || self.bits[at() / 64] >> (at() % 64) & 1 == 1)
    }

    /// Whether one of them may lie from a number on and before another.
    pub(super) fn may_lie_in(&self, first: u32, end: u32) -> bool {
        first <= *self.within.end() && end > *self.within.start()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_gone_that_lies_in_a_run_and_no_other() {
        for runs in [&[][..], &[(5, 5)], &[(0, 63), (64, 64), (200, 300)], &[(300, 399), (7, 9), (8, 12)]] {
            for from in [0, 8, 250, 400] {
                let gone = Gone::new(runs, from);
                for number in 0..400 {
                    let lies_in_one = runs.iter().any(|(first, last)| (*first..=*last).contains(&number));
                    assert_eq!(
                        gone.contains(number),
                        lies_in_one && number >= from,
                        "{number} of {runs:?} from {from}"
                    );
                }
            }
        }
    }
}
