//! Exact early training in ranks: what `run::early` does in this process, with sums that are part of the group's state.
//!
//! # Room
//! The budget is the agent's, over all its ranks: the sums of `room` groups. The store hands out parts of at most one group fewer at a
//! time, counted in this life of the run. The state of an earlier life may have open groups of which nobody has come in this one; where
//! they take room that others need, they are forgotten, and their members are trained again when they come.
//!
//! # When a group closes
//! When its members at hand are in and the store waits for nobody more of it. What was held of it and its claims in the store are the same
//! then, unless rows came out otherwise in another life: then nothing that is accumulated is of use ([`StaleGradients`]).

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use forebay_trainer_adapter::RewardValues;
use forebay_trainer_adapter::process_group::{BatchOutcome, BatchTrajectory, ProcessGroup};

use super::claimed::{Arrived, GroupPart};
use super::gradient_name::GradientName;
use super::turn::{StaleGradients, Turn};

/// How an agent trains early.
#[derive(Clone, Copy, Debug)]
pub(super) struct Early {
    /// The sums of how many groups its budget holds; 1 or more.
    pub(super) room: usize,
    /// Which rewards members may have.
    pub(super) rewards: RewardValues,
}

impl Turn<'_> {
    /// Trains the members that the ledger does not have, and closes the groups that nobody more is waited for in. Tells whether a group
    /// among them still waits.
    pub(super) fn add_members(
        &self,
        group: &mut ProcessGroup,
        early: Early,
        parts: &[GroupPart],
    ) -> Result<bool> {
        let waiting: BTreeSet<String> = self.feed.consumer.open_groups().into_iter().collect();
        let mut rest = parts;
        self.close_over(group, &waiting, (parts, rest))?; // makes room that the store counts upon
        while !rest.is_empty() {
            let (wave, later) = rest.split_at(self.wave_length(group, early, (parts, rest)));
            self.add_wave(group, early, (parts, wave))?;
            self.close_over(group, &waiting, (parts, later))?;
            rest = later;
        }
        Ok(parts.iter().any(|part| group.ledger().open.contains_key(&part.position)))
    }

    /// Closes all groups that are open: everything that was planned has come.
    pub(super) fn close_all(&self, group: &mut ProcessGroup) -> Result<()> {
        self.close_over(group, &BTreeSet::new(), (&[], &[]))
    }

    /// Closes every open group that has members of this life, that nobody more is waited for in, and that has none in `later`, which is
    /// what is not trained yet of the parts at hand.
    fn close_over(
        &self,
        group: &mut ProcessGroup,
        waiting: &BTreeSet<String>,
        (parts, later): (&[GroupPart], &[GroupPart]),
    ) -> Result<()> {
        let open: Vec<usize> = group.ledger().open.keys().copied().collect();
        for position in open {
            let arrived = self.held.borrow().arrived(position, parts);
            let is_later = later.iter().any(|part| part.position == position);
            match arrived {
                Some(arrived) if !is_later && !waiting.contains(&arrived.key) => {
                    self.close(group, &arrived)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn close(&self, group: &mut ProcessGroup, arrived: &Arrived) -> Result<()> {
        let Arrived { position, members, .. } = arrived;
        let named = members.iter().map(|(member, (claim, _))| (member, claim));
        if !group.ledger().open.get(position).is_some_and(|open| open.arrived.iter().eq(named)) {
            return self.forget_stale(group, *position);
        }
        let rewards: Vec<f64> = members.values().map(|(_, reward)| *reward).collect();
        Ok(group.close_group(*position, &self.feed.estimator.advantages(&rewards)?)?)
    }

    /// The members of a wave that the ledger does not have go to ranks.
    fn add_wave(
        &self,
        group: &mut ProcessGroup,
        early: Early,
        (parts, wave): (&[GroupPart], &[GroupPart]),
    ) -> Result<()> {
        let ledger = group.ledger();
        if let Some(stale) = wave.iter().find(|part| self.is_stale(group, part)) {
            return self.forget_stale(group, stale.position);
        }
        let members = wave.iter().flat_map(|part| &part.members);
        let missing: Vec<BatchTrajectory> =
            members.filter(|member| !ledger.has(&member.claim)).cloned().collect();
        let new: BTreeSet<usize> = missing.iter().map(|member| member.group.position).collect();
        let new = new.iter().filter(|position| !ledger.open.contains_key(position)).count();
        self.make_room(group, early.room.saturating_sub(new), parts)?;
        for outcome in group.add_trajectories(&missing)? {
            if let BatchOutcome::Refused { reason, .. } = outcome {
                bail!("policy {:?} could not be trained: {reason}", self.feed.name);
            }
        }
        Ok(())
    }

    /// Whether the ledger has something of a part's group that does not go with the part: a member that came out otherwise, or a group that
    /// was closed without one that comes now.
    fn is_stale(&self, group: &ProcessGroup, part: &GroupPart) -> bool {
        let ledger = group.ledger();
        let mut missing = part.members.iter().filter(|member| !ledger.has(&member.claim)).peekable();
        match ledger.open.get(&part.position) {
            Some(open) => missing.any(|member| open.arrived.contains_key(&member.member)),
            None => missing.peek().is_some() && GradientName::has_place(ledger, self.step(), part.position),
        }
    }

    /// How many of the parts that are left there is room for at once; one at least.
    fn wave_length(
        &self,
        group: &ProcessGroup,
        early: Early,
        (parts, rest): (&[GroupPart], &[GroupPart]),
    ) -> usize {
        let (open, held) = (&group.ledger().open, self.held.borrow());
        // Groups that nobody has come of in this life can be forgotten.
        let mut taken = open.keys().filter(|position| held.has_come(**position, parts)).count();
        let fits = |part: &&GroupPart| {
            taken += usize::from(!open.contains_key(&part.position));
            taken <= early.room
        };
        rest.iter().take_while(fits).count().max(1)
    }

    /// Forgets groups that nobody has come of in this life until no more than `most` are open.
    fn make_room(&self, group: &mut ProcessGroup, most: usize, parts: &[GroupPart]) -> Result<()> {
        let open = &group.ledger().open;
        let excess = open.len().saturating_sub(most);
        let idle = open.keys().filter(|position| !self.held.borrow().has_come(**position, parts));
        let idle: Vec<usize> = idle.take(excess).copied().collect();
        for position in idle {
            tracing::debug!(agent = group.agent(), position, "an open group of an earlier life makes room");
            group.forget_group(position)?;
        }
        Ok(())
    }

    /// Forgets everything that is accumulated, as something at this place is of rows that came out otherwise.
    pub(super) fn forget_stale<T>(&self, group: &mut ProcessGroup, position: usize) -> Result<T> {
        group.forget_accumulated()?;
        Err(StaleGradients { position }.into())
    }
}
