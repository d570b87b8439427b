//! One row, looked up by its identity.

use super::{Cell, Purpose, Row, Table, VersionSpan};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::origin::Origin;
use crate::sample_id::SampleId;
use crate::state::State;
use crate::texts::TextId;

/// A row at the moment of the call. Its cells are read when they are asked for; final ones never change.
#[derive(Clone, Debug)]
pub struct RowInfo {
    /// The row, to write to.
    pub row: Row,
    /// Its identity, with the version.
    pub sample_id: SampleId,
    /// The version that it started under.
    pub policy_version: u64,
    /// From which token on it was made under which version, beginning with its own.
    pub version_spans: Vec<VersionSpan>,
    /// The first of its tokens that is trained on.
    pub trainable_from: u32,
    /// How many attempts there were before this one.
    pub attempt: u32,
    /// What it is for.
    pub purpose: Purpose,
    /// When it was inserted.
    pub created_at: Timestamp,
    /// The agent that it belongs to.
    pub agent: String,
    /// Where it comes from, when not from this run.
    pub origin: Option<Origin>,
    /// The row that it continues.
    pub parent: Option<String>,
    /// The fingerprint of the weights that it was made with.
    pub weights: Option<String>,
    /// Why it was left out.
    pub excluded: Option<String>,
    /// The step that trained on it.
    pub step: Option<u64>,
    finals: u64,
    table: Table,
}

impl Table {
    /// What is known of a row, also of one that a later attempt has taken the place of.
    ///
    /// # Errors
    /// `input` for a row of another table; `state` for one that is deleted.
    pub fn show(&self, row: Row) -> Result<RowInfo> {
        self.check_row(row)?;
        let state = self.store().0.state.lock();
        state.check_row(row)?;
        Ok(RowInfo::new(self, &state, row.index))
    }
}

impl RowInfo {
    pub(super) fn new(table: &Table, state: &State, index: u32) -> Self {
        let of = &state.tables[table.id() as usize];
        let (meta, status) = (of.meta(index), of.status(index));
        let present = |text: TextId| (text != TextId::EMPTY).then(|| state.texts.get(text).to_owned());
        let sample_id = state.sample_of(of.id, index);
        let first = VersionSpan { start: 0, version: meta.policy_version };
        RowInfo {
            row: Row::new(of.id, index, meta.policy_version, &sample_id),
            sample_id,
            policy_version: meta.policy_version,
            version_spans: [&[first], of.rare.spans().get(index)].concat(),
            trainable_from: of.rare.trainable_from(index),
            attempt: meta.attempt(),
            purpose: meta.purpose(),
            created_at: meta.created_at(),
            agent: state.texts.get(meta.agent).to_owned(),
            origin: Origin::parse(state.texts.get(meta.origin)),
            parent: present(meta.parent),
            weights: present(meta.weights),
            excluded: present(status.excluded),
            step: (status.step != 0).then_some(status.step.into()),
            finals: status.finals,
            table: table.clone(),
        }
    }

    /// Whether a data column was final at the moment of the look-up.
    ///
    /// # Errors
    /// `input` when the column is unknown.
    pub fn status(&self, column: &str) -> Result<bool> {
        Ok(self.finals >> self.table.current_schema().index_of(column)? & 1 == 1)
    }

    /// The value of a cell that was final at the moment of the look-up; [`Cell::Empty`] for another.
    ///
    /// # Errors
    /// `input` when the column is unknown; `corrupt` when the value's place cannot be read.
    pub fn cell(&self, column: &str) -> Result<Cell> {
        if self.status(column)? { self.table.cell(self.row, column) } else { Ok(Cell::Empty) }
    }
}
