//! Which pages of texts something names.

use std::fmt;

use super::TextId;

/// A set of pages, by their number.
#[derive(Clone, Default)]
pub(crate) struct NamedPages(Vec<bool>);

impl NamedPages {
    /// Takes in the page of a text.
    pub(crate) fn add(&mut self, text: TextId) {
        self.add_page(text.page());
    }

    pub(crate) fn add_page(&mut self, page: u32) {
        let page = page as usize;
        if self.0.len() <= page {
            self.0.resize(page + 1, false);
        }
        self.0[page] = true;
    }

    pub(crate) fn holds(&self, page: u32) -> bool {
        self.0.get(page as usize).copied().unwrap_or(false)
    }

    /// The pages, in order.
    pub(crate) fn pages(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().zip(0..).filter(|(named, _)| **named).map(|(_, page)| page)
    }
}

impl fmt::Debug for NamedPages {
    /// Nothing of what was named, so that states can be compared whatever was asked of them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NamedPages")
    }
}
