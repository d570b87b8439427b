//! Texts that many rows carry (input ids, agents, reasons, parents): each kept once, named by a number.

use std::sync::Arc;

use bytemuck::{Pod, Zeroable};
use xxhash_rust::xxh3::xxh3_64;

use crate::index::{IdIndex, Memo};
use crate::page::{Content, Page, Rows};

/// Names a text of the store. The empty text is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Pod, Zeroable)]
#[repr(transparent)]
pub(crate) struct TextId(pub(crate) u32);

impl TextId {
    /// The empty text.
    pub(crate) const EMPTY: TextId = TextId(0);
}

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
    fn push(&mut self, text: &str) {
        let bytes = self.bytes.to_mut();
        bytes.extend_from_slice(text.as_bytes());
        let end = bytes.len() as u32;
        self.ends.to_mut().push(end);
    }

    fn get(&self, at: usize) -> &str {
        let end = self.ends.get(at).map_or(0, |end| *end as usize);
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        let bytes = self.bytes.get(start..end).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or_default()
    }
}

impl Content for TextPage {
    fn parts(&self) -> Vec<&[u8]> {
        vec![bytemuck::cast_slice(&self.ends), &self.bytes]
    }
}

impl std::fmt::Debug for TextPage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries((0..self.ends.len()).map(|at| self.get(at))).finish()
    }
}

/// The pages of all texts: enough to read them. Clones share the pages.
#[derive(Clone, Debug, Default)]
pub(crate) struct TextPages(Vec<Arc<Page<TextPage>>>);

impl TextPages {
    pub(crate) fn get(&self, text: TextId) -> &str {
        let at = text.0 as usize;
        self.0.get(at / PAGE_TEXTS).map_or("", |page| page.get(at % PAGE_TEXTS))
    }

    pub(crate) fn pages(&self) -> &[Arc<Page<TextPage>>] {
        &self.0
    }

    fn count(&self) -> usize {
        self.0.last().map_or(0, |last| (self.0.len() - 1) * PAGE_TEXTS + last.ends.len())
    }
}

/// All texts of a store.
#[derive(Debug)]
pub(crate) struct Texts {
    pages: TextPages,
    pub(crate) index: IdIndex,
    /// Of [`Texts::intern`].
    lately: Memo,
}

impl Texts {
    /// The texts of an empty store: the empty one.
    pub(crate) fn new() -> Self {
        let mut texts =
            Texts { pages: TextPages::default(), index: IdIndex::default(), lately: Memo::default() };
        texts.add("");
        texts
    }

    /// Texts whose pages and index were stored.
    pub(crate) fn of_pages(pages: Vec<Arc<Page<TextPage>>>, index: IdIndex) -> Self {
        let mut texts = Texts { pages: TextPages(pages), index, lately: Memo::default() };
        for number in texts.index.runs_end()..texts.count() {
            let hash = hash(texts.get(TextId(number)));
            texts.index.insert(hash, number);
        }
        texts
    }

    pub(crate) fn count(&self) -> u32 {
        self.pages.count() as u32
    }

    pub(crate) fn get(&self, text: TextId) -> &str {
        self.pages.get(text)
    }

    pub(crate) fn pages(&self) -> &TextPages {
        &self.pages
    }

    pub(crate) fn find(&self, text: &str) -> Option<TextId> {
        if text.is_empty() {
            return Some(TextId::EMPTY); // what most rows say of their origin, parent and weights
        }
        self.index.find(hash(text), |number| self.get(TextId(number)) == text).map(TextId)
    }

    /// The number of a text, a new one if need be.
    pub(crate) fn intern(&mut self, text: &str) -> TextId {
        if text.is_empty() {
            return TextId::EMPTY;
        }
        let hash = hash(text);
        let lately = self.lately.recall(hash).map(TextId);
        if let Some(known) = lately.filter(|number| self.get(*number) == text) {
            return known;
        }
        let known = self.index.find(hash, |number| self.get(TextId(number)) == text);
        let number = known.map_or_else(|| self.add(text), TextId);
        self.lately.remember(hash, number.0);
        number
    }

    fn add(&mut self, text: &str) -> TextId {
        let number = self.count();
        if (number as usize).is_multiple_of(PAGE_TEXTS) {
            self.pages.0.push(Page::new(TextPage::default()));
        }
        if let Some(last) = self.pages.0.last_mut() {
            Page::edit(last).push(text);
        }
        self.index.insert(hash(text), number);
        TextId(number)
    }

    /// Every page but the last, which grows.
    pub(crate) fn full_pages_mut(&mut self) -> &mut [Arc<Page<TextPage>>] {
        let full = self.pages.0.len().saturating_sub(1);
        &mut self.pages.0[..full]
    }

    /// Bytes of memory, other than mapped files'.
    pub(crate) fn heap_bytes(&self) -> usize {
        let pages = self.pages.0.iter().map(|page| page.ends.heap_bytes() + page.bytes.heap_bytes());
        pages.sum::<usize>() + self.index.heap_bytes()
    }
}

pub(crate) fn hash(text: &str) -> u64 {
    xxh3_64(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_keeps_its_number_and_its_characters() {
        let mut texts = Texts::new();
        assert_eq!(texts.intern(""), TextId::EMPTY);
        let numbers: Vec<TextId> = (0..10_000).map(|i| texts.intern(&format!("q{i}"))).collect();
        for (i, number) in numbers.iter().enumerate() {
            assert_eq!(texts.get(*number), format!("q{i}"));
            assert_eq!(texts.intern(&format!("q{i}")), *number);
        }
        assert_eq!((texts.count(), texts.find("nobody")), (10_001, None));
        assert_eq!(texts.get(TextId(u32::MAX)), "");
    }
}
