//! Four thousand and ninety-six rows, in pages that snapshots share.
//!
//! A chunk is a handful of reference-counted pages. A snapshot clones the references; the next write to a page that a
//! snapshot holds copies that page first. So a snapshot costs its number of chunks and blocks nobody.

use std::sync::Arc;

use super::page::{ColumnPage, ConsumerWord, Progress, RowMeta, RowStatus};
use crate::log::record::StoredValue;
use crate::schema::Schema;

/// Rows in a full chunk.
pub const CHUNK_ROWS: usize = 4096;

/// Up to [`CHUNK_ROWS`] rows. Clones share every page.
#[derive(Clone, Debug)]
pub(crate) struct Chunk {
    meta: Arc<Vec<RowMeta>>,
    status: Arc<Vec<RowStatus>>,
    columns: Vec<Arc<ColumnPage>>,
    words: Vec<Arc<Vec<ConsumerWord>>>,
}

impl Chunk {
    pub(crate) fn new(schema: &Schema, consumers: usize) -> Self {
        let columns = schema.data_columns().iter().map(|c| Arc::new(ColumnPage::new(&c.data_type))).collect();
        Chunk {
            meta: Arc::default(),
            status: Arc::default(),
            columns,
            words: vec![Arc::default(); consumers],
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.meta.len()
    }

    pub(crate) fn push(&mut self, meta: RowMeta) {
        Arc::make_mut(&mut self.meta).push(meta);
        Arc::make_mut(&mut self.status).push(RowStatus::default());
        self.columns.iter_mut().for_each(|page| Arc::make_mut(page).push_empty());
        self.words.iter_mut().for_each(|page| Arc::make_mut(page).push(ConsumerWord::default()));
    }

    /// Makes room for one more consumer's words.
    pub(crate) fn add_consumer(&mut self) {
        self.words.push(Arc::new(vec![ConsumerWord::default(); self.len()]));
    }

    pub(crate) fn meta(&self, at: usize) -> &RowMeta {
        &self.meta[at]
    }

    pub(crate) fn status(&self, at: usize) -> &RowStatus {
        &self.status[at]
    }

    pub(crate) fn status_mut(&mut self, at: usize) -> &mut RowStatus {
        &mut Arc::make_mut(&mut self.status)[at]
    }

    pub(crate) fn word(&self, consumer: usize, at: usize) -> ConsumerWord {
        self.words[consumer][at]
    }

    pub(crate) fn set_word(&mut self, consumer: usize, at: usize, progress: Progress, ticket_or_claim: u64) {
        Arc::make_mut(&mut self.words[consumer])[at] = ConsumerWord { progress, ticket_or_claim };
    }

    /// The value of a final cell; `None` while it is not final, and null where it is known to be absent.
    pub(crate) fn cell(&self, column: usize, at: usize) -> Option<StoredValue> {
        let status = &self.status[at];
        if status.finals >> column & 1 == 0 {
            return None;
        }
        Some(if status.nulls >> column & 1 == 1 { StoredValue::Null } else { self.columns[column].get(at) })
    }

    pub(crate) fn final_after_ms(&self, column: usize, at: usize) -> u32 {
        self.columns[column].final_after_ms(at)
    }

    /// Turns a cell final.
    pub(crate) fn set(
        &mut self,
        column: usize,
        at: usize,
        value: StoredValue,
        after_ms: u32,
    ) -> Result<(), String> {
        let page = self.columns.get_mut(column).ok_or_else(|| format!("no column {column}"))?;
        Arc::make_mut(page).set(at, value, after_ms)?;
        let status = self.status_mut(at);
        status.finals |= 1 << column;
        status.partials &= !(1 << column);
        if value == StoredValue::Null {
            status.nulls |= 1 << column;
        }
        Ok(())
    }
}
