//! Members of groups that were deleted, for as long as a rewind may bring their versions back.
//!
//! A row that is removed leaves nothing that says of which group it was. While its group is there, the group counts it as
//! out. A rewind counts groups anew, of the rows that are there: without this they would wait for those that are not.
//!
//! # Invariants
//! - A row is here once, under the name of its group, if it was counted in it and no next attempt took its place.
//! - A member that is gone for good has no next attempt, so a group that waits for next attempts waits for none of it.

use std::collections::{BTreeMap, BTreeSet};

use super::group::GroupName;
use super::grouping::{GroupRule, Grouping, Member, TrajectoryEnd};
use super::groups::{GroupId, Groups, Trajectory};
use super::partition::Words;
use super::state::{ConsumedTable, ConsumerState, Fallout};
use crate::heap::HeapBytes;
use crate::state::apply::DELETED;
use crate::table::Progress;

/// A table and a version, or the one that stands for rows of peers.
type Lane = (u32, u64);

/// A row that is no more, and its trajectory.
type Gone = (u32, u32);

/// The deleted members of all groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DeletedMembers(BTreeMap<Lane, BTreeMap<GroupName, Vec<Gone>>>);

impl DeletedMembers {
    fn add(&mut self, lane: Lane, name: GroupName, gone: Gone) {
        self.0.entry(lane).or_default().entry(name).or_default().push(gone);
    }

    /// The members of a version of a table and of those after it: version, group, row and trajectory.
    pub(super) fn since(&self, (table, version): Lane) -> Vec<(u64, GroupName, Gone)> {
        let of = self.0.range((table, version)..=(table, u64::MAX));
        let groups = of.flat_map(|((_, version), groups)| groups.iter().map(|of| (*version, of)));
        groups
            .flat_map(|(version, (name, gone))| gone.iter().map(move |gone| (version, *name, *gone)))
            .collect()
    }

    /// The trajectories of a group of which a row was deleted.
    fn trajectories(&self, lane: Lane, name: &GroupName) -> BTreeSet<u32> {
        let gone = self.0.get(&lane).and_then(|groups| groups.get(name));
        gone.into_iter().flatten().map(|(_, trajectory)| *trajectory).collect()
    }

    pub(super) fn forget(&mut self, is_over: impl Fn(Lane) -> bool) {
        self.0.retain(|lane, _| !is_over(*lane));
    }

    pub(super) fn forget_groups(&mut self, lane: Lane, is_over: impl Fn(&GroupName) -> bool) {
        if let Some(groups) = self.0.get_mut(&lane) {
            groups.retain(|name, _| !is_over(name));
        }
        self.0.retain(|_, groups| !groups.is_empty());
    }

    /// The stored form of each group's: row and trajectory in turn.
    pub(super) fn stored(&self) -> impl Iterator<Item = (Lane, GroupName, Vec<u32>)> + '_ {
        let groups = self.0.iter().flat_map(|(lane, groups)| groups.iter().map(|of| (*lane, of)));
        groups.map(|(lane, (name, gone))| (lane, *name, gone.iter().flat_map(|of| [of.0, of.1]).collect()))
    }

    /// Reads the stored form.
    pub(super) fn restore(&mut self, lane: Lane, name: GroupName, numbers: &[u32]) {
        numbers.chunks_exact(2).for_each(|gone| self.add(lane, name, (gone[0], gone[1])));
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let groups = self
            .0
            .values()
            .map(|groups| groups.heap_bytes() + groups.values().map(HeapBytes::heap_bytes).sum::<usize>());
        self.0.heap_bytes() + groups.sum::<usize>()
    }
}

impl ConsumerState {
    /// A member is about to be removed from its table. Where its group is there, it is out by now, or it was taken before; a group
    /// that waits for its next attempt waits for it no longer.
    pub(super) fn member_deleted(
        &mut self,
        words: &mut Words<'_>,
        row: u32,
        back_to: u64,
        fallout: &mut Fallout,
    ) {
        let (meta, Some(grouping)) = (words.table.meta(row), self.grouping) else { return };
        let (lane, name) = ((words.table.id, meta.lane()), grouping.by.name(&meta));
        if lane.1 >= back_to {
            self.deleted.add(lane, name, (row, meta.trajectory));
        }
        let groups = self.partitions.get(&lane).map(|partition| &partition.groups);
        let group = groups.and_then(|groups| groups.find(&name).filter(|id| !groups.get(*id).is_excluded()));
        let waits = grouping.rule == GroupRule::NextAttempt && words.progress(row) == Progress::Out;
        let Some(id) = group.filter(|_| waits) else { return };
        let deleted = self.deleted.trajectories(lane, &name);
        self.change_group(words, (lane.1, id), Some(DELETED), fallout, |partition, _, grouping| {
            let groups = &mut partition.groups;
            match grouping.member {
                Member::Row => groups.add_to_gone(id),
                Member::Trajectory(_) => groups.count_gone(id, &deleted),
            }
        });
    }

    /// Versions are gone as a whole.
    pub(crate) fn forget_deleted_in(&mut self, table: u32, (first, last): (u64, u64)) {
        self.deleted.forget(|(of, at)| of == table && (first..=last).contains(&at));
    }

    /// A deleted member has its place again, as one that is out; unless others had come first.
    pub(super) fn count_deleted(
        &mut self,
        at: ConsumedTable,
        (version, name, (_, number)): (u64, GroupName, Gone),
    ) {
        let (Some(id), Some(grouping)) = (self.find_or_create(at, version, name), self.grouping) else {
            return;
        };
        let Some(partition) = self.partition(at, version) else { return };
        if partition.refuses(id, &grouping, number).is_none() {
            partition.groups.add_gone(id, &grouping, number);
        }
    }

    /// Says of all groups anew which trajectories that are out were deleted.
    pub(super) fn count_gone_trajectories(&mut self, (table, version): Lane) {
        if self.grouping.is_none_or(|grouping| !grouping.counts_trajectories()) {
            return;
        }
        for (lane, groups) in self.deleted.0.range((table, version)..=(table, u64::MAX)) {
            let Some(partition) = self.partitions.get_mut(lane) else { continue };
            for name in groups.keys() {
                if let Some(id) = partition.groups.find(name) {
                    partition.groups.count_gone(id, &self.deleted.trajectories(*lane, name));
                }
            }
        }
    }
}

impl Groups {
    /// One more member, of which nothing is left.
    fn add_gone(&mut self, id: GroupId, grouping: &Grouping, number: u32) {
        let Member::Trajectory(end) = grouping.member else {
            let group = self.get_mut(id);
            (group.members, group.out) = (group.members + 1, group.out + 1);
            return self.add_to_gone(id);
        };
        self.add_trajectory(id, number);
        self.change_trajectory(id, number, |trajectory| {
            trajectory.out += 1;
            if let TrajectoryEnd::Rows(rows) = end {
                trajectory.closed |= trajectory.rows + trajectory.out >= rows;
            }
        });
    }

    /// One more of those who are out was deleted.
    fn add_to_gone(&mut self, id: GroupId) {
        let group = self.get_mut(id);
        group.set_gone(group.gone() + 1);
    }

    /// How many of these trajectories, of which rows were deleted, are out.
    fn count_gone(&mut self, id: GroupId, deleted: &BTreeSet<u32>) {
        let is_out = |number: &&u32| self.trajectories.get(&(id, **number)).is_some_and(Trajectory::is_out);
        let gone = deleted.iter().filter(is_out).count() as u16;
        self.get_mut(id).set_gone(gone);
    }
}
