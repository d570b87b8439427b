//! The pages of texts that the rows of a chunk name.

use std::fmt;
use std::sync::{Arc, OnceLock};

use super::record::{RowMeta, RowStatus};
use crate::texts::NamedPages;

/// Found when it is first asked for, and kept by whoever shares the chunk from then on: rows that came together name texts that
/// did, so there are few, and telling which takes as long as reading the rows once.
#[derive(Clone, Default)]
pub(crate) struct TextsNamed(OnceLock<Arc<[u32]>>);

impl TextsNamed {
    /// The pages that these rows, which are the chunk's, name a text of: removed ones, too.
    pub(crate) fn of(&self, meta: &[RowMeta], status: &[RowStatus]) -> &[u32] {
        self.0.get_or_init(|| {
            let mut named = NamedPages::default();
            for row in meta {
                let RowMeta { input, agent, origin, parent, weights, .. } = *row;
                [input, agent, origin, parent, weights].into_iter().for_each(|text| named.add(text));
            }
            status.iter().for_each(|row| named.add(row.excluded));
            named.pages().collect()
        })
    }
}

impl fmt::Debug for TextsNamed {
    /// Nothing of what was found, so that states can be compared whoever has asked.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TextsNamed")
    }
}
