//! What a row is made of.

use std::sync::Arc;

use crate::clock::Timestamp;
use crate::extent::View;
use crate::log::record::StoredValue;
use crate::sample_id::SampleId;
use crate::schema::DataType;

/// What a row is for. Only train rows count in triggers, groups and steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// To be trained on.
    #[default]
    Train,
    /// To be measured only.
    Eval,
    /// Supervised or other preparation before the run proper.
    WarmUp,
}

impl Purpose {
    /// The word for this purpose in SQL.
    pub fn as_str(self) -> &'static str {
        match self {
            Purpose::Train => "train",
            Purpose::Eval => "eval",
            Purpose::WarmUp => "warmup",
        }
    }

    pub(crate) fn from_tag(tag: u8) -> Option<Self> {
        [Purpose::Train, Purpose::Eval, Purpose::WarmUp].get(tag as usize).copied()
    }
}

/// What is known of a row from its first moment and never changes.
#[derive(Clone, Debug)]
pub(crate) struct RowMeta {
    pub(crate) sample: SampleId,
    pub(crate) policy_version: u64,
    pub(crate) attempt: u32,
    pub(crate) purpose: Purpose,
    pub(crate) created_at: Timestamp,
    pub(crate) token: u128,
    pub(crate) agent: Arc<str>,
    pub(crate) origin: Arc<str>,
    pub(crate) parent: Arc<str>,
    pub(crate) weights: Arc<str>,
}

/// How far a row has come.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowStatus {
    /// A bit a data column: the cell is final.
    pub(crate) finals: u64,
    /// A bit a data column: the final cell is null.
    pub(crate) nulls: u64,
    /// A bit a data column: the cell is partial.
    pub(crate) partials: u64,
    /// Why the row was left out.
    pub(crate) excluded: Option<Arc<str>>,
    /// The step that consumed the row; 0 for none.
    pub(crate) step: u64,
}

/// Where a row stands with one consumer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Progress {
    /// A required cell is missing.
    #[default]
    Waiting,
    /// Every required cell is there; on the ready queue, alone or as a member of its group.
    Ready,
    /// In the hands of a holder.
    Leased,
    /// Its gradient is in its policy's cache.
    Accumulated,
    /// Finished by its task, or consumed by a step.
    Done,
    /// Left out, or none of this consumer's business.
    Out,
}

/// A row's word for one consumer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ConsumerWord {
    pub(crate) progress: Progress,
    /// While ready and ungrouped: the place in the ready queue. From the lease on: the claim.
    pub(crate) ticket_or_claim: u64,
}

/// One data column of a chunk.
#[derive(Clone, Debug)]
pub(crate) struct ColumnPage {
    values: Values,
    /// When each cell turned final, in milliseconds after its row was created.
    final_after_ms: Vec<u32>,
}

#[derive(Clone, Debug)]
enum Values {
    Inline { width: usize, bytes: Vec<u8> },
    Views(Vec<View>),
}

impl ColumnPage {
    pub(crate) fn new(data_type: &DataType) -> Self {
        let values = match data_type {
            DataType::Bool | DataType::Number(_) => {
                Values::Inline { width: data_type.width_bytes(), bytes: Vec::new() }
            }
            _ => Values::Views(Vec::new()),
        };
        ColumnPage { values, final_after_ms: Vec::new() }
    }

    pub(crate) fn push_empty(&mut self) {
        self.final_after_ms.push(0);
        match &mut self.values {
            Values::Inline { width, bytes } => bytes.resize(bytes.len() + *width, 0),
            Values::Views(views) => views.push(View::default()),
        }
    }

    /// Sets a cell. A value of another form than the column's cannot come out of validation or a checked log; it is
    /// reported, not stored.
    pub(crate) fn set(&mut self, at: usize, value: StoredValue, after_ms: u32) -> Result<(), String> {
        match (&mut self.values, value) {
            (_, StoredValue::Null) => {}
            (Values::Inline { width, bytes }, StoredValue::Inline(bits)) => {
                bytes[at * *width..(at + 1) * *width].copy_from_slice(&bits.to_le_bytes()[..*width]);
            }
            (Values::Views(views), StoredValue::View(view)) => views[at] = View(view),
            (_, other) => return Err(format!("a cell of another form than its column: {other:?}")),
        }
        self.final_after_ms[at] = after_ms;
        Ok(())
    }

    pub(crate) fn get(&self, at: usize) -> StoredValue {
        match &self.values {
            Values::Inline { width, bytes } => {
                let mut bits = [0; 8];
                bits[..*width].copy_from_slice(&bytes[at * width..(at + 1) * width]);
                StoredValue::Inline(u64::from_le_bytes(bits))
            }
            Values::Views(views) => StoredValue::View(views[at].0),
        }
    }

    pub(crate) fn final_after_ms(&self, at: usize) -> u32 {
        self.final_after_ms[at]
    }
}
