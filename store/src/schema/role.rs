//! What a data column means to a trainer.

use super::{DataType, Element};

/// What a data column means to a trainer: so that it knows what to read, whatever the column is called.
///
/// The columns of `InputIds`, `LossMask`, `BehaviourLogprobs` and `ReferenceLogprobs`, and those of `Reward`, `Advantage`
/// and `Weight` that are lists, have one entry a token. They belong together: in one row all of them have the same length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Token ids: a list of integers.
    InputIds,
    /// Which tokens are trained on: a list of numbers.
    LossMask,
    /// Log-probabilities under the weights that sampled: a list of floats.
    BehaviourLogprobs,
    /// Log-probabilities under the reference weights: a list of floats.
    ReferenceLogprobs,
    /// The reward: a number, or one a token.
    Reward,
    /// The advantage: a number, or one a token.
    Advantage,
    /// How much the sample counts: a number, or one a token.
    Weight,
}

impl Role {
    /// Every role, in the order of their stored forms.
    pub const ALL: [Role; 7] = [
        Role::InputIds,
        Role::LossMask,
        Role::BehaviourLogprobs,
        Role::ReferenceLogprobs,
        Role::Reward,
        Role::Advantage,
        Role::Weight,
    ];

    /// The word for this role.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::InputIds => "input_ids",
            Role::LossMask => "loss_mask",
            Role::BehaviourLogprobs => "behaviour_logprobs",
            Role::ReferenceLogprobs => "reference_logprobs",
            Role::Reward => "reward",
            Role::Advantage => "advantage",
            Role::Weight => "weight",
        }
    }

    /// The stored form of a column's role; 0 for none.
    pub(crate) fn tag(role: Option<Role>) -> u8 {
        role.map_or(0, |role| role as u8 + 1)
    }

    /// The other way; `None` for a tag that no role has.
    pub(crate) fn from_tag(tag: u8) -> Option<Option<Role>> {
        match usize::from(tag).checked_sub(1) {
            None => Some(None),
            Some(index) => Role::ALL.get(index).copied().map(Some),
        }
    }

    /// What a column of this role holds, in words, when it holds something else.
    pub(crate) fn refuses(self, data_type: &DataType) -> Option<&'static str> {
        let float = |element: &Element| element.is_float();
        let (fits, expected) = match (self, data_type) {
            (Role::InputIds, DataType::List(element)) => (!float(element), "a list of integers"),
            (Role::InputIds, _) => (false, "a list of integers"),
            (Role::LossMask, DataType::List(_)) => (true, ""),
            (Role::LossMask, _) => (false, "a list of numbers"),
            (Role::BehaviourLogprobs | Role::ReferenceLogprobs, DataType::List(element)) => {
                (float(element), "a list of floats")
            }
            (Role::BehaviourLogprobs | Role::ReferenceLogprobs, _) => (false, "a list of floats"),
            (_, DataType::Number(_) | DataType::List(_)) => (true, ""),
            _ => (false, "a number or a list of numbers"),
        };
        (!fits).then_some(expected)
    }
}
