//! Exact early training in the main job: members are trained as they finish, and a group is closed when nobody more will come.
//!
//! Every group of such a run is trained by its members, those too that come whole: a group's sums do not depend on the order in which
//! members come, so neither do the weights. A group that is trained whole has other last bits, which is why it is not left to chance
//! which groups are.
//!
//! # Room
//! The budget holds the sums of `room` groups. The store hands out parts of at most one group fewer at a time, so that there is always
//! room for one that comes whole: it is begun and closed at once. Above the budget that means whole groups. Who has no room for a single
//! group trains all of them as units.
//!
//! # Members that never come
//! A row that fails is left out of its group by the store, which hands out what is left. Of a group that is not among the open ones any
//! more nobody will come: members that have not are excluded from the sums, and the group has the gradient of those that have.
//!
//! # Process groups
//! Ranks train early as well ([`super::groups`]); what is here is the trainer in this process, and what both ask of the store.
//!
//! # What dies
//! The sums die with the process, as the cache does. Claims are accumulated once their gradients are in either, so all rows of the open
//! step come back, in the next life.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use forebay_pipeline::plan::Membership;
use forebay_pipeline::trigger::Trigger;
use forebay_store::{Claim, GroupBy, MicroBatch, SampleId};
use forebay_trainer_adapter::{Admission, Device, OpenGroup, RewardValues, Row, Trainer, Trajectory};

use super::feed::{Feed, groups_of};
use super::local::LocalTrainer;
use super::report::MicroBatches;
use super::trainer::{Spans, StepWork};

/// The groups of a step that are trained early.
struct EarlyGroups<'a> {
    feed: &'a Feed,
    trainer: &'a mut dyn LocalTrainer,
    membership: &'a Membership,
    rewards: RewardValues,
    /// Those that are open, by position.
    open: BTreeMap<usize, Begun>,
}

/// A group that is open.
struct Begun {
    /// The store's name for it.
    key: String,
    arrived: BTreeSet<usize>,
}

/// Trains a step's rows of an agent as they come, into sums of `room` groups. Adds what it trained to `counted`.
pub(super) fn accumulate_early(
    feed: &Feed,
    trainer: &mut dyn LocalTrainer,
    work: &StepWork<'_>,
    room: usize,
    counted: &mut MicroBatches,
) -> Result<Spans> {
    let rule = early_rule(work, room);
    let mut groups = EarlyGroups::new(feed, trainer, work.membership);
    let mut spans = Spans::new();
    for claim in Trigger::new(work.step.clone(), &feed.consumer, rule) {
        let claim = claim?;
        let start = Instant::now();
        let is_early = groups.take(&claim);
        let is_early = is_early.with_context(|| format!("policy {:?} could not be trained", feed.name))?;
        spans.push((start, Instant::now()));
        let rows = claim.len();
        claim.accumulated()?;
        counted.add(is_early);
        work.progress.trained(rows);
    }
    groups.close_all()?;
    Ok(spans)
}

/// What a trainer with room for the sums of so many groups asks the store for.
pub(super) fn early_rule(work: &StepWork<'_>, room: usize) -> MicroBatch {
    match work.is_barrier {
        true => work.rule,
        false => MicroBatch::early(work.rule.rows(), room - 1),
    }
}

/// The sums of how many open groups a trainer's budget holds.
pub(super) fn early_room<D: Device>(trainer: &Trainer<D>) -> usize {
    let room = trainer.early_options().budget_bytes / trainer.open_group_bytes().max(1);
    usize::try_from(room).unwrap_or(usize::MAX)
}

/// Which rewards members of open groups may have, given what a trainer's loss makes of them. Problems are solved or not; a clip wants to
/// know the sign of an advantage when its row comes.
pub(super) fn reward_values<D: Device>(trainer: &Trainer<D>) -> RewardValues {
    match trainer.objective().needs_behaviour() {
        true => RewardValues::Two { low: 0.0, high: 1.0 },
        false => RewardValues::Any { reference: 0.5 },
    }
}

impl<'a> EarlyGroups<'a> {
    fn new(feed: &'a Feed, trainer: &'a mut dyn LocalTrainer, membership: &'a Membership) -> Self {
        let rewards = trainer.reward_values();
        EarlyGroups { feed, trainer, membership, rewards, open: BTreeMap::new() }
    }

    /// Adds the rows of a micro-batch. Tells whether it was early: a group that it has rows of still waits for others.
    fn take(&mut self, claim: &Claim) -> Result<bool> {
        let samples = claim.sample_ids();
        let of_claim: BTreeSet<String> =
            samples.iter().map(|sample| GroupBy::InputAndTurn.key(sample)).collect();
        let waiting: BTreeSet<String> = self.feed.consumer.open_groups().into_iter().collect();
        self.close_over(&waiting, &of_claim)?; // makes room for groups that the store has counted upon it for
        let feed = self.feed;
        feed.read_rows(claim, self.trainer.version(), |rows| {
            for (group, of_group) in groups_of(samples, self.membership)? {
                let first = &samples[of_group.start];
                let members: Vec<(usize, f64, Row<'_>)> = of_group
                    .map(|row| (samples[row].trajectory() as usize, rows.rewards[row], rows.row(row, 1.0)))
                    .collect();
                self.add(group, first, &members, &waiting)?;
            }
            Ok(())
        })?;
        Ok(self.open.values().any(|begun| of_claim.contains(&begun.key)))
    }

    /// Adds members of one group, which is begun if it was not, and closed if nobody more will come.
    fn add(
        &mut self,
        group: usize,
        sample: &SampleId,
        members: &[(usize, f64, Row<'_>)],
        waiting: &BTreeSet<String>,
    ) -> Result<()> {
        if !self.open.contains_key(&group) {
            self.begin(group, sample)?;
        }
        let trajectories: Vec<Trajectory<'_, Row<'_>>> = members
            .iter()
            .map(|(member, reward, row)| Trajectory {
                group,
                member: *member,
                reward: *reward,
                rows: std::slice::from_ref(row),
            })
            .collect();
        self.trainer.add_trajectories(&trajectories)?;
        let Some(begun) = self.open.get_mut(&group) else { return Ok(()) };
        begun.arrived.extend(members.iter().map(|(member, ..)| *member));
        if waiting.contains(&begun.key) { Ok(()) } else { self.close(group) }
    }

    fn begin(&mut self, position: usize, sample: &SampleId) -> Result<()> {
        let (policy, version) = (self.feed.name.as_str(), self.trainer.version());
        let members = self.membership.group_size() as usize;
        let opened = OpenGroup { position, policy, version, members, rewards: self.rewards };
        match self.trainer.begin_group(&opened)? {
            Admission::Open { .. } => {
                let key = GroupBy::InputAndTurn.key(sample);
                self.open.insert(position, Begun { key, arrived: BTreeSet::new() });
                Ok(())
            }
            Admission::WholeGroups { bytes, budget_bytes } => {
                bail!(
                    "{} groups are open, and one more would take {bytes} of {budget_bytes} bytes",
                    self.open.len()
                )
            }
        }
    }

    /// Closes every group of which nobody more is waited for and nobody is in the micro-batch at hand.
    fn close_over(&mut self, waiting: &BTreeSet<String>, at_hand: &BTreeSet<String>) -> Result<()> {
        let is_over = |begun: &Begun| !waiting.contains(&begun.key) && !at_hand.contains(&begun.key);
        let over: Vec<usize> =
            self.open.iter().filter(|(_, begun)| is_over(begun)).map(|(position, _)| *position).collect();
        over.into_iter().try_for_each(|position| self.close(position))
    }

    /// All that was planned has been handed out: nobody more will come.
    fn close_all(&mut self) -> Result<()> {
        self.close_over(&BTreeSet::new(), &BTreeSet::new())
    }

    /// Closes a group with those who have come.
    fn close(&mut self, position: usize) -> Result<()> {
        let Some(begun) = self.open.remove(&position) else { return Ok(()) };
        for member in
            (0..self.membership.group_size() as usize).filter(|member| !begun.arrived.contains(member))
        {
            self.trainer.exclude_member(position, member)?;
        }
        let advantages = self.feed.estimator.advantages(&self.trainer.group_rewards(position)?)?;
        Ok(self.trainer.close_group(position, &advantages)?)
    }
}
