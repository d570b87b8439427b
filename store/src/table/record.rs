//! What a row is made of.

use bytemuck::{Pod, Zeroable};

use crate::clock::Timestamp;
use crate::sample_id::SampleKey;
use crate::texts::{TextId, TextPages};

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
    /// Every purpose, in the order of their stored forms.
    pub const ALL: [Purpose; 3] = [Purpose::Train, Purpose::Eval, Purpose::WarmUp];

    /// The word for this purpose in SQL.
    pub fn as_str(self) -> &'static str {
        match self {
            Purpose::Train => "train",
            Purpose::Eval => "eval",
            Purpose::WarmUp => "warmup",
        }
    }

    pub(crate) fn from_tag(tag: u8) -> Option<Self> {
        Self::ALL.get(tag as usize).copied()
    }
}

/// What is known of a row from its first moment and never changes, as pages and checkpoints hold it.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct RowMeta {
    pub(crate) policy_version: u64,
    /// Microseconds since the Unix epoch.
    pub(crate) created_at: i64,
    /// The idempotency token, low half first; 0 for none.
    pub(crate) token: [u64; 2],
    pub(crate) input: TextId,
    pub(crate) turn: u32,
    pub(crate) trajectory: u32,
    pub(crate) attempt: u32,
    pub(crate) agent: TextId,
    pub(crate) origin: TextId,
    pub(crate) parent: TextId,
    pub(crate) weights: TextId,
    pub(crate) purpose: u32,
    pub(crate) zeros: u32,
}

impl RowMeta {
    /// No row at all.
    pub(crate) const NONE: RowMeta = RowMeta {
        policy_version: 0,
        created_at: 0,
        token: [0; 2],
        input: TextId::EMPTY,
        turn: 0,
        trajectory: 0,
        attempt: 0,
        agent: TextId::EMPTY,
        origin: TextId::EMPTY,
        parent: TextId::EMPTY,
        weights: TextId::EMPTY,
        purpose: 0,
        zeros: 0,
    };

    pub(crate) fn purpose(&self) -> Purpose {
        Purpose::from_tag(self.purpose as u8).unwrap_or_default()
    }

    pub(crate) fn set_purpose(&mut self, purpose: Purpose) {
        self.purpose = purpose as u32;
    }

    pub(crate) fn token(&self) -> u128 {
        u128::from(self.token[0]) | u128::from(self.token[1]) << 64
    }

    pub(crate) fn set_token(&mut self, token: u128) {
        self.token = [token as u64, (token >> 64) as u64];
    }

    pub(crate) fn created_at(&self) -> Timestamp {
        Timestamp(self.created_at)
    }

    /// The row's sample id, borrowed.
    pub(crate) fn sample<'t>(&self, texts: &'t TextPages) -> SampleKey<'t> {
        SampleKey { input: texts.get(self.input), turn: self.turn, trajectory: self.trajectory }
    }
}

/// How far a row has come, as pages and checkpoints hold it.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct RowStatus {
    /// A bit a data column: the cell is final.
    pub(crate) finals: u64,
    /// Why the row was left out; empty while it is not.
    pub(crate) excluded: TextId,
    /// The step that consumed the row; 0 for none.
    pub(crate) step: u32,
}

impl RowStatus {
    pub(crate) fn is_excluded(&self) -> bool {
        self.excluded != TextId::EMPTY
    }

    /// Whether the row may still be trained on, as far as this says.
    pub(crate) fn is_open(&self) -> bool {
        !self.is_excluded() && self.step == 0
    }
}
