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

/// The greatest number that an attempt has: what a row is for lies above it.
pub(crate) const ATTEMPT_MAX: u32 = (1 << PURPOSE_SHIFT) - 1;
const PURPOSE_SHIFT: u32 = 30;

/// What is known of a row from its first moment and never changes, as pages and checkpoints hold it: one line of the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
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
    /// The attempt, and above it the purpose.
    pub(crate) attempt_and_purpose: u32,
    pub(crate) agent: TextId,
    pub(crate) origin: TextId,
    pub(crate) parent: TextId,
    pub(crate) weights: TextId,
}

const _: () = assert!(size_of::<RowMeta>() == 64);

/// The form that checkpoints had before a row's record was one line of the cache: read, and not written any more.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct WideRowMeta {
    policy_version: u64,
    created_at: i64,
    token: [u64; 2],
    input: TextId,
    turn: u32,
    trajectory: u32,
    attempt: u32,
    agent: TextId,
    origin: TextId,
    parent: TextId,
    weights: TextId,
    purpose: u32,
    zeros: u32,
}

impl WideRowMeta {
    /// The same as it is kept now; none where its attempt or its purpose is none.
    pub(crate) fn narrow(&self) -> Option<RowMeta> {
        let WideRowMeta { policy_version, created_at, token, input, turn, trajectory, .. } = *self;
        let WideRowMeta { attempt, agent, origin, parent, weights, purpose, .. } = *self;
        let narrow = RowMeta { policy_version, created_at, token, input, turn, trajectory, ..RowMeta::NONE };
        let mut narrow = RowMeta { agent, origin, parent, weights, ..narrow };
        let purpose = u8::try_from(purpose).ok().and_then(Purpose::from_tag)?;
        narrow.set_attempt(Some(attempt).filter(|attempt| *attempt <= ATTEMPT_MAX)?, purpose);
        Some(narrow)
    }
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
        attempt_and_purpose: 0,
        agent: TextId::EMPTY,
        origin: TextId::EMPTY,
        parent: TextId::EMPTY,
        weights: TextId::EMPTY,
    };

    /// How many rows were given up for this one, from 0.
    pub(crate) fn attempt(&self) -> u32 {
        self.attempt_and_purpose & ATTEMPT_MAX
    }

    pub(crate) fn purpose(&self) -> Purpose {
        Purpose::from_tag((self.attempt_and_purpose >> PURPOSE_SHIFT) as u8).unwrap_or_default()
    }

    /// `attempt` is [`ATTEMPT_MAX`] at most.
    pub(crate) fn set_attempt(&mut self, attempt: u32, purpose: Purpose) {
        self.attempt_and_purpose = attempt & ATTEMPT_MAX | (purpose as u32) << PURPOSE_SHIFT;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_and_a_purpose_lie_in_one_word_and_leave_each_other_alone() {
        for attempt in [0, 1, 77, ATTEMPT_MAX - 1, ATTEMPT_MAX] {
            for purpose in Purpose::ALL {
                let mut meta = RowMeta::NONE;
                meta.set_attempt(attempt, purpose);
                assert_eq!((meta.attempt(), meta.purpose()), (attempt, purpose));
                let wide = WideRowMeta { attempt, purpose: purpose as u32, turn: 7, ..WideRowMeta::zeroed() };
                let narrow = wide.narrow().unwrap();
                assert_eq!((narrow.attempt(), narrow.purpose(), narrow.turn), (attempt, purpose, 7));
            }
        }
        for (attempt, purpose) in [(ATTEMPT_MAX + 1, 0), (u32::MAX, 0), (0, 3), (0, 256)] {
            let wide = WideRowMeta { attempt, purpose, ..WideRowMeta::zeroed() };
            assert!(wide.narrow().is_none(), "attempt {attempt}, purpose {purpose}");
        }
    }
}
