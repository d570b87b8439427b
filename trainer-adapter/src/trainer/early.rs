//! Exact early training: trajectories are trained as they finish, and the group's gradient is what it would have been.
//!
//! A group is begun with its planned members, each trajectory is added when it finishes, and closing the group with the
//! advantages of an estimator puts its gradient at the group's place in the step. Until then it is in no numerator and in
//! no denominator: an excluded group, and a member that never comes, leave no trace.
//!
//! The gradient of a closed group depends on its members and not on the order in which they came: its sums are integers
//! ([`crate::device::Device::Sums`]). It equals that of the whole group ([`Trainer::accumulate`]) up to rounding, not bit
//! for bit: a whole group runs its prompt through the model once, early members each run it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use super::{Trainer, locked};
use crate::device::Device;
use crate::error::Error;
use crate::gradient::{
    Admission, Arrival, EarlyOptions, GroupSums, Member, OpenGroup, Plan, RewardValues, Row, Terms,
    Trajectory, UnitReport,
};

/// The most members of a group: more than anybody samples, and little memory.
const MEMBERS_MAX: usize = 1 << 20;

/// A trajectory's report and gradients: of the policy term, and of the terms that do not depend on the advantage.
struct Computed<D: Device> {
    arrival: Arrival,
    policy: Option<D::Buffer>,
    rest: Option<D::Buffer>,
}

impl<D: Device> Trainer<D> {
    /// The same trainer with other bounds for early training.
    ///
    /// # Errors
    /// [`Error::Config`] if `fraction_bits` is not 16 to 56.
    pub fn with_early_options(mut self, options: EarlyOptions) -> Result<Self, Error> {
        if !(16..=56).contains(&options.fraction_bits) {
            let value = options.fraction_bits.to_string();
            return Err(Error::Config { field: "fraction_bits", value, reason: "has to be 16 to 56" });
        }
        self.early = options;
        Ok(self)
    }

    /// Begins a group whose trajectories are to be trained as they finish, unless its sums would not fit.
    ///
    /// # Errors
    /// [`Error::OtherPolicy`], [`Error::OtherVersion`], [`Error::PositionTaken`] if the group does not belong here;
    /// [`Error::EmptyUnit`] without members; [`Error::NotLinear`] if the objective cannot be trained early with such rewards;
    /// [`Error::Config`] if there are more than 2^20 members, the reference is not finite, or the lower reward not below the higher.
    pub fn begin_group(&mut self, group: &OpenGroup<'_>) -> Result<Admission, Error> {
        self.check_group(group)?;
        let own = self.open_group_bytes();
        let bytes = self.open_bytes() + own;
        let budget_bytes = self.early.budget_bytes;
        if bytes > budget_bytes {
            return Ok(Admission::WholeGroups { bytes, budget_bytes });
        }
        let made = self.new_group(group.members, group.rewards);
        self.groups.insert(group.position, made);
        Ok(Admission::Open { bytes: own })
    }

    /// Memory of the sums of one open group, in bytes.
    pub fn open_group_bytes(&self) -> u64 {
        let sums = 2 + usize::from(self.has_rest());
        (sums * self.policy.layout().length() * size_of::<i64>()) as u64
    }

    /// The bounds of early training.
    pub fn early_options(&self) -> EarlyOptions {
        self.early
    }

    fn check_group(&self, group: &OpenGroup<'_>) -> Result<(), Error> {
        let position = group.position;
        self.check_unit(position, group.policy, group.version)?;
        if group.members == 0 {
            return Err(Error::EmptyUnit { position });
        }
        if group.members > MEMBERS_MAX {
            let value = group.members.to_string();
            return Err(Error::Config { field: "members", value, reason: "has to be at most 2^20" });
        }
        match group.rewards {
            RewardValues::Any { reference } if !reference.is_finite() => {
                let value = reference.to_string();
                Err(Error::Config { field: "rewards.reference", value, reason: "has to be finite" })
            }
            RewardValues::Any { .. } if self.objective.policy_term.is_clipped() => {
                let reason = "a clipped loss is linear only where the advantage's sign is known: name two reward \
                              values, or train whole groups";
                Err(Error::NotLinear { position, reason })
            }
            RewardValues::Two { low, high } if !(low.is_finite() && high.is_finite() && low < high) => {
                let value = format!("{low}, {high}");
                Err(Error::Config { field: "rewards", value, reason: "two finite values, the lower first" })
            }
            _ => Ok(()),
        }
    }

    /// Whether this very group is open already.
    ///
    /// # Errors
    /// [`Error::PositionTaken`] if a group is open at its place that was planned otherwise.
    pub(crate) fn is_begun(&self, planned: &OpenGroup<'_>) -> Result<bool, Error> {
        let OpenGroup { position, members, rewards, .. } = *planned;
        let Some(group) = self.groups.get(&position) else { return Ok(false) };
        let is_same = group.members.len() == members && group.rewards == rewards;
        if is_same { Ok(true) } else { Err(Error::PositionTaken { position }) }
    }

    /// The open groups, by position: how many members are planned, and which of them have come.
    pub(crate) fn arrived(&self) -> BTreeMap<usize, (usize, BTreeSet<usize>)> {
        let arrived = |group: &GroupSums<D>| {
            let members = group.members.iter().enumerate();
            members.filter(|(_, member)| matches!(member, Member::Arrived(_))).map(|(at, _)| at).collect()
        };
        let groups = self.groups.iter();
        groups.map(|(&position, group)| (position, (group.members.len(), arrived(group)))).collect()
    }

    pub(super) fn new_group(&self, members: usize, rewards: RewardValues) -> GroupSums<D> {
        let length = self.policy.layout().length();
        let sums = || self.device.allocate_sums(length, self.early.fraction_bits, members);
        GroupSums {
            rewards,
            members: vec![Member::Expected; members],
            first: sums(),
            second: sums(),
            rest: self.has_rest().then(sums),
        }
    }

    /// Whether the loss has terms that do not depend on the advantage.
    fn has_rest(&self) -> bool {
        self.options.entropy_coefficient != 0.0 || self.objective.kl_coefficient != 0.0
    }

    pub(super) fn open_bytes(&self) -> u64 {
        let sums: usize = self.groups.values().map(GroupSums::sums).sum();
        (sums * self.policy.layout().length() * size_of::<i64>()) as u64
    }

    /// Trains a trajectory of an open group. Gives the members that are still to come: at 0 the group is to be closed.
    ///
    /// # Errors
    /// [`Error::NoGroup`], [`Error::Member`], [`Error::Reward`] if it does not belong to an open group,
    /// [`Error::RowAdvantage`] if a row has an advantage of its own, and as [`Self::accumulate`] if a row cannot be
    /// computed. The group is then as before.
    pub fn add_trajectory<'a, R>(&mut self, trajectory: &Trajectory<'a, R>) -> Result<usize, Error>
    where
        R: Copy + Into<Row<'a>>,
    {
        let missing = self.add_trajectories(std::slice::from_ref(trajectory))?;
        Ok(missing[0])
    }

    /// The same for several trajectories, shared out over the device's threads. All are added or none.
    ///
    /// # Errors
    /// As [`Self::add_trajectory`], for the first that has one.
    pub fn add_trajectories<'a, R>(&mut self, trajectories: &[Trajectory<'a, R>]) -> Result<Vec<usize>, Error>
    where
        R: Copy + Into<Row<'a>>,
    {
        let mut plans = Vec::with_capacity(trajectories.len());
        for (index, trajectory) in trajectories.iter().enumerate() {
            let Trajectory { group, member, .. } = *trajectory;
            if trajectories[..index].iter().any(|earlier| (earlier.group, earlier.member) == (group, member))
            {
                return Err(Error::Member { position: group, member, reason: "is given twice" });
            }
            plans.push((self.plan_trajectory(trajectory)?, trajectory.reward));
        }
        let buffers: Vec<Mutex<[Option<D::Buffer>; 2]>> =
            plans.iter().map(|(plan, _)| Mutex::new(self.part_buffers(plan))).collect();
        let done = self.in_parallel(plans.len(), |index| {
            let buffers = std::mem::take(&mut *locked(&buffers[index]));
            self.compute_trajectory(&plans[index].0, plans[index].1, buffers)
        });
        self.device.check()?;
        let arrived = trajectories.iter().zip(done);
        arrived
            .map(|(trajectory, computed)| self.arrive(trajectory.group, trajectory.member, computed))
            .collect()
    }

    fn plan_trajectory<'a, R>(&self, trajectory: &Trajectory<'a, R>) -> Result<Plan, Error>
    where
        R: Copy + Into<Row<'a>>,
    {
        let Trajectory { group: position, member, reward, .. } = *trajectory;
        let group = self.groups.get(&position).ok_or(Error::NoGroup { position })?;
        group.check_arrival(position, member, reward)?;
        let mut rows = trajectory.full_rows();
        if let Some((row, found)) = rows.iter().enumerate().find(|(_, row)| row.advantage != 1.0) {
            return Err(Error::RowAdvantage { row, advantage: found.advantage });
        }
        let (advantage, _) = group.rewards.parts(reward);
        rows.iter_mut().for_each(|row| row.advantage = advantage);
        Plan::new(position, &rows, self.policy.config(), self.loss())
    }

    /// Room for the gradients of the two parts of the loss, where they have one.
    fn part_buffers(&mut self, plan: &Plan) -> [Option<D::Buffer>; 2] {
        let rest = self.has_rest();
        [(Terms::Policy, true), (Terms::Rest, rest)]
            .map(|(terms, wanted)| (wanted && !plan.is_flat(terms)).then(|| self.cache.buffer(&self.device)))
    }

    fn compute_trajectory(
        &self,
        plan: &Plan,
        reward: f64,
        [policy, rest]: [Option<D::Buffer>; 2],
    ) -> Computed<D> {
        let (of_policy, policy) = self.compute(plan, Terms::Policy, policy);
        // The backward pass takes the logits with it, so other terms need a forward pass of their own.
        let (of_rest, rest) =
            if self.has_rest() { self.compute(plan, Terms::Rest, rest) } else { Default::default() };
        let rest_loss = of_rest.loss_numerator;
        let arrival = Arrival { reward, totals: plan.totals, policy: of_policy, rest_loss };
        Computed { arrival, policy, rest }
    }

    /// Adds what was computed to the group's sums.
    fn arrive(&mut self, position: usize, member: usize, computed: Computed<D>) -> Result<usize, Error> {
        let group = self.groups.get_mut(&position).ok_or(Error::NoGroup { position })?;
        let (_, factors) = group.rewards.parts(computed.arrival.reward);
        if let Some(gradient) = &computed.policy {
            for (factor, sums) in factors.into_iter().zip([&mut group.first, &mut group.second]) {
                if factor != 0.0 {
                    self.device.add_to_sums(factor, gradient, sums);
                }
            }
        }
        if let (Some(gradient), Some(sums)) = (&computed.rest, &mut group.rest) {
            self.device.add_to_sums(1.0, gradient, sums);
        }
        group.members[member] = Member::Arrived(computed.arrival);
        let missing = group.missing();
        [computed.policy, computed.rest]
            .into_iter()
            .flatten()
            .for_each(|buffer| self.cache.give_back(buffer));
        Ok(missing)
    }

    /// Rewards of the members that have come, in the order of the members: what an estimator makes advantages of.
    ///
    /// # Errors
    /// [`Error::NoGroup`] if no group is open there.
    pub fn group_rewards(&self, position: usize) -> Result<Vec<f64>, Error> {
        let group = self.groups.get(&position).ok_or(Error::NoGroup { position })?;
        Ok(group.arrivals().map(|arrival| arrival.reward).collect())
    }

    /// Says that a member will never come: it failed, or is too late. Gives the members that are still to come.
    ///
    /// # Errors
    /// [`Error::NoGroup`], [`Error::Member`] if there is no such member, or it has come already.
    pub fn exclude_member(&mut self, position: usize, member: usize) -> Result<usize, Error> {
        let group = self.groups.get_mut(&position).ok_or(Error::NoGroup { position })?;
        let reason = match group.members.get(member) {
            Some(Member::Expected | Member::Excluded) => {
                group.members[member] = Member::Excluded;
                return Ok(group.missing());
            }
            Some(Member::Arrived(_)) => "is part of the sums already; exclude the group instead",
            None => "is not planned",
        };
        Err(Error::Member { position, member, reason })
    }

    /// Closes a group: its gradient under these advantages takes its place in the step.
    ///
    /// `advantages` are those of the members that have come, in the order of [`Self::group_rewards`], and have to lie on a
    /// line over the rewards, as those of every group-relative estimator do. Members with equal rewards, by exact
    /// comparison, have nothing to be compared by: whatever their advantages, the policy term adds nothing. A single member
    /// has the advantage that is given.
    ///
    /// # Errors
    /// [`Error::NoGroup`], [`Error::GroupIncomplete`] while members are missing, [`Error::GroupAdvantages`] if the advantages
    /// do not fit the rewards, [`Error::SumRange`] if a sum left its range, and if the device has failed. The group stays open.
    pub fn close_group(&mut self, position: usize, advantages: &[f64]) -> Result<UnitReport, Error> {
        let group = self.groups.get(&position).ok_or(Error::NoGroup { position })?;
        let missing = group.missing();
        if missing > 0 {
            return Err(Error::GroupIncomplete { position, missing });
        }
        let signed = self.objective.policy_term.is_clipped();
        let factors = group.factors(position, advantages, signed)?;
        let (totals, report) = group.report(&factors.advantages);
        let terms = [
            (factors.first, Some(&group.first)),
            (factors.second, Some(&group.second)),
            (1.0, group.rest.as_ref()),
        ];
        let terms: Vec<(f64, &D::Sums)> = terms
            .into_iter()
            .filter_map(|(factor, sums)| sums.filter(|_| factor != 0.0).map(|sums| (factor, sums)))
            .collect();
        let mut gradient = None;
        if !terms.is_empty() {
            let mut sum = self.cache.buffer(&self.device);
            self.device.combine_sums(&terms, &mut sum);
            let squares = self.device.sum_of_squares(&sum);
            self.device.check()?; // a device that has failed gives no number either
            if !squares.is_finite() {
                return Err(Error::SumRange { position });
            }
            gradient = Some(sum);
        }
        self.device.check()?;
        self.cache.add(&self.device, position, totals, gradient)?;
        self.groups.remove(&position);
        Ok(report)
    }

    /// The same, without those who have not come: they are excluded first, unless the group stays open.
    pub(crate) fn close_with_who_came(
        &mut self,
        position: usize,
        advantages: &[f64],
    ) -> Result<UnitReport, Error> {
        let group = self.groups.get_mut(&position).ok_or(Error::NoGroup { position })?;
        let before = group.members.clone();
        let expected = group.members.iter_mut().filter(|member| matches!(member, Member::Expected));
        expected.for_each(|member| *member = Member::Excluded);
        self.close_group(position, advantages).inspect_err(|_| {
            if let Some(group) = self.groups.get_mut(&position) {
                group.members = before;
            }
        })
    }

    /// Forgets an open group: it leaves numerator and denominator, and its place is free again.
    ///
    /// # Errors
    /// [`Error::NoGroup`] if no group is open there.
    pub fn exclude_group(&mut self, position: usize) -> Result<(), Error> {
        self.groups.remove(&position).map(|_| ()).ok_or(Error::NoGroup { position })
    }
}
