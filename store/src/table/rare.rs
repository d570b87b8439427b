//! What few rows of a table have: kept beside the pages, so that the others pay nothing for it.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::deleted::{DeletedIds, RunRecord, text};
use super::{CHUNK_ROWS, Identity, RowMeta};
use crate::heap::HeapBytes;
use crate::page::CowArc;
use crate::texts::TextId;

/// From which token on a response was made under which policy version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
pub struct VersionSpan {
    /// The first token of the span.
    pub start: u32,
    /// The version that made it.
    pub version: u64,
}

/// Lists by row, in pages by chunk. Clones share every page; a change copies the page that it touches.
#[derive(Clone, Debug)]
pub(crate) struct RarePages<T>(CowArc<BTreeMap<u32, CowArc<Page<T>>>>);

type Page<T> = BTreeMap<u32, Vec<T>>;

impl<T> Default for RarePages<T> {
    fn default() -> Self {
        RarePages(CowArc::default())
    }
}

impl<T: Clone> RarePages<T> {
    pub(crate) fn get(&self, row: u32) -> &[T] {
        let page = self.0.get(&(row / CHUNK_ROWS as u32));
        page.and_then(|page| page.get(&row)).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn push(&mut self, row: u32, item: T) {
        let pages = CowArc::make_mut(&mut self.0);
        let page = CowArc::make_mut(pages.entry(row / CHUNK_ROWS as u32).or_default());
        page.entry(row).or_default().push(item);
    }

    pub(crate) fn remove(&mut self, row: u32) {
        if self.get(row).is_empty() {
            return;
        }
        let pages = CowArc::make_mut(&mut self.0);
        if let Entry::Occupied(mut page) = pages.entry(row / CHUNK_ROWS as u32) {
            CowArc::make_mut(page.get_mut()).remove(&row);
            if page.get().is_empty() {
                page.remove();
            }
        }
    }

    /// Every row that has something, with what it has.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &[T])> {
        self.0.values().flat_map(|page| page.iter().map(|(row, items)| (*row, items.as_slice())))
    }
}

/// What a row that has spans takes beside them: its number, its list, its place in a tree.
const SPAN_ROW_BYTES: usize = 48;
/// Stands in the stored list of retired versions before those that were moved out: in a place and a form that no retired span
/// had, so that checkpoints of before are read, and say that none was.
const MOVED_OUT: (u64, u64) = (u64::MAX, 0);

/// What few rows of a table have.
#[derive(Debug, Default)]
pub(crate) struct Rare {
    /// Rows that went on under a later version; the first span, the row's own, is not listed.
    spans: RarePages<VersionSpan>,
    /// Rows of which only the tokens from one on are trained on, with that token.
    trainable_from: BTreeMap<u32, u32>,
    /// Rows whose last span is of a version that is still to come, by that version; follows from the spans.
    ahead: BTreeSet<(u64, u32)>,
    /// Rows whose trajectory was numbered here, by the token that they were inserted with.
    tokens: HashMap<u128, u32>,
    /// Versions that were deleted for good: first and last, in order, with gaps between.
    retired: Vec<(u64, u64)>,
    /// Those of them whose rows were taken elsewhere before. Snapshots share it.
    moved_out: CowArc<Vec<(u64, u64)>>,
    /// Identities that were deleted for good in versions that are not.
    deleted: DeletedIds,
    /// The rows of every step up to this one are deleted.
    consumed_deleted_up_to: u64,
}

/// The stored form of [`Rare`].
#[derive(Clone, Debug, Default, PartialEq, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
pub(crate) struct RareRecord {
    spans: Vec<(u32, Vec<VersionSpan>)>,
    trainable_from: Vec<(u32, u32)>,
    tokens: Vec<(u128, u32)>,
    retired: Vec<(u64, u64)>,
    deleted: Vec<RunRecord>,
    /// Of peers.
    deleted_external: Vec<RunRecord>,
    consumed_deleted_up_to: u64,
}

impl RareRecord {
    /// The texts that it names.
    pub(crate) fn texts(&self) -> impl Iterator<Item = TextId> + '_ {
        self.deleted.iter().chain(&self.deleted_external).map(text)
    }
}

impl Rare {
    /// Bytes of memory.
    pub(crate) fn heap_bytes(&self) -> usize {
        let spans = self.spans.iter().map(|(_, spans)| size_of_val(spans) + SPAN_ROW_BYTES).sum::<usize>();
        let in_trees = self.trainable_from.heap_bytes() + self.ahead.heap_bytes();
        let versions = self.retired.heap_bytes() + self.moved_out.heap_bytes();
        spans + in_trees + self.tokens.heap_bytes() + versions + self.deleted.heap_bytes()
    }

    pub(crate) fn spans(&self) -> &RarePages<VersionSpan> {
        &self.spans
    }

    /// Adds a span to a row of a table whose policy stands at `current`.
    pub(crate) fn add_span(&mut self, row: u32, span: VersionSpan, current: u64) {
        self.newest(row).map(|before| self.ahead.remove(&(before, row)));
        if span.version > current {
            self.ahead.insert((span.version, row));
        }
        self.spans.push(row, span);
    }

    /// The first token of a row that is trained on.
    pub(crate) fn trainable_from(&self, row: u32) -> u32 {
        self.trainable_from.get(&row).copied().unwrap_or(0)
    }

    /// Only the tokens from `start` on are trained on.
    pub(crate) fn mask(&mut self, row: u32, start: u32) {
        self.trainable_from.insert(row, start);
    }

    /// Rows of which some tokens are not trained on.
    pub(crate) fn masked_rows(&self) -> impl Iterator<Item = u32> {
        self.trainable_from.keys().copied()
    }

    /// The version that made the first token that is trained on; `None` for the row's own.
    pub(crate) fn oldest_trainable(&self, row: u32) -> Option<u64> {
        let first = *self.trainable_from.get(&row)?;
        let spans = self.spans.get(row).iter().rev();
        spans
            .map(|span| (span.start, span.version))
            .find(|(start, _)| *start <= first)
            .map(|(_, version)| version)
    }

    /// The version that made the last token; `None` for the row's own.
    pub(crate) fn newest(&self, row: u32) -> Option<u64> {
        self.spans.get(row).last().map(|span| span.version)
    }

    /// Whether any row is ahead of the policy with a part of it.
    pub(crate) fn has_ahead(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// The policy has come to `version`: gives the rows that were ahead and are no more.
    pub(crate) fn caught_up(&mut self, version: u64) -> Vec<u32> {
        let still = self.ahead.split_off(&(version.saturating_add(1), 0));
        let caught_up = std::mem::replace(&mut self.ahead, still);
        caught_up.into_iter().map(|(_, row)| row).collect()
    }

    /// Finds the rows that are ahead of `current` with a part.
    pub(crate) fn find_ahead(&mut self, current: u64) {
        let newest = self.spans.iter().filter_map(|(row, spans)| Some((spans.last()?.version, row)));
        self.ahead = newest.filter(|(version, _)| *version > current).collect();
    }

    pub(crate) fn note_token(&mut self, token: u128, row: u32) {
        self.tokens.insert(token, row);
    }

    /// The row that was numbered for a token.
    pub(crate) fn row_of_token(&self, token: u128) -> Option<u32> {
        self.tokens.get(&token).copied().filter(|_| token != 0)
    }

    /// Whether a version was deleted for good.
    pub(crate) fn is_retired(&self, version: u64) -> bool {
        holds(&self.retired, version)
    }

    /// Whether all of some versions were.
    pub(crate) fn are_retired(&self, first: u64, last: u64) -> bool {
        self.retired.iter().any(|of| of.0 <= first && last <= of.1)
    }

    /// Deletes versions for good. Their identities need not be remembered any more.
    pub(crate) fn retire(&mut self, first: u64, last: u64) {
        add(&mut self.retired, (first, last));
        let Rare { deleted, retired, .. } = self;
        deleted.forget_versions(|version| holds(retired, version));
    }

    /// The rows of these versions, which are retired, were taken elsewhere before they were deleted.
    pub(crate) fn note_moved_out(&mut self, first: u64, last: u64) {
        add(CowArc::make_mut(&mut self.moved_out), (first, last));
    }

    /// The versions whose rows were taken elsewhere.
    pub(crate) fn moved_out(&self) -> &CowArc<Vec<(u64, u64)>> {
        &self.moved_out
    }

    /// Forgets which rows of versions below this one were deleted: they would be refused as stale if they came again. Rows of
    /// peers never are.
    pub(crate) fn forget_deleted_below(&mut self, version: u64) {
        self.deleted.forget_lanes_below(version);
    }

    /// Whether a row of this identity was deleted for good.
    pub(crate) fn is_deleted(&self, identity: &Identity) -> bool {
        self.deleted.contains(identity)
    }

    /// The step up to which the rows of all steps are deleted.
    pub(crate) fn consumed_deleted_up_to(&self) -> u64 {
        self.consumed_deleted_up_to
    }

    /// The rows of every step up to this one are deleted.
    pub(crate) fn note_consumed_deleted(&mut self, step: u64) {
        self.consumed_deleted_up_to = self.consumed_deleted_up_to.max(step);
    }

    /// Forgets a row, but for its identity, unless a later attempt has that still.
    pub(crate) fn row_deleted(&mut self, row: u32, meta: &RowMeta, latest: bool) {
        self.newest(row).map(|newest| self.ahead.remove(&(newest, row)));
        self.spans.remove(row);
        self.trainable_from.remove(&row);
        if self.tokens.get(&meta.token()) == Some(&row) {
            self.tokens.remove(&meta.token());
        }
        if latest && !self.is_retired(meta.policy_version) {
            self.deleted.insert(meta.lane(), &Identity::of(meta));
        }
    }

    /// The stored form.
    pub(crate) fn record(&self) -> RareRecord {
        let spans = self.spans.iter().map(|(row, spans)| (row, spans.to_vec())).collect();
        let trainable_from = self.trainable_from.iter().map(|(row, start)| (*row, *start)).collect();
        let mut tokens: Vec<(u128, u32)> = self.tokens.iter().map(|(token, row)| (*token, *row)).collect();
        tokens.sort_unstable();
        let (deleted, deleted_external) = self.deleted.record();
        RareRecord {
            spans,
            trainable_from,
            tokens,
            retired: self.stored_versions(),
            deleted,
            deleted_external,
            consumed_deleted_up_to: self.consumed_deleted_up_to,
        }
    }

    /// The retired versions, and behind [`MOVED_OUT`] those that were moved out, where there is one.
    fn stored_versions(&self) -> Vec<(u64, u64)> {
        let mark = (!self.moved_out.is_empty()).then_some(MOVED_OUT);
        self.retired.iter().copied().chain(mark).chain(self.moved_out.iter().copied()).collect()
    }

    /// Reads the stored form.
    pub(crate) fn of(record: RareRecord) -> Self {
        let [retired, moved_out] = versions_of(record.retired);
        let mut spans = RarePages::default();
        for (row, list) in record.spans {
            list.into_iter().for_each(|span| spans.push(row, span));
        }
        Rare {
            spans,
            trainable_from: record.trainable_from.into_iter().collect(),
            ahead: BTreeSet::new(), // the table says as of which version
            tokens: record.tokens.into_iter().collect(),
            retired,
            moved_out: CowArc::new(moved_out),
            deleted: DeletedIds::of(record.deleted, record.deleted_external),
            consumed_deleted_up_to: record.consumed_deleted_up_to,
        }
    }
}

/// Whether a version is in one of these spans.
pub(crate) fn holds(spans: &[(u64, u64)], version: u64) -> bool {
    spans.iter().any(|(first, last)| (*first..=*last).contains(&version))
}

/// Adds a span to spans in their order, with gaps between.
fn add(spans: &mut Vec<(u64, u64)>, span: (u64, u64)) {
    spans.push(span);
    spans.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for &(first, last) in spans.iter() {
        match merged.last_mut() {
            Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
            _ => merged.push((first, last)),
        }
    }
    *spans = merged;
}

/// The retired versions of a stored list, and those that were moved out.
fn versions_of(mut stored: Vec<(u64, u64)>) -> [Vec<(u64, u64)>; 2] {
    let Some(mark) = stored.iter().position(|span| *span == MOVED_OUT) else { return [stored, Vec::new()] };
    let moved_out = stored.split_off(mark + 1);
    stored.truncate(mark);
    [stored, moved_out]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_keeps_what_it_saw() {
        let mut pages = RarePages::default();
        pages.push(7, 'a');
        pages.push(5000, 'b');
        let seen = pages.clone();
        pages.push(7, 'c');
        pages.remove(5000);
        assert_eq!((seen.get(7), seen.get(5000), seen.get(8)), (&['a'][..], &['b'][..], &[][..]));
        assert_eq!((pages.get(7), pages.get(5000)), (&['a', 'c'][..], &[][..]));
        assert_eq!(pages.iter().count(), 1);
    }

    #[test]
    fn versions_that_were_moved_out_are_stored_beside_the_retired_ones() {
        let mut rare = Rare::default();
        (0..4).for_each(|version| rare.retire(version, version));
        assert_eq!(rare.record().retired, [(0, 3)], "as it was stored before versions were moved out");
        rare.note_moved_out(1, 1);
        rare.note_moved_out(3, 3);
        rare.note_moved_out(2, 2);
        assert_eq!(rare.record().retired, [(0, 3), MOVED_OUT, (1, 3)]);
        let again = Rare::of(rare.record());
        assert_eq!((again.record(), &again.retired), (rare.record(), &vec![(0, 3)]));
        assert_eq!(
            [0, 1, 2, 3, 4].map(|version| holds(again.moved_out(), version)),
            [false, true, true, true, false]
        );
        let before = RareRecord { retired: vec![(0, 3)], ..RareRecord::default() };
        assert!(Rare::of(before).moved_out().is_empty(), "a checkpoint of before says that none was");
    }

    #[test]
    fn the_stored_form_gives_back_what_it_holds() {
        let mut rare = Rare::default();
        rare.add_span(9, VersionSpan { start: 4, version: 2 }, 2);
        rare.add_span(9, VersionSpan { start: 8, version: 3 }, 2);
        rare.mask(9, 5);
        rare.note_token(77, 9);
        rare.row_deleted(3, &RowMeta { policy_version: 9, turn: 4, ..RowMeta::default() }, true);
        rare.retire(3, 4);
        rare.retire(0, 0);
        rare.retire(1, 1);
        rare.note_consumed_deleted(6);
        let again = Rare::of(rare.record());
        assert_eq!(again.record(), rare.record());
        assert_eq!((again.spans().get(9).len(), again.row_of_token(77)), (2, Some(9)));
        assert_eq!(
            [0, 1, 2, 3, 4, 5].map(|version| again.is_retired(version)),
            [true, true, false, true, true, false]
        );
        assert_eq!(again.consumed_deleted_up_to(), 6);
        let peer = RowMeta { policy_version: 9, turn: 5, ..RowMeta::default() };
        assert!(again.is_deleted(&Identity::of(&RowMeta { turn: 4, ..peer })));
        rare.forget_deleted_below(9);
        assert_eq!(rare.record(), again.record());
        rare.forget_deleted_below(10);
        assert_eq!(rare.record().deleted, [], "it would be stale");
        rare.row_deleted(4, &peer, true);
        rare.retire(5, 9);
        assert_eq!(rare.record().deleted, [], "a version that is gone stands for its identities");
    }
}
