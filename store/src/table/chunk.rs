//! Four thousand and ninety-six rows, in pages that snapshots share.
//!
//! A chunk is a handful of shared pages. A snapshot clones the reference to the chunk; the next write copies the list of
//! pages and the page that it changes. So a snapshot costs its number of chunks and blocks nobody.
//!
//! Rows that are removed keep their number. A chunk whose rows are all removed gives its pages away, and all such chunks of
//! a table are one ([`Chunk::gone`]); reading such a row gives zeros, and nobody who is to see rows asks for it
//! ([`Chunk::is_removed`]).

use std::ops::RangeInclusive;

use super::agent::OnlyAgent;
use super::column::ColumnPage;
use super::named::TextsNamed;
use super::record::{Purpose, RowMeta, RowStatus};
use super::word::{ConsumerWord, Progress};
use crate::extent::View;
use crate::log::record::StoredValue;
use crate::origin::EXTERNAL_VERSION;
use crate::page::{CowArc, Page, Rows, Storable};
use crate::texts::TextId;

/// Rows in a full chunk.
pub const CHUNK_ROWS: usize = 4096;

/// The number of the chunk that a row lies in.
pub(crate) fn chunk_of(row: u32) -> usize {
    row as usize / CHUNK_ROWS
}

/// The most chunks that a table can have: rows are numbered with 32 bits.
pub(crate) const CHUNKS_MAX: usize = (1 << 32) / CHUNK_ROWS;

/// Up to [`CHUNK_ROWS`] rows. Clones share every page.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chunk {
    pub(crate) rows: usize,
    pub(crate) meta: CowArc<Page<Rows<RowMeta>>>,
    pub(crate) status: CowArc<Page<Rows<RowStatus>>>,
    /// By column number; columns that no row of the chunk has a cell of may be missing at the end.
    pub(crate) columns: Vec<CowArc<Page<ColumnPage>>>,
    /// A page a consumer: packed [`ConsumerWord`]s.
    pub(crate) words: Vec<CowArc<Page<Rows<u64>>>>,
    /// A bit a row; empty while none is removed.
    pub(crate) removed: CowArc<Page<Rows<u64>>>,
    pub(crate) summary: Summary,
    pub(crate) agent: OnlyAgent,
    pub(crate) texts: TextsNamed,
}

/// What is known of a chunk without looking at its rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    /// Train rows that are neither consumed, left out nor removed.
    pub(crate) open: u32,
    pub(crate) removed: u32,
    /// Rows of peers are above every version.
    pub(crate) version_min: u64,
    pub(crate) version_max: u64,
}

impl Chunk {
    pub(crate) fn new(consumers: usize) -> Self {
        Chunk { words: vec![CowArc::default(); consumers], ..Chunk::default() }
    }

    /// A full chunk whose rows are all removed.
    pub(crate) fn gone() -> Self {
        let removed = Page::new(Rows::Owned(vec![u64::MAX; CHUNK_ROWS / 64]));
        let summary = Summary { removed: CHUNK_ROWS as u32, ..Summary::default() };
        Chunk { rows: CHUNK_ROWS, removed, summary, ..Chunk::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.rows
    }

    pub(crate) fn push(&mut self, meta: RowMeta) {
        let version = meta.lane();
        let summary = &mut self.summary;
        summary.version_min = if self.rows == 0 { version } else { summary.version_min.min(version) };
        summary.version_max = summary.version_max.max(version);
        summary.open += u32::from(meta.purpose() == Purpose::Train);
        (self.agent, self.texts) = Default::default();
        self.rows += 1;
        Page::edit(&mut self.meta).to_mut().push(meta);
        Page::edit(&mut self.status).to_mut().push(RowStatus::default());
        self.words.iter_mut().for_each(|page| Page::edit(page).to_mut().push(0));
    }

    /// Makes room for one more consumer's words.
    pub(crate) fn add_consumer(&mut self) {
        self.words.push(Page::new(Rows::Owned(vec![0; self.rows])));
    }

    pub(crate) fn meta(&self, at: usize) -> RowMeta {
        self.meta.get(at).copied().unwrap_or_default()
    }

    pub(crate) fn status(&self, at: usize) -> RowStatus {
        self.status.get(at).copied().unwrap_or_default()
    }

    /// Changes a row's status, and the count of open rows with it.
    pub(crate) fn change_status(&mut self, at: usize, change: impl FnOnce(&mut RowStatus)) {
        let train = self.meta(at).purpose() == Purpose::Train && !self.is_removed(at);
        let Some(status) = Page::edit(&mut self.status).to_mut().get_mut(at) else { return };
        let (was_open, reason) = (status.is_open(), status.excluded);
        change(status);
        let is_open = status.is_open();
        if status.excluded != reason {
            self.texts = TextsNamed::default();
        }
        if train && was_open != is_open {
            self.summary.open = if is_open { self.summary.open + 1 } else { self.summary.open - 1 };
        }
    }

    pub(crate) fn word(&self, consumer: usize, at: usize) -> ConsumerWord {
        let packed = self.words.get(consumer).and_then(|page| page.get(at));
        packed.map(|packed| ConsumerWord::unpack(*packed)).unwrap_or_default()
    }

    /// Whether a live claim has a row at one of these places.
    pub(crate) fn has_holder(&self, places: impl Iterator<Item = usize> + Clone) -> bool {
        let is_held = |packed: &u64| ConsumerWord::unpack(*packed).is_held();
        self.words.iter().any(|page| places.clone().filter_map(|at| page.get(at)).any(is_held))
    }

    pub(crate) fn set_word(&mut self, consumer: usize, at: usize, progress: Progress, ticket_or_claim: u64) {
        let word = ConsumerWord { progress, ticket_or_claim };
        if let Some(place) =
            self.words.get_mut(consumer).and_then(|page| Page::edit(page).to_mut().get_mut(at))
        {
            *place = word.pack();
        }
    }

    /// The value of a final cell; `None` while it is not final, and null where it is known to be absent.
    pub(crate) fn cell(&self, column: usize, width: usize, at: usize) -> Option<StoredValue> {
        let page = self.columns.get(column);
        self.is_final(column, at).then(|| page.map_or(StoredValue::Null, |page| page.get(at, width)))
    }

    /// Whether a cell is final. None of a row that was removed is: what it had may be gone, whoever still holds the row.
    pub(crate) fn is_final(&self, column: usize, at: usize) -> bool {
        self.status(at).finals >> column & 1 == 1 && !self.is_removed(at)
    }

    pub(crate) fn final_after_ms(&self, column: usize, at: usize) -> u64 {
        self.columns.get(column).map_or(0, |page| page.final_after_ms(at))
    }

    /// Turns cells of a row final: column, width and value of each.
    pub(crate) fn set(
        &mut self,
        at: usize,
        cells: impl Iterator<Item = (usize, usize, StoredValue)>,
        after_ms: u64,
    ) -> Result<(), String> {
        let mut finals = 0;
        for (column, width, value) in cells {
            if self.columns.len() <= column {
                self.columns.resize_with(column + 1, CowArc::default);
            }
            Page::edit(&mut self.columns[column]).set(at, width, value, after_ms)?;
            finals |= 1 << column;
        }
        if finals != 0 {
            self.change_status(at, |status| status.finals |= finals);
        }
        Ok(())
    }

    /// Puts another place of the same value in a final cell's.
    pub(crate) fn replace(&mut self, column: usize, at: usize, view: [u8; 16]) {
        let after_ms = self.final_after_ms(column, at);
        if let Some(page) = self.columns.get_mut(column) {
            // A view for a view: the form cannot differ.
            let _ = Page::edit(page).set(at, view.len(), StoredValue::View(view), after_ms);
        }
    }

    pub(crate) fn is_removed(&self, at: usize) -> bool {
        self.removed.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    /// Whether every row that the chunk can ever hold is removed.
    pub(crate) fn is_gone(&self) -> bool {
        self.summary.removed as usize == CHUNK_ROWS
    }

    /// The version of every row, where they all have the same and none is of a peer.
    pub(crate) fn only_version(&self) -> Option<u64> {
        let Summary { version_min, version_max, .. } = self.summary;
        (version_min == version_max && version_max != EXTERNAL_VERSION).then_some(version_min)
    }

    /// The agent of every row, where they all are of the same.
    pub(crate) fn only_agent(&self) -> Option<TextId> {
        self.agent.of(&self.meta)
    }

    /// The pages of texts that its rows name.
    pub(crate) fn texts_named(&self) -> &[u32] {
        self.texts.of(&self.meta, &self.status)
    }

    /// Whether a row of one of these versions may be in it: rows of peers are queued apart from their versions.
    pub(crate) fn may_hold(&self, versions: &RangeInclusive<u64>) -> bool {
        let Summary { version_min, version_max, .. } = self.summary;
        let overlaps = version_min <= *versions.end() && version_max >= *versions.start();
        !self.is_gone() && (overlaps || version_max == EXTERNAL_VERSION)
    }

    /// What stands for the final values of a column of views, null ones left out, at these places.
    pub(crate) fn views(
        &self,
        column: usize,
        places: impl Iterator<Item = usize>,
    ) -> impl Iterator<Item = View> {
        let (page, status) = (self.columns.get(column), &self.status[..]);
        let views = page.map_or(&[][..], |page| page.views());
        let is_there = move |at: usize| {
            status.get(at).is_some_and(|status| status.finals >> column & 1 == 1)
                && !self.is_removed(at)
                && page.is_some_and(|page| !page.is_null(at))
        };
        places.filter(move |at| is_there(*at)).filter_map(|at| views.get(at).copied().map(View))
    }

    /// Removes rows that are there: they keep their numbers and nothing else. A chunk that is [gone](Self::is_gone) by it is to be replaced.
    pub(crate) fn remove(&mut self, places: impl Iterator<Item = usize>) {
        let bits = Page::edit(&mut self.removed).to_mut();
        bits.resize(CHUNK_ROWS / 64, 0);
        for at in places {
            let (meta, status) = (self.meta.get(at), self.status.get(at));
            let train = meta.is_some_and(|meta| meta.purpose() == Purpose::Train);
            self.summary.open -= u32::from(train && status.is_none_or(RowStatus::is_open));
            self.summary.removed += 1;
            bits[at / 64] |= 1 << (at % 64);
        }
    }

    /// Every page.
    pub(crate) fn pages(&self) -> impl Iterator<Item = &dyn Storable> {
        let rest: [&dyn Storable; 3] = [&*self.meta, &*self.status, &*self.removed];
        let columns = self.columns.iter().map(|page| &**page as &dyn Storable);
        rest.into_iter().chain(columns).chain(self.words.iter().map(|page| &**page as &dyn Storable))
    }

    /// Every page that takes memory other than a mapped file's: which it is, and how many bytes.
    pub(crate) fn heap_pages(&self) -> impl Iterator<Item = (usize, usize)> {
        let address = |page: *const ()| page as usize;
        let rows = self.words.iter().chain([&self.removed]);
        let rows = rows.map(move |page| (address(CowArc::as_ptr(page).cast()), page.heap_bytes()));
        let columns =
            self.columns.iter().map(move |page| (address(CowArc::as_ptr(page).cast()), page.heap_bytes()));
        let meta = (address(CowArc::as_ptr(&self.meta).cast()), self.meta.heap_bytes());
        let status = (address(CowArc::as_ptr(&self.status).cast()), self.status.heap_bytes());
        rows.chain(columns).chain([meta, status]).filter(|(_, bytes)| *bytes > 0)
    }

    /// Bytes of memory, other than mapped files'.
    pub(crate) fn heap_bytes(&self) -> usize {
        let pages = size_of::<Page<ColumnPage>>() * (self.columns.len() + self.words.len() + 3);
        let lists = (self.columns.capacity() + self.words.capacity()) * size_of::<usize>();
        size_of::<Chunk>() + pages + lists + self.heap_pages().map(|(_, bytes)| bytes).sum::<usize>()
    }
}
