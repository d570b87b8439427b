//! Micro-batches as they go to a rank: rows that own their tokens.

use std::fmt;
use std::io::Result;

use super::wire::{Decoder, Encoder};
use crate::gradient::Row;

/// Names what a micro-batch was claimed by. Opaque: kept with its gradient, and given back when that is lost.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClaimId(pub String);

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A [`Row`] that owns its columns.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BatchRow {
    /// Tokens that are given.
    pub prompt: Vec<u32>,
    /// Tokens that follow.
    pub response: Vec<u32>,
    /// See [`Row::advantage`].
    pub advantage: f32,
    /// See [`Row::loss_mask`].
    pub loss_mask: Option<Vec<bool>>,
    /// See [`Row::behaviour_log_probs`].
    pub behaviour_log_probs: Option<Vec<f32>>,
    /// See [`Row::reference_log_probs`].
    pub reference_log_probs: Option<Vec<f32>>,
    /// See [`Row::weight`].
    pub weight: f32,
}

impl BatchRow {
    /// The row.
    pub fn row(&self) -> Row<'_> {
        Row {
            advantage: self.advantage,
            loss_mask: self.loss_mask.as_deref(),
            behaviour_log_probs: self.behaviour_log_probs.as_deref(),
            reference_log_probs: self.reference_log_probs.as_deref(),
            weight: self.weight,
            ..Row::new(&self.prompt, &self.response)
        }
    }

    pub(super) fn put(&self, to: &mut Encoder) {
        to.tokens(&self.prompt);
        to.tokens(&self.response);
        to.float(self.advantage);
        to.optional(self.loss_mask.as_deref(), Encoder::flags);
        to.optional(self.behaviour_log_probs.as_deref(), Encoder::floats);
        to.optional(self.reference_log_probs.as_deref(), Encoder::floats);
        to.float(self.weight);
    }

    pub(super) fn get(from: &mut Decoder<'_>) -> Result<Self> {
        Ok(Self {
            prompt: from.tokens()?,
            response: from.tokens()?,
            advantage: from.float()?,
            loss_mask: from.optional(Decoder::flags)?,
            behaviour_log_probs: from.optional(Decoder::floats)?,
            reference_log_probs: from.optional(Decoder::floats)?,
            weight: from.float()?,
        })
    }
}

impl From<Row<'_>> for BatchRow {
    fn from(row: Row<'_>) -> Self {
        Self {
            prompt: row.prompt.to_vec(),
            response: row.response.to_vec(),
            advantage: row.advantage,
            loss_mask: row.loss_mask.map(<[bool]>::to_vec),
            behaviour_log_probs: row.behaviour_log_probs.map(<[f32]>::to_vec),
            reference_log_probs: row.reference_log_probs.map(<[f32]>::to_vec),
            weight: row.weight,
        }
    }
}

/// A [`crate::Unit`] that owns its rows: a closed group at its planned place in the step.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BatchUnit {
    /// The unit's planned place in the step.
    pub position: usize,
    /// Name of the policy that the rows were sampled from.
    pub policy: String,
    /// Its version.
    pub version: u64,
    /// The rows.
    pub rows: Vec<BatchRow>,
}

/// What one claim gives to train on. One rank accumulates all of it or nothing, so its gradient is kept or lost as a whole.
#[derive(Debug, Clone, PartialEq)]
pub struct MicroBatch {
    /// What it was claimed by.
    pub claim: ClaimId,
    /// Its units; their places are those of no other micro-batch of the step.
    pub units: Vec<BatchUnit>,
}

impl MicroBatch {
    /// Rows of all units.
    pub fn rows(&self) -> usize {
        self.units.iter().map(|unit| unit.rows.len()).sum()
    }

    pub(super) fn put(&self, to: &mut Encoder) {
        to.text(&self.claim.0);
        to.list(&self.units, |to, unit| {
            to.count(unit.position);
            to.text(&unit.policy);
            to.word(unit.version);
            to.list(&unit.rows, |to, row| row.put(to));
        });
    }

    pub(super) fn get(from: &mut Decoder<'_>) -> Result<Self> {
        let claim = ClaimId(from.text()?);
        let units = from.list(|from| {
            Ok(BatchUnit {
                position: from.count()?,
                policy: from.text()?,
                version: from.word()?,
                rows: from.list(BatchRow::get)?,
            })
        })?;
        Ok(Self { claim, units })
    }
}
