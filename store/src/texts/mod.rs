//! Texts that many rows carry (input ids, agents, reasons, parents): each kept once, named by a number.
//!
//! Numbers are given in the order in which texts first come, and never again. Texts lie in [pages](page) by their number. A page
//! goes when nothing that there is names any text of it ([`named`] tells); a text of it that comes again is a new one, with a
//! number of its own. So a run that sees new inputs and retires old ones keeps as many texts as it has rows, in whole pages.
//!
//! Invariants
//! - Every number that the state holds is of a page that is there: whoever lets pages go has seen every place that names a text
//!   at one instant, and passes over those that were named since ([`Texts::watch`]).
//! - The first page, which has the empty text, and the last, which grows, always stay.
//! - No two texts of the index are equal.

mod named;
mod page;

use bytemuck::{Pod, Zeroable};
use xxhash_rust::xxh3::xxh3_64;

use crate::index::{IdIndex, Memo};
use crate::page::{CowArc, Page};

pub(crate) use named::NamedPages;
pub(crate) use page::{PAGE_TEXTS, TextPage, TextPages};

/// Names a text of the store. The empty text is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Pod, Zeroable)]
#[repr(transparent)]
pub(crate) struct TextId(pub(crate) u32);

impl TextId {
    /// The empty text.
    pub(crate) const EMPTY: TextId = TextId(0);

    /// The page that it lies in.
    pub(crate) fn page(self) -> u32 {
        self.0 / PAGE_TEXTS as u32
    }
}

/// All texts of a store.
#[derive(Debug)]
pub(crate) struct Texts {
    pages: TextPages,
    pub(crate) index: IdIndex,
    /// Of [`Texts::intern`].
    lately: Memo,
    /// What stands for every page that went.
    gone: CowArc<Page<TextPage>>,
    /// Pages of which a text was named since [`Texts::watch`].
    named: NamedPages,
}

impl Texts {
    /// The texts of an empty store: the empty one.
    pub(crate) fn new() -> Self {
        let mut texts = Self::over(TextPages::default(), IdIndex::default());
        texts.add("");
        texts
    }

    /// Texts whose pages and index were stored.
    pub(crate) fn of_pages(pages: Vec<CowArc<Page<TextPage>>>, index: IdIndex) -> Self {
        let mut texts = Self::over(TextPages(pages), index);
        for number in texts.index.runs_end()..texts.count() {
            if !texts.pages.is_gone(TextId(number).page()) {
                let hash = hash(texts.get(TextId(number)));
                texts.index.insert(hash, number);
            }
        }
        texts
    }

    fn over(pages: TextPages, index: IdIndex) -> Self {
        let (lately, gone, named) = Default::default();
        Texts { pages, index, lately, gone, named }
    }

    pub(crate) fn count(&self) -> u32 {
        self.pages.count() as u32
    }

    /// How many more texts can have a number.
    pub(crate) fn numbers_left(&self) -> u32 {
        u32::MAX - self.count()
    }

    /// As if so many pages of texts had come and gone already.
    #[cfg(test)]
    pub(crate) fn pretend_pages(&mut self, pages: usize) {
        let gone = self.gone.clone();
        self.pages.0.splice(1..1, std::iter::repeat_n(gone, pages - 2));
        self.pages
            .0
            .push(Page::new(TextPage { ends: vec![0; PAGE_TEXTS - 1].into(), ..TextPage::default() }));
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
            self.named.add(known);
            return known;
        }
        let known = self.index.find(hash, |number| self.get(TextId(number)) == text);
        let number = known.map_or_else(|| self.add(text), TextId);
        self.named.add(number);
        self.lately.remember(hash, number.0);
        number
    }

    /// From here on it is remembered which pages a text is named of.
    pub(crate) fn watch(&mut self) {
        self.named = NamedPages::default();
    }

    /// Lets pages go that nothing named when the [watch](Self::watch) began. Those of which a text was named since stay, and are
    /// stored nowhere any more: the checkpoint that let them go does not name their image. Gives how many went.
    pub(crate) fn forget(&mut self, pages: &[u32]) -> usize {
        let (stay, go): (Vec<u32>, Vec<u32>) = pages.iter().partition(|page| self.named.holds(**page));
        for page in stay {
            Page::edit(&mut self.pages.0[page as usize]);
        }
        go.iter().for_each(|&page| self.pages.0[page as usize] = self.gone.clone());
        let texts_of =
            |&page: &u32| (page * PAGE_TEXTS as u32, page * PAGE_TEXTS as u32 + PAGE_TEXTS as u32 - 1);
        self.index.remove_all(&go.iter().map(texts_of).collect::<Vec<_>>());
        go.len()
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
    pub(crate) fn full_pages_mut(&mut self) -> &mut [CowArc<Page<TextPage>>] {
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

    /// Texts of so many full pages, and one more.
    fn of_pages(pages: usize) -> Texts {
        let mut texts = Texts::new();
        (1..=pages * PAGE_TEXTS).for_each(|i| _ = texts.intern(&format!("q{i}")));
        texts
    }

    #[test]
    fn a_page_that_nothing_names_goes_and_its_texts_come_again_as_new_ones() {
        let mut texts = of_pages(3);
        let (bytes, captured) = (texts.heap_bytes(), texts.pages().clone());
        texts.watch();
        let (old, kept) = (texts.find("q5000").unwrap(), texts.find("q9000").unwrap());
        assert_eq!((old.page(), kept.page()), (1, 2));
        assert_eq!(texts.forget(&[1]), 1);
        assert!(texts.heap_bytes() < bytes, "nothing came free");
        assert_eq!((texts.find("q5000"), texts.get(old), captured.get(old)), (None, "", "q5000"));
        let asked = [kept, old, TextId::EMPTY, TextId(u32::MAX), TextId(PAGE_TEXTS as u32 - 1), TextId(1)];
        let together = texts.pages().get_all(asked.into_iter());
        assert_eq!(together, asked.map(|text| texts.get(text)));
        assert_eq!(together[..5], ["q9000", "", "", "", "q4095"]);
        assert_eq!((texts.find("q9000"), texts.find("q1")), (Some(kept), Some(TextId(1))));
        let new = texts.intern("q5000");
        assert_eq!((new, texts.find("q5000")), (TextId(3 * PAGE_TEXTS as u32 + 1), Some(new)));
    }

    #[test]
    fn a_page_of_which_a_text_was_named_since_stays_whole() {
        let mut texts = of_pages(3);
        texts.watch();
        let again = texts.intern("q5000");
        assert_eq!(texts.forget(&[1, 2]), 1);
        assert_eq!((texts.get(again), texts.find("q5001")), ("q5000", Some(TextId(5001))));
        assert_eq!(texts.find("q9000"), None);
        texts.watch();
        assert_eq!(texts.forget(&[1]), 1, "nobody has named it since");
    }

    #[test]
    fn texts_that_were_stored_without_a_page_have_the_others() {
        let mut texts = of_pages(3);
        texts.watch();
        texts.forget(&[1]);
        let (pages, count) = (texts.pages().pages().to_vec(), texts.count());
        let stored = Texts::of_pages(pages, IdIndex::default());
        assert_eq!(
            (stored.count(), stored.find("q5000"), stored.find("q9000")),
            (count, None, Some(TextId(9000)))
        );
    }
}
