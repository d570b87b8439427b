//! What a step was made of, in the order in which it was.

use std::collections::BTreeMap;

use arrow_array::RecordBatch;

use super::GradientId;
use crate::error::{Cause, Result};
use crate::sample_id::SampleId;
use crate::snapshot::Lists;
use crate::state::State;
use crate::step::StepProgress;
use crate::store::Store;
use crate::table::Row;

/// One micro-batch of a committed step, as its trainer had it.
#[derive(Clone, Debug)]
pub struct ReplayedBatch {
    store: Store,
    gradient: GradientId,
    table: String,
    table_id: u32,
    indexes: Vec<u32>,
    rows: Vec<Row>,
    samples: Vec<SampleId>,
}

impl ReplayedBatch {
    /// The name of the gradient that it made.
    pub fn gradient_id(&self) -> &GradientId {
        &self.gradient
    }

    /// The table of the rows.
    pub fn table(&self) -> &str {
        &self.table
    }

    /// The rows, in sample-id order.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The rows' sample ids, in the same order.
    pub fn sample_ids(&self) -> &[SampleId] {
        &self.samples
    }

    /// Columns of the rows as Arrow arrays, as [`Claim::columns`](crate::Claim::columns) gave them.
    ///
    /// # Errors
    /// `input` when a column is unknown.
    pub fn columns<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Result<RecordBatch> {
        self.store.0.columns_of(self.table_id, &self.indexes, names, Lists::Together)
    }
}

impl Store {
    /// The micro-batches that a committed step was made of, in the order in which they were handed out. It looks
    /// through the rows of every table that is trained on.
    ///
    /// # Errors
    /// `input` when no step of that number stands; `state` when rows of it have been deleted since.
    pub fn replay(&self, step: u64) -> Result<Vec<ReplayedBatch>> {
        self.check_process()?;
        let state = self.0.state.lock();
        let stands = state.steps.get(&step).filter(|step| step.progress == StepProgress::Committed);
        let expected = stands.ok_or_else(|| unknown_step(step))?.rows;
        let batches = state.batches_of(step..=step);
        let found = batches.values().map(|(_, rows)| rows.len() as u64).sum();
        if found != expected {
            return Err(Cause::StepIncomplete { step, expected, found }.into());
        }
        let made = batches.into_iter().filter_map(|(claim, (table, rows))| {
            let gradient = state.gradient_id(step, claim)?;
            Some(ReplayedBatch::new(self.clone(), gradient, &state, table, rows))
        });
        Ok(made.collect())
    }

    /// The step that trained on a row and the gradient that the row is part of, once that step is committed.
    pub fn gradient_of(&self, row: Row) -> Option<GradientId> {
        let state = self.0.state.lock();
        let table = state.tables.get(row.table as usize).filter(|table| row.index < table.row_count())?;
        let step = u64::from(table.status(row.index).step);
        state.gradient_id(step, table.word(table.trainer?, row.index).ticket_or_claim)
    }
}

pub(super) fn unknown_step(step: u64) -> crate::Error {
    Cause::Unknown { what: "committed step", name: step.to_string(), close: None }.into()
}

impl ReplayedBatch {
    fn new(store: Store, gradient: GradientId, state: &State, table: usize, indexes: Vec<u32>) -> Self {
        let table = &state.tables[table];
        let sample = |&row: &u32| table.meta(row).sample(state.texts.pages()).to_id();
        let samples: Vec<SampleId> = indexes.iter().map(sample).collect();
        let row = |(&index, sample)| Row::new(table.id, index, table.meta(index).policy_version, sample);
        let rows = indexes.iter().zip(&samples).map(row).collect();
        ReplayedBatch {
            store,
            gradient,
            table: table.name.to_string(),
            table_id: table.id,
            indexes,
            rows,
            samples,
        }
    }
}

impl State {
    /// The rows that steps consumed, by claim, and so in the order in which they were handed out.
    pub(super) fn batches_of(
        &self,
        steps: std::ops::RangeInclusive<u64>,
    ) -> BTreeMap<u64, (usize, Vec<u32>)> {
        let mut batches: BTreeMap<u64, (usize, Vec<u32>)> = BTreeMap::new();
        for (index, table) in self.tables.iter().enumerate() {
            let Some(slot) = table.trainer else { continue };
            for row in table.rows_consumed_in(steps.clone()) {
                let claim = table.word(slot, row).ticket_or_claim;
                batches.entry(claim).or_insert_with(|| (index, Vec::new())).1.push(row);
            }
        }
        for (table, rows) in batches.values_mut() {
            let table = &self.tables[*table];
            rows.sort_by_cached_key(|&row| table.meta(row).sample(self.texts.pages()));
        }
        batches
    }
}
