//! Rows that leave a table.
//!
//! A row that is removed keeps its number and nothing else. It stays counted as what it was; who removes open rows leaves them out
//! first. What it held is let go by whoever knows what lives in the extents.

use super::{TableState, at};
use crate::consumer::number_out;
use crate::extent::View;
use crate::page::CowArc;
use crate::schema::StorageClass;
use crate::table::chunk::{CHUNK_ROWS, Chunk, chunk_of};
use crate::table::{Progress, Purpose};
use crate::texts::{TextId, Texts};

impl TableState {
    /// Removes rows of one chunk, in their order and none of them removed, that nobody has in a queue any more: their numbers are never used again.
    /// Gives the chunk if nothing is left of it. The index is the caller's to clear, and [what the rows hold](Self::located) his to let go
    /// before.
    pub(crate) fn remove_all(&mut self, rows: &[u32]) -> Option<CowArc<Chunk>> {
        if !self.partials.is_empty() {
            for column in 0..self.schema.data_columns().len() {
                let growing = self.not_final(column, rows).map(|row| (row, column as u16));
                growing.collect::<Vec<_>>().iter().for_each(|cell| _ = self.partials.remove(cell));
            }
        }
        self.remove_from_chunk(rows)
    }

    /// Those of some rows of which a cell is not final.
    fn not_final(&self, column: usize, rows: &[u32]) -> impl Iterator<Item = u32> {
        rows.iter().copied().filter(move |&row| !self.chunk(row).is_final(column, at(row)))
    }

    fn remove_from_chunk(&mut self, rows: &[u32]) -> Option<CowArc<Chunk>> {
        let number = chunk_of(*rows.first()?);
        let chunk = &mut self.chunks[number];
        let is_last_of_it = chunk.summary.removed as usize + rows.len() == CHUNK_ROWS;
        if !is_last_of_it {
            CowArc::make_mut(chunk).remove(rows.iter().map(|&row| at(row)));
            return None;
        }
        let gone = std::mem::replace(chunk, self.gone.clone());
        self.pass_gone();
        Some(gone)
    }

    pub(super) fn pass_gone(&mut self) {
        let gone = self.chunks[self.first_chunk..].iter().take_while(|chunk| chunk.is_gone()).count();
        self.first_chunk += gone;
    }

    /// What stands for values of a column in extents, of rows of one chunk, in their order: final ones and fragments.
    pub(crate) fn located(&self, column: usize, rows: &[u32]) -> impl Iterator<Item = View> {
        let class = self.schema.data_columns()[column].data_type.storage_class();
        let rows = if class == StorageClass::Inline { &[] } else { rows };
        let chunk = rows.first().map(|&row| self.chunk(row));
        let final_ones =
            chunk.into_iter().flat_map(move |chunk| chunk.views(column, rows.iter().map(|&row| at(row))));
        let growing = if self.partials.is_empty() { &[] } else { rows };
        let growing = self.not_final(column, growing);
        let fragments = growing.flat_map(move |row| self.fragments(row, column as u16));
        final_ones.chain(fragments.copied()).filter(move |view| !view.is_inline(class))
    }

    /// Leaves out rows of one chunk, all of them open.
    pub(crate) fn leave_out_all(&mut self, open: &[u32], reason: TextId, texts: &Texts) {
        let train = open.iter().filter(|&&row| self.meta(row).purpose() == Purpose::Train).count() as u64;
        if train > 0 {
            *self.counts.excluded.entry(texts.get(reason).to_owned()).or_default() += train;
        }
        let Some(&first) = open.first() else { return };
        let chunk = self.chunk_mut(first);
        open.iter().for_each(|&row| chunk.change_status(at(row), |status| status.excluded = reason));
    }

    /// Says of rows of versions that are over that a consumer has nothing more to do with them.
    pub(crate) fn all_out(&mut self, slot: usize, rows: &[u32]) {
        for &row in rows {
            let word = self.word(slot, row);
            if word.progress != Progress::Out {
                self.set_word(slot, row, Progress::Out, number_out(word.progress, word.ticket_or_claim));
            }
        }
    }

    /// Whether a live claim has one of some rows of one chunk.
    pub(crate) fn has_holder(&self, rows: &[u32]) -> bool {
        let chunk = rows.first().map(|&row| self.chunk(row));
        chunk.is_some_and(|chunk| chunk.has_holder(rows.iter().map(|&row| at(row))))
    }
}
