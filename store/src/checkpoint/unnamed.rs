//! Which pages of texts nothing names any more, as of a checkpoint.
//!
//! Rows that retention removes leave the texts behind that were theirs. A checkpoint has references to every place that names a
//! text, taken at one instant: it looks through them, leaves out of the manifest the pages that none of them names, and has the
//! live state [forget](crate::texts::Texts::forget) them once the manifest is in its place. What the state names meanwhile it
//! keeps; a store that is opened from the checkpoint meets that text as a new one in the records that follow.
//!
//! Rows are looked through once: a chunk remembers what it names. Nothing is looked for until a chunk's worth of rows was
//! removed since the last time.

use super::capture::Capture;
use super::consumers::ConsumerCapture;
use super::manifest::{Manifest, TableImage};
use crate::consumer::GroupName;
use crate::table::CHUNK_ROWS;
use crate::texts::{NamedPages, TextId};

/// How many rows had been removed when texts were last looked for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LookedAt {
    removed_rows: u64,
}

impl LookedAt {
    /// When the checkpoint was taken that a store was opened from.
    pub(super) fn after(manifest: &Manifest) -> Self {
        LookedAt { removed_rows: manifest.tables.iter().map(removed_rows).sum() }
    }

    /// The pages that nothing names, when it is time to look for them.
    pub(super) fn unnamed(&mut self, captured: &Capture) -> Vec<u32> {
        let removed_rows = captured.removed_rows();
        if removed_rows < self.removed_rows + CHUNK_ROWS as u64 {
            return Vec::new();
        }
        self.removed_rows = removed_rows;
        captured.texts.unnamed(&captured.named_texts()).collect()
    }
}

fn removed_rows(table: &TableImage) -> u64 {
    let of_gone =
        |(first, last): &(u32, u32)| (u64::from(last.saturating_sub(*first)) + 1) * CHUNK_ROWS as u64;
    let gone: u64 = table.gone.iter().map(of_gone).sum();
    gone + table.chunks.iter().map(|chunk| u64::from(chunk.removed_rows)).sum::<u64>()
}

impl Capture {
    fn removed_rows(&self) -> u64 {
        let chunks = self.tables.iter().flat_map(|table| &table.chunks);
        chunks.map(|chunk| u64::from(chunk.summary.removed)).sum()
    }

    /// Every place that names a text, but for the texts that records to come will name.
    fn named_texts(&self) -> NamedPages {
        let mut named = NamedPages::default();
        for table in &self.tables {
            let there = table.chunks.iter().filter(|chunk| !chunk.is_gone());
            there.flat_map(|chunk| chunk.texts_named()).for_each(|page| named.add_page(*page));
            table.rare.texts().for_each(|text| named.add(text));
        }
        self.consumers.iter().flat_map(ConsumerCapture::texts).for_each(|text| named.add(text));
        let planned = self.planned.iter().flat_map(|groups| groups.iter());
        planned.flat_map(GroupName::texts).for_each(|text| named.add(text));
        self.claims.iter().for_each(|claim| named.add(TextId(claim.owner)));
        named
    }
}
