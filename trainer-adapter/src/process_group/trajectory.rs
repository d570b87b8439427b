//! Members of groups that are trained as they finish, as they go to a rank.

use std::io::Result;

use super::batch::{BatchRow, ClaimId};
use super::wire::{Decoder, Encoder};
use crate::frame::invalid;
use crate::gradient::{OpenGroup, RewardValues};

/// An [`OpenGroup`] that owns its name: what is planned of a group whose members are trained as they finish.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupPlan {
    /// The group's planned place in the step.
    pub position: usize,
    /// Name of the policy that its members are sampled from.
    pub policy: String,
    /// Its version.
    pub version: u64,
    /// How many members are planned.
    pub members: usize,
    /// Which rewards they may have.
    pub rewards: RewardValues,
}

impl GroupPlan {
    pub(super) fn open_group(&self) -> OpenGroup<'_> {
        let Self { position, policy, version, members, rewards } = self;
        OpenGroup { position: *position, policy, version: *version, members: *members, rewards: *rewards }
    }
}

/// What one claim gives to train on of a group that others may still join: one member of it. Its gradient is kept or lost with its claim.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchTrajectory {
    /// What it was claimed by.
    pub claim: ClaimId,
    /// Its group, the same with each member.
    pub group: GroupPlan,
    /// Which member it is, from 0.
    pub member: usize,
    /// Its reward.
    pub reward: f64,
    /// Its rows, each of advantage 1: the group's advantages are known when it closes.
    pub rows: Vec<BatchRow>,
}

impl BatchTrajectory {
    /// Tokens that count.
    pub(super) fn tokens(&self) -> u64 {
        let tokens = |row: &BatchRow| match &row.loss_mask {
            Some(mask) => mask.iter().filter(|is_trained| **is_trained).count() as u64,
            None => row.response.len() as u64,
        };
        self.rows.iter().map(tokens).sum()
    }

    pub(super) fn put(&self, to: &mut Encoder) {
        let GroupPlan { position, policy, version, members, rewards } = &self.group;
        to.text(&self.claim.0);
        to.count(*position);
        to.text(policy);
        to.word(*version);
        to.count(*members);
        let (kind, one, other) = match *rewards {
            RewardValues::Any { reference } => (0, reference, 0.0),
            RewardValues::Two { low, high } => (1, low, high),
        };
        to.words(&[kind, one.to_bits(), other.to_bits()]);
        to.count(self.member);
        to.word(self.reward.to_bits());
        to.list(&self.rows, |to, row| row.put(to));
    }

    pub(super) fn get(from: &mut Decoder<'_>) -> Result<Self> {
        let claim = ClaimId(from.text()?);
        let (position, policy, version) = (from.count()?, from.text()?, from.word()?);
        let members = from.count()?;
        let (kind, one, other) = (from.word()?, number(from)?, number(from)?);
        let rewards = match kind {
            0 => RewardValues::Any { reference: one },
            1 => RewardValues::Two { low: one, high: other },
            _ => return Err(invalid("rewards are of no known kind")),
        };
        let group = GroupPlan { position, policy, version, members, rewards };
        let (member, reward) = (from.count()?, number(from)?);
        Ok(Self { claim, group, member, reward, rows: from.list(BatchRow::get)? })
    }
}

pub(super) fn number(from: &mut Decoder<'_>) -> Result<f64> {
    from.word().map(f64::from_bits)
}
