//! Pages of texts.

use super::{NamedPages, TextId};
use crate::page::{Content, CowArc, Page, Rows};

/// How many texts a page holds.
pub(crate) const PAGE_TEXTS: usize = 4096;

/// Up to [`PAGE_TEXTS`] texts, one after the other.
#[derive(Clone, Default)]
pub(crate) struct TextPage {
    /// Where each text ends in `bytes`.
    pub(crate) ends: Rows<u32>,
    pub(crate) bytes: Rows<u8>,
}

impl TextPage {
    pub(super) fn push(&mut self, text: &str) {
        let bytes = self.bytes.to_mut();
        bytes.extend_from_slice(text.as_bytes());
        let end = bytes.len() as u32;
        self.ends.to_mut().push(end);
    }

    fn bytes_of(&self, at: usize) -> &[u8] {
        let end = self.ends.get(at).map_or(0, |end| *end as usize);
        let before = at.checked_sub(1).and_then(|before| self.ends.get(before));
        let start = before.map_or(0, |end| *end as usize);
        self.bytes.get(start..end).unwrap_or_default()
    }
}

impl Content for TextPage {
    fn parts(&self) -> Vec<&[u8]> {
        vec![bytemuck::cast_slice(&self.ends), &self.bytes]
    }
}

impl std::fmt::Debug for TextPage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries((0..self.ends.len()).map(|at| shown(self.bytes_of(at)))).finish()
    }
}

/// What was pushed was text; of a damaged page nothing is shown.
fn shown(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// The pages of all texts: enough to read them. Clones share the pages.
#[derive(Clone, Debug, Default)]
pub(crate) struct TextPages(pub(super) Vec<CowArc<Page<TextPage>>>);

impl TextPages {
    pub(crate) fn get(&self, text: TextId) -> &str {
        shown(self.bytes_of(text))
    }

    /// Several: where each lies is found before the first is read.
    pub(crate) fn get_all(&self, texts: impl Iterator<Item = TextId>) -> Vec<&str> {
        let found: Vec<&[u8]> = texts.map(|text| self.bytes_of(text)).collect();
        found.into_iter().map(shown).collect()
    }

    fn bytes_of(&self, text: TextId) -> &[u8] {
        let at = text.0 as usize;
        self.0.get(at / PAGE_TEXTS).map_or(&[], |page| page.bytes_of(at % PAGE_TEXTS))
    }

    pub(crate) fn pages(&self) -> &[CowArc<Page<TextPage>>] {
        &self.0
    }

    /// Whether a page went.
    pub(crate) fn is_gone(&self, page: u32) -> bool {
        self.0.get(page as usize).is_some_and(|page| page.ends.is_empty())
    }

    /// The full pages that went or that nothing names: all but the first and the last.
    pub(crate) fn unnamed<'a>(&'a self, named: &'a NamedPages) -> impl Iterator<Item = u32> + 'a {
        let last = self.0.len().saturating_sub(1) as u32;
        (1..last).filter(|page| !named.holds(*page) && !self.is_gone(*page))
    }

    /// The pages without those that go.
    pub(crate) fn forget(&mut self, pages: &[u32]) {
        let gone: CowArc<Page<TextPage>> = CowArc::default();
        pages.iter().for_each(|page| self.0[*page as usize] = gone.clone());
    }

    pub(super) fn count(&self) -> usize {
        self.0.last().map_or(0, |last| (self.0.len() - 1) * PAGE_TEXTS + last.ends.len())
    }
}
