//! Finds a number by a hash: rows by their identity, texts by their characters.
//!
//! The index holds 32 bits of hash and the number, and asks its owner whether a candidate is the one that is looked
//! for; keys themselves lie where they are used. Numbers are given out in growing order. Several candidates may match
//! (the attempts at a sample): the greatest is meant.
//!
//! What came last lies in hash tables; a checkpoint makes sorted [`Run`]s of what is older, which can be mapped and need
//! no building when the store is opened. Runs cover ranges of numbers without gaps, oldest first, each more than twice
//! as long as the next, so a lookup meets few of them.
//!
//! An owner says of numbers that are gone that they do not match. [`IdIndex::remove`] takes them out of the tables, and
//! [`IdIndex::remove_all`] many by one pass over them; runs leave them behind when they are merged.

mod gone;
mod memo;
mod run;

use gone::Gone;
pub(crate) use memo::Memo;
pub(crate) use run::Run;

use hashbrown::HashTable;

use crate::page::{CowArc, Page, Rows};

/// The 32 bits of hash above, the number below.
pub(crate) type Entry = u64;

pub(crate) fn entry(hash: u64, number: u32) -> Entry {
    (hash >> 32) << 32 | u64::from(number)
}

fn number_of(entry: Entry) -> u32 {
    entry as u32
}

/// Spreads the 32 bits of an entry's hash over what a hash table looks at.
fn spread(entry: Entry) -> u64 {
    (entry >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// How many entries are passed over in the time that one takes to be found by its hash and taken out: a line of the cache that is
/// not there, beside those that come in order.
const PASSED_FOR_ONE: usize = 16;

/// An index of numbers by hash.
#[derive(Default)]
pub(crate) struct IdIndex {
    runs: Vec<Run>,
    /// Tables of the numbers since the last run, each with the first number that it may hold; the last one grows.
    recent: Vec<(u32, HashTable<Entry>)>,
}

impl IdIndex {
    /// An index over runs that were stored.
    pub(crate) fn of_runs(runs: Vec<Run>) -> Self {
        IdIndex { runs, recent: Vec::new() }
    }

    /// The first number that no run covers.
    pub(crate) fn runs_end(&self) -> u32 {
        self.runs.last().map_or(0, |run| run.end)
    }

    pub(crate) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Adds a number, greater than all before.
    pub(crate) fn insert(&mut self, hash: u64, number: u32) {
        self.insert_entry(entry(hash, number));
    }

    /// As [`insert`](Self::insert), of the entry that a run would have.
    pub(crate) fn insert_entry(&mut self, entry: Entry) {
        if self.recent.is_empty() {
            self.recent.push((number_of(entry), HashTable::new()));
        }
        if let Some((_, table)) = self.recent.last_mut() {
            table.insert_unique(spread(entry), entry, |e| spread(*e));
        }
    }

    /// The greatest number of that hash which `matches`.
    pub(crate) fn find(&self, hash: u64, matches: impl Fn(u32) -> bool) -> Option<u32> {
        let wanted = entry(hash, 0);
        for (_, table) in self.recent.iter().rev() {
            let same = table.iter_hash(spread(wanted)).filter(|e| **e >> 32 == wanted >> 32);
            let found = same.map(|e| number_of(*e)).filter(|number| matches(*number)).max();
            if found.is_some() {
                return found;
            }
        }
        let candidates = self.runs.iter().rev().flat_map(|run| run.candidates(wanted));
        candidates.map(number_of).find(|number| matches(*number))
    }

    /// From here on numbers go to a table of their own, so that a run can be made of those before.
    pub(crate) fn begin_generation(&mut self, next: u32) {
        if self.recent.last().is_some_and(|(first, _)| *first < next) {
            self.recent.push((next, HashTable::new()));
        }
    }

    /// Puts stored runs in the place of the tables that they cover.
    pub(crate) fn install(&mut self, runs: Vec<Run>) {
        self.runs = runs;
        let end = self.runs_end();
        let covered = |at: usize, recent: &[(u32, HashTable<Entry>)]| {
            recent.get(at + 1).map_or(u32::MAX, |(next, _)| *next) <= end
        };
        let gone = (0..self.recent.len()).take_while(|at| covered(*at, &self.recent)).count();
        self.recent.drain(..gone);
    }

    /// How many numbers no run covers.
    fn recent_len(&self) -> usize {
        self.recent.iter().map(|(_, table)| table.len()).sum()
    }

    /// Takes a number out that is gone for good, unless it lies in a run.
    pub(crate) fn remove(&mut self, hash: u64, number: u32) {
        let gone = entry(hash, number);
        let Some((_, table)) = self.recent.iter_mut().rev().find(|(first, _)| *first <= number) else {
            return;
        };
        if let Ok(found) = table.find_entry(spread(gone), |e| *e == gone) {
            found.remove();
        }
    }

    /// Whether so many numbers leave sooner by [one pass](Self::remove_all) than [one after the other](Self::remove).
    pub(crate) fn is_passed_over_for(&self, count: usize) -> bool {
        count.saturating_mul(PASSED_FOR_ONE) >= self.recent_len()
    }

    /// As [`remove`](Self::remove), for many, given as the first and the last of runs in any order, by one pass over the tables that may hold one of them.
    pub(crate) fn remove_all(&mut self, runs: &[(u32, u32)]) {
        let Some((oldest, _)) = self.recent.first() else { return };
        let gone = Gone::new(runs, *oldest);
        let mut end = u32::MAX;
        for (first, table) in self.recent.iter_mut().rev() {
            if gone.may_lie_in(*first, end) {
                table.retain(|entry| !gone.contains(number_of(*entry)));
            }
            end = *first;
        }
    }

    /// Bytes of memory, other than mapped files'.
    pub(crate) fn heap_bytes(&self) -> usize {
        let tables: usize = self.recent.iter().map(|(_, table)| table.allocation_size()).sum();
        tables + self.runs.iter().map(|run| run.entries.heap_bytes()).sum::<usize>()
    }
}

impl std::fmt::Debug for IdIndex {
    /// Nothing: what an index finds follows from what it is over.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("IdIndex")
    }
}

/// Merges new entries into runs: `runs` cover `0..runs_end`, `fresh` the numbers from there to `end`. Entries that are
/// not `alive` are left behind where runs are merged anyway.
pub(crate) fn merged(runs: &[Run], mut fresh: Vec<Entry>, end: u32, alive: impl Fn(u32) -> bool) -> Vec<Run> {
    let mut runs = runs.to_vec();
    if runs.last().map_or(0, |run| run.end) >= end {
        return runs;
    }
    fresh.sort_unstable();
    while let Some(last) = runs.pop_if(|last| last.entries.len() < 2 * fresh.len()) {
        let kept = last.entries.iter().copied().filter(|e| alive(number_of(*e)));
        fresh.extend(kept);
        fresh.sort_unstable();
    }
    runs.push(Run { end, entries: Page::new(Rows::Owned(fresh)) });
    runs
}

/// The page of a run's entries.
pub(crate) type RunPage = CowArc<Page<Rows<Entry>>>;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_number_that_was_taken_out_is_not_asked_about() {
        let mut index = IdIndex::default();
        for number in 0..6 {
            if number == 3 {
                index.begin_generation(3);
            }
            index.insert(7 << 32, number);
        }
        [1, 4, 9].into_iter().for_each(|number| index.remove(7 << 32, number));
        let mut asked = std::collections::BTreeSet::new();
        let asked_of = std::cell::RefCell::new(&mut asked);
        assert_eq!(index.find(7 << 32, |number| !asked_of.borrow_mut().insert(number)), None);
        assert_eq!((asked.into_iter().collect::<Vec<_>>(), index.recent_len()), (vec![0, 2, 3, 5], 4));
    }

    #[test]
    fn many_are_taken_out_of_every_table_that_holds_one_of_them() {
        let left_without = |gone: &[(u32, u32)]| {
            let mut index = IdIndex::default();
            for number in 0..9 {
                if [3, 6].contains(&number) {
                    index.begin_generation(number);
                }
                index.insert(u64::from(number) << 32, number);
            }
            index.remove_all(gone);
            let left: Vec<u32> =
                (0..9).filter(|n| index.find(u64::from(*n) << 32, |found| found == *n).is_some()).collect();
            assert_eq!(left.len(), index.recent_len());
            left
        };
        type Runs = &'static [(u32, u32)];
        let cases: [(Runs, &[u32]); 5] = [
            (&[], &[0, 1, 2, 3, 4, 5, 6, 7, 8]),
            (&[(2, 3)], &[0, 1, 4, 5, 6, 7, 8]),
            (&[(0, 0), (2, 2), (5, 6), (8, 8)], &[1, 3, 4, 7]),
            (&[(8, 8), (0, 0)], &[1, 2, 3, 4, 5, 6, 7]),
            (&[(0, 8)], &[]),
        ];
        for (gone, left) in cases {
            assert_eq!(left_without(gone), left, "without {gone:?}");
        }
    }

    #[test]
    fn a_pass_is_taken_where_as_many_go_as_it_costs() {
        let mut index = IdIndex::default();
        (0..100).for_each(|number| index.insert(u64::from(number) << 32, number));
        let needed = (0..).find(|&count| index.is_passed_over_for(count));
        assert_eq!(needed, Some(100_usize.div_ceil(PASSED_FOR_ONE)));
    }

    proptest! {
        // Hashes collide on purpose: a few values only.
        #[test]
        fn the_greatest_match_is_found_wherever_it_lies(
            keys in prop::collection::vec(0_u64..40, 1..300),
            cuts in prop::collection::vec(0_usize..300, 0..5),
        ) {
            let hash = |key: u64| (key % 13) << 32;
            let mut index = IdIndex::default();
            for (number, key) in keys.iter().enumerate() {
                if cuts.contains(&number) {
                    let end = number as u32;
                    index.begin_generation(end);
                    let start = index.runs_end();
                    let fresh = (start..end).map(|n| entry(hash(keys[n as usize]), n)).collect();
                    let runs = merged(index.runs(), fresh, end, |_| true);
                    index.install(runs);
                }
                index.insert(hash(*key), number as u32);
                for probe in 0..40 {
                    let expected = keys[..=number].iter().rposition(|k| *k == probe).map(|n| n as u32);
                    let found = index.find(hash(probe), |n| keys[n as usize] == probe);
                    prop_assert_eq!(found, expected);
                }
            }
        }
    }
}
