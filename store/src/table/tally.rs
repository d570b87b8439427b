//! How many rows of each version a consumer has, and how many of those it was given: what its rate limiter goes by.
//!
//! Kept for consumers that have a limiter, and changed where a row's word changes ([`TableState::set_word`]) and nowhere
//! else, so it equals what the words say. Counted by version, so that a step that leaves a version behind, and a rewind
//! that brings it back, need no counting.
//!
//! [`TableState::set_word`]: super::TableState::set_word

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use rkyv::{Archive, Deserialize, Serialize};

use super::word::Progress;

/// Rows of one consumer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Rows that came and were not left out.
    pub(crate) inserted: u64,
    /// Those of them that are held by a claim, or done.
    pub(crate) handed_out: u64,
}

/// The tallies of a table: by consumer, in the order of their words, and version.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tallies(Vec<Option<BTreeMap<u64, Tally>>>);

/// One tally as a checkpoint keeps it.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq)]
pub(crate) struct TallyImage {
    slot: u32,
    version: u64,
    inserted: u64,
    handed_out: u64,
}

impl Tally {
    /// What a row with this word counts for.
    fn of(progress: Progress) -> Self {
        let (inserted, handed_out) = match progress {
            Progress::Waiting | Progress::Ready => (1, 0),
            Progress::Leased | Progress::Accumulated | Progress::Done => (1, 1),
            Progress::Out => (0, 0),
        };
        Tally { inserted, handed_out }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        let inserted = self.inserted.saturating_add(other.inserted);
        Tally { inserted, handed_out: self.handed_out.saturating_add(other.handed_out) }
    }

    fn minus(self, other: Self) -> Self {
        let inserted = self.inserted.saturating_sub(other.inserted);
        Tally { inserted, handed_out: self.handed_out.saturating_sub(other.handed_out) }
    }
}

impl Tallies {
    /// Counts for one more consumer, from these rows' versions on, if it has a limiter.
    pub(super) fn add(&mut self, slot: usize, versions: Option<impl Iterator<Item = u64>>) {
        let Some(versions) = versions else { return };
        let mut counted: BTreeMap<u64, Tally> = BTreeMap::new();
        for version in versions {
            let tally = counted.entry(version).or_default();
            *tally = tally.plus(Tally::of(Progress::Waiting));
        }
        self.0.resize(self.0.len().max(slot + 1), None);
        self.0[slot] = Some(counted);
    }

    /// Whether the rows of a consumer are counted.
    pub(super) fn counts(&self, slot: usize) -> bool {
        self.0.get(slot).is_some_and(Option::is_some)
    }

    /// A row of that version has come, for everyone.
    pub(super) fn row_came(&mut self, version: u64) {
        for counted in self.0.iter_mut().flatten() {
            let tally = counted.entry(version).or_default();
            *tally = tally.plus(Tally::of(Progress::Waiting));
        }
    }

    /// A row's word has changed. Of versions that were deleted nothing is counted any more.
    pub(super) fn moved(&mut self, slot: usize, version: u64, from: Progress, to: Progress) {
        if let Some(Some(counted)) = self.0.get_mut(slot)
            && Tally::of(from) != Tally::of(to)
            && let Some(tally) = counted.get_mut(&version)
        {
            *tally = tally.plus(Tally::of(to)).minus(Tally::of(from));
        }
    }

    /// All rows of a consumer from a version on.
    pub(super) fn since(&self, slot: usize, version: u64) -> Tally {
        let counted = self.0.get(slot).and_then(Option::as_ref);
        let tallies = counted.into_iter().flat_map(|counted| counted.range(version..));
        tallies.fold(Tally::default(), |sum, (_, tally)| sum.plus(*tally))
    }

    /// Versions were deleted for good.
    pub(super) fn forget(&mut self, versions: RangeInclusive<u64>) {
        self.0
            .iter_mut()
            .flatten()
            .for_each(|counted| counted.retain(|version, _| !versions.contains(version)));
    }

    /// All of them, for a checkpoint.
    pub(crate) fn image(&self) -> Vec<TallyImage> {
        let of_slot = |(slot, counted): (usize, &Option<BTreeMap<u64, Tally>>)| {
            let image = move |(version, tally): (&u64, &Tally)| TallyImage {
                slot: slot as u32,
                version: *version,
                inserted: tally.inserted,
                handed_out: tally.handed_out,
            };
            counted.iter().flatten().map(image).collect::<Vec<_>>()
        };
        self.0.iter().enumerate().flat_map(of_slot).collect()
    }

    /// Takes in those of a checkpoint.
    ///
    /// # Errors
    /// When they are of a consumer whose rows are not counted: the checkpoint contradicts itself.
    pub(crate) fn restore(&mut self, images: &[TallyImage]) -> Result<(), String> {
        for image in images {
            let counted = self.0.get_mut(image.slot as usize).and_then(Option::as_mut);
            let counted =
                counted.ok_or_else(|| format!("consumer {} of a table counts nothing", image.slot))?;
            let TallyImage { version, inserted, handed_out, .. } = *image;
            counted.insert(version, Tally { inserted, handed_out });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_counts_as_what_its_word_says() {
        let mut tallies = Tallies::default();
        tallies.add(1, Some([3, 3].into_iter()));
        tallies.row_came(4);
        let tally = |inserted, handed_out| Tally { inserted, handed_out };
        assert_eq!(
            (tallies.since(1, 0), tallies.since(1, 4), tallies.since(0, 0)),
            (tally(3, 0), tally(1, 0), tally(0, 0))
        );
        for (from, to, expected) in [
            (Progress::Waiting, Progress::Ready, tally(2, 0)),
            (Progress::Ready, Progress::Leased, tally(2, 1)),
            (Progress::Leased, Progress::Done, tally(2, 1)),
            (Progress::Ready, Progress::Out, tally(1, 1)),
            (Progress::Done, Progress::Waiting, tally(1, 0)),
        ] {
            tallies.moved(1, 3, from, to);
            assert_eq!(tallies.since(1, 3), expected.plus(tally(1, 0)), "{from:?} to {to:?}");
        }
        let mut restored = Tallies::default();
        assert!(restored.restore(&tallies.image()).is_err(), "nobody counts");
        restored.add(1, Some([].into_iter()));
        restored.restore(&tallies.image()).unwrap();
        assert_eq!(restored.image(), tallies.image());
        restored.forget(0..=3);
        assert_eq!(restored.since(1, 0), tally(1, 0));
    }
}
