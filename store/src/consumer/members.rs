//! How groups change: members come, turn ready, are taken, come back, leave; groups are expected, closed, left out.

use std::sync::Arc;

use super::declaration::ConsumerKind;
use super::group::{GroupName, Standing};
use super::grouping::{Grouping, Member, TrajectoryEnd};
use super::groups::GroupId;
use super::partition::{Partition, Words, chain};
use super::reindex::Said;
use super::rows::{CLOSED_OUT, MEMBER, number_out};
use super::state::{ConsumedTable, ConsumerState, Fallout, LATE, SURPLUS};
use crate::state::apply::DELETED;
use crate::table::{Progress, RowMeta, TableState};

/// The reason of rows whose group fails, where nothing better is known.
const FAILED: &str = "failed";

/// What is said of a group as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupChange {
    /// It has so many members.
    Expect(u32),
    /// Whoever is not ready by now is late.
    Close,
    /// A trajectory has all its rows.
    CloseTrajectory(u32),
}

impl ConsumerState {
    pub(super) fn find_or_create(
        &mut self,
        at: ConsumedTable,
        version: u64,
        name: GroupName,
    ) -> Option<GroupId> {
        let grouping = self.grouping?;
        let groups = &mut self.partition(at, version)?.groups;
        let (id, is_new) = groups.find_or_create(name, grouping.size);
        if !is_new {
            return Some(id);
        }
        if let (Some(plan), Some(partition)) = (&mut self.plan, self.partitions.get_mut(&(at.table, version)))
        {
            plan.found(partition.groups.get_mut(id), (at.table, version, id), &grouping);
        }
        Some(id)
    }

    /// Changes a group: takes it out of the queue, lets `change` at it, and puts it back if it is complete.
    ///
    /// `reason` is why a group is left out that its rule leaves out now; without one it is left as it is, for it is about
    /// to change again.
    pub(super) fn change_group(
        &mut self,
        words: &mut Words<'_>,
        (version, id): (u64, GroupId),
        reason: Option<&str>,
        fallout: &mut Fallout,
        change: impl FnOnce(&mut Partition, &mut Words<'_>, &Grouping),
    ) {
        let Some(grouping) = self.grouping else { return };
        let key = (words.table.id, version);
        let Some(partition) = self.partitions.get_mut(&key) else { return };
        let before = *partition.groups.get(id);
        partition.unqueue(id);
        change(partition, words, &grouping);
        if let Some(reason) = reason {
            self.settle(words, (version, id), reason, fallout);
        }
        let (Some(plan), Some(partition)) = (&mut self.plan, self.partitions.get_mut(&key)) else { return };
        let after = partition.groups.get_mut(id);
        if after.is_planned() {
            plan.changed(&before, after, (key.0, key.1, id), &grouping);
            fallout.wake |= plan.open == 0;
        }
    }

    /// Queues a group that is complete; leaves one out that its rule does not want.
    fn settle(
        &mut self,
        words: &mut Words<'_>,
        (version, id): (u64, GroupId),
        reason: &str,
        fallout: &mut Fallout,
    ) {
        let key = (words.table.id, version);
        let (Some(grouping), Some(partition)) = (self.grouping, self.partitions.get(&key)) else { return };
        let group = *partition.groups.get(id);
        match group.standing(&grouping) {
            Standing::Open | Standing::Over => return,
            Standing::Failed => {
                let reason = if reason == FAILED && group.gone() > 0 { DELETED } else { reason };
                return self.fail(words, (version, id), reason, fallout);
            }
            Standing::Complete => {}
        }
        let rows = chain(words.table, words.slot, group.head);
        let priority = if self.priority.is_empty() {
            0
        } else {
            rows.map(|row| self.priority_of(words.table, row)).max().unwrap_or_default()
        };
        let ticket = self.next_ticket;
        if let Some(partition) = self.partitions.get_mut(&key)
            && partition.queue(id, &grouping, ticket, priority)
        {
            self.next_ticket += 1;
            fallout.wake = true;
        }
    }

    /// Leaves a whole group out: its rows that nobody holds, and whoever comes later.
    fn fail(
        &mut self,
        words: &mut Words<'_>,
        (version, id): (u64, GroupId),
        reason: &str,
        fallout: &mut Fallout,
    ) {
        let Some(partition) = self.partitions.get_mut(&(words.table.id, version)) else { return };
        let rows: Vec<u32> = chain(words.table, words.slot, partition.groups.get(id).head).collect();
        partition.groups.get_mut(id).exclude();
        let reason: Arc<str> = reason.into();
        partition.groups.reasons.insert(id, reason.clone());
        self.drop_rows(words, rows, &reason, fallout);
    }

    /// Rows of groups are left out: by a trainer for good, by a task for that task.
    fn drop_rows(&self, words: &mut Words<'_>, rows: Vec<u32>, reason: &Arc<str>, fallout: &mut Fallout) {
        rows.iter().for_each(|&row| words.set(row, Progress::Out, MEMBER));
        if self.kind == ConsumerKind::Trainer {
            fallout.leave_out(rows, reason);
        }
    }

    /// A row comes to its group. False when it is one too many.
    pub(super) fn enter(
        &mut self,
        words: &mut Words<'_>,
        at: ConsumedTable,
        id: GroupId,
        row: u32,
        fallout: &mut Fallout,
    ) -> bool {
        let (meta, Some(grouping)) = (words.table.meta(row), self.grouping) else { return false };
        let Some(partition) = self.partition(at, meta.lane()) else { return false };
        if let Some(reason) = partition.refuses(id, &grouping, meta.trajectory) {
            words.set(row, Progress::Out, 0);
            if self.kind == ConsumerKind::Trainer {
                fallout.leave_out([row], &reason);
            }
            return false;
        }
        let place = (meta.lane(), id);
        self.change_group(words, place, Some(FAILED), fallout, |partition, words, grouping| {
            partition.take_in(grouping, id, &meta);
            partition.link(words, id, row, Progress::Waiting);
        });
        words.progress(row) == Progress::Waiting
    }

    /// A row is counted in its group as what it is, without asking whether it has a place there.
    pub(super) fn enter_again(
        &mut self,
        words: &mut Words<'_>,
        at: ConsumedTable,
        row: u32,
        (progress, number): (Progress, u64),
    ) {
        let (meta, Some(grouping)) = (words.table.meta(row), self.grouping) else { return };
        let Some(id) = self.group_of(at, &meta, true) else { return };
        let Some(partition) = self.partition(at, meta.lane()) else { return };
        partition.take_in(&grouping, id, &meta);
        partition.link(words, id, row, Progress::Waiting);
        match progress {
            Progress::Waiting | Progress::Ready => return,
            Progress::Out => partition.take_out(words, &grouping, id, (row, &meta), false),
            Progress::Leased | Progress::Accumulated | Progress::Done => {
                partition.unlink(words, id, &[row]);
                partition.groups.stops_waiting(id, &grouping, meta.trajectory);
                partition.groups.get_mut(id).taken += 1;
            }
        }
        words.set(row, progress, number);
    }

    /// Tells a group again that it was closed, and its trajectories that they were.
    pub(super) fn close_as_before(
        &mut self,
        table: &mut TableState,
        at: ConsumedTable,
        (version, said, reason): (u64, &Said, Option<&str>),
        fallout: &mut Fallout,
    ) {
        let Some(id) = self.find_or_create(at, version, said.name) else { return };
        let mut words = Words { table, slot: at.slot };
        self.change_group(&mut words, (version, id), reason, fallout, |partition, _, grouping| {
            for &number in &said.trajectories {
                partition.groups.change_trajectory(id, number, |trajectory| trajectory.closed = true);
            }
            if said.closed {
                partition.groups.get_mut(id).close(grouping);
            }
        });
    }

    /// Counts a row again that waits or is out, if its group has a place for it; else it is surplus.
    pub(super) fn enter_if_there_is_place(
        &mut self,
        words: &mut Words<'_>,
        at: ConsumedTable,
        (row, stands): (u32, (Progress, u64)),
        fallout: &mut Fallout,
    ) {
        let (meta, Some(grouping)) = (words.table.meta(row), self.grouping) else { return };
        let Some(id) = self.group_of(at, &meta, true) else { return };
        let Some(partition) = self.partition(at, meta.lane()) else { return };
        let Some(reason) = partition.refuses(id, &grouping, meta.trajectory) else {
            return self.enter_again(words, at, row, stands);
        };
        words.set(row, Progress::Out, 0);
        if self.kind == ConsumerKind::Trainer && stands.0 == Progress::Waiting {
            fallout.leave_out([row], &reason);
        }
    }

    /// Lets a group be as its rule wants it.
    pub(super) fn settle_again(
        &mut self,
        words: &mut Words<'_>,
        place: (u64, GroupId),
        fallout: &mut Fallout,
    ) {
        let partition = self.partitions.get(&(words.table.id, place.0));
        let Some(group) = partition.map(|partition| *partition.groups.get(place.1)) else { return };
        if group.ticket == 0 {
            let reason = if group.is_closed() && group.gone() == 0 { LATE } else { FAILED };
            self.change_group(words, place, Some(reason), fallout, |_, _, _| {});
        }
    }

    /// Every required cell of a member is there.
    pub(super) fn member_turns_ready(
        &mut self,
        words: &mut Words<'_>,
        at: ConsumedTable,
        row: u32,
        fallout: &mut Fallout,
    ) {
        let meta = words.table.meta(row);
        let Some(id) = self.group_of(at, &meta, false) else { return };
        self.change_group(words, (meta.lane(), id), Some(FAILED), fallout, |partition, _, grouping| {
            partition.groups.get_mut(id).ready += 1;
            partition.groups.stops_waiting(id, grouping, meta.trajectory);
        });
    }

    /// Members were handed to the holder of `claim`.
    pub(super) fn members_leased(
        &mut self,
        table: &mut TableState,
        at: ConsumedTable,
        rows: &[u32],
        claim: u64,
    ) {
        let mut members: Vec<(u64, GroupId, u32)> = Vec::with_capacity(rows.len());
        for &row in rows {
            let meta = table.meta(row);
            if let Some(id) = self.group_of(at, &meta, false) {
                members.push((meta.lane(), id, row));
            }
        }
        members.sort_unstable();
        let mut words = Words { table, slot: at.slot };
        for of_group in members.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            let (version, id, _) = of_group[0];
            let rows: Vec<u32> = of_group.iter().map(|(_, _, row)| *row).collect();
            let fallout = &mut Fallout::default(); // what is left of the group, if anything, was there before
            self.change_group(&mut words, (version, id), Some(FAILED), fallout, |partition, words, _| {
                partition.unlink(words, id, &rows);
                let group = partition.groups.get_mut(id);
                group.ready -= rows.len() as u32;
                group.taken += rows.len() as u32;
            });
        }
        rows.iter().for_each(|&row| words.set(row, Progress::Leased, claim));
    }

    /// A held member is claimable again, unless its group was left out meanwhile.
    pub(super) fn member_returned(
        &mut self,
        words: &mut Words<'_>,
        at: ConsumedTable,
        row: u32,
        fallout: &mut Fallout,
    ) {
        let meta = words.table.meta(row);
        let Some(id) = self.group_of(at, &meta, false) else {
            return words.set(row, Progress::Ready, 0);
        };
        let groups = self.partitions.get(&(at.table, meta.lane())).map(|partition| &partition.groups);
        if let Some(reason) = groups.and_then(|groups| groups.reasons.get(&id)).cloned() {
            return self.drop_rows(words, vec![row], &reason, fallout);
        }
        self.change_group(words, (meta.lane(), id), Some(FAILED), fallout, |partition, words, _| {
            partition.link(words, id, row, Progress::Ready);
            let group = partition.groups.get_mut(id);
            group.ready += 1;
            group.taken -= 1;
        });
    }

    /// A member leaves: for good with a reason, or, without one, to make place for its next attempt.
    pub(super) fn member_left(
        &mut self,
        words: &mut Words<'_>,
        at: ConsumedTable,
        row: u32,
        reason: Option<&str>,
        fallout: &mut Fallout,
    ) {
        let meta = words.table.meta(row);
        let out = number_out(words.progress(row), words.number(row));
        let number = if reason.is_some() { out } else { 0 };
        let id = self.group_of(at, &meta, false);
        let excluded = |id| {
            let partition = self.partitions.get(&(at.table, meta.lane()));
            partition.is_some_and(|partition| partition.groups.get(id).is_excluded())
        };
        let Some(id) = id.filter(|id| !excluded(*id)) else {
            return words.set(row, Progress::Out, number);
        };
        self.change_group(words, (meta.lane(), id), reason, fallout, |partition, words, grouping| {
            partition.take_out(words, grouping, id, (row, &meta), reason.is_none());
            words.set(row, Progress::Out, number);
        });
    }

    /// The next attempt of a row has been inserted: whatever became of it, the old one's group is settled now.
    pub(crate) fn row_replaced(&mut self, table: &mut TableState, row: u32, fallout: &mut Fallout) {
        let Some((_, consumed)) = self.consumed(table.id) else { return };
        let meta = table.meta(row);
        let Some(id) = self.group_of(consumed, &meta, false) else { return };
        let mut words = Words { table, slot: consumed.slot };
        self.change_group(&mut words, (meta.lane(), id), Some(FAILED), fallout, |partition, _, _| {
            partition.groups.change_trajectory(id, meta.trajectory, |trajectory| trajectory.replaced = 0);
        });
    }

    /// Something is said of a group as a whole. It need not have any row yet.
    pub(crate) fn group_changed(
        &mut self,
        table: &mut TableState,
        (version, name): (u64, GroupName),
        what: GroupChange,
        fallout: &mut Fallout,
    ) {
        let Some((_, consumed)) = self.consumed(table.id) else { return };
        let version = name.lane(version);
        let Some(id) = self.find_or_create(consumed, version, name) else { return };
        if self.partition(consumed, version).is_none_or(|partition| partition.groups.get(id).is_excluded()) {
            return; // all of it is left out, whatever is said
        }
        let mut words = Words { table, slot: consumed.slot };
        let mut late = Vec::new();
        self.change_group(&mut words, (version, id), Some(LATE), fallout, |partition, words, grouping| {
            match what {
                GroupChange::Expect(members) => {
                    let group = partition.groups.get_mut(id);
                    group.size = u16::try_from(members).unwrap_or(u16::MAX).max(group.members);
                }
                GroupChange::CloseTrajectory(number) => {
                    partition.groups.add_trajectory(id, number);
                    partition.groups.change_trajectory(id, number, |trajectory| trajectory.closed = true);
                }
                GroupChange::Close => {
                    late = partition.late_rows(words, id);
                    for &row in &late {
                        let meta = words.table.meta(row);
                        partition.take_out(words, grouping, id, (row, &meta), false);
                        words.set(row, Progress::Out, MEMBER | CLOSED_OUT);
                    }
                    for number in partition.groups.open_trajectories(id) {
                        partition.groups.change_trajectory(id, number, |trajectory| trajectory.closed = true);
                    }
                    partition.groups.get_mut(id).close(grouping);
                }
            }
        });
        if self.kind == ConsumerKind::Trainer {
            fallout.leave_out(late, &LATE.into());
        }
    }
}

/// What is known of a group, for checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupInfo {
    pub(crate) size: u32,
    pub(crate) members: u32,
    pub(crate) taken: u32,
    pub(crate) closed: bool,
}

impl ConsumerState {
    /// What is known of a group.
    pub(crate) fn group_info(&self, table: u32, version: u64, name: GroupName) -> Option<GroupInfo> {
        let groups = &self.partitions.get(&(table, name.lane(version)))?.groups;
        let group = groups.get(groups.find(&name)?);
        let (size, members) = (group.size.into(), group.members.into());
        Some(GroupInfo { size, members, taken: group.taken, closed: group.is_closed() })
    }

    /// Whether a trajectory that is known has been closed.
    pub(crate) fn trajectory_closed(
        &self,
        table: u32,
        version: u64,
        name: GroupName,
        number: u32,
    ) -> Option<bool> {
        let groups = &self.partitions.get(&(table, name.lane(version)))?.groups;
        groups.trajectories.get(&(groups.find(&name)?, number)).map(|trajectory| trajectory.closed)
    }
}

impl Partition {
    /// Why a row of a trajectory has no place in a group, if so.
    pub(super) fn refuses(&self, id: GroupId, grouping: &Grouping, trajectory: u32) -> Option<Arc<str>> {
        let group = self.groups.get(id);
        if group.is_excluded() {
            return Some(self.groups.reasons.get(&id).cloned().unwrap_or_else(|| SURPLUS.into()));
        }
        let late = if group.is_closed() { LATE } else { SURPLUS };
        let known = self.groups.trajectories.get(&(id, trajectory));
        match (grouping.member, known) {
            (Member::Trajectory(_), Some(known)) if known.closed && known.replaced == 0 => {
                Some(SURPLUS.into())
            }
            (Member::Trajectory(_), Some(_)) => None,
            _ => group.is_full().then(|| late.into()),
        }
    }

    /// Counts one more row that lacks a cell.
    fn take_in(&mut self, grouping: &Grouping, id: GroupId, meta: &RowMeta) {
        let Member::Trajectory(end) = grouping.member else {
            let group = self.groups.get_mut(id);
            group.members += 1;
            group.waiting += 1;
            return;
        };
        self.groups.add_trajectory(id, meta.trajectory);
        self.groups.change_trajectory(id, meta.trajectory, |trajectory| {
            trajectory.rows += 1;
            trajectory.waiting += 1;
            trajectory.replaced = trajectory.replaced.saturating_sub(1);
            if let TrajectoryEnd::Rows(rows) = end {
                trajectory.closed |= trajectory.rows + trajectory.out >= rows;
            }
        });
    }

    /// The rows of a group that lack a cell.
    fn late_rows(&self, words: &Words<'_>, id: GroupId) -> Vec<u32> {
        let rows = chain(words.table, words.slot, self.groups.get(id).head);
        rows.filter(|&row| words.progress(row) == Progress::Waiting).collect()
    }

    /// Takes a row out of its group's counts and chain. `superseded`: its place is free for its next attempt.
    fn take_out(
        &mut self,
        words: &mut Words<'_>,
        grouping: &Grouping,
        id: GroupId,
        (row, meta): (u32, &RowMeta),
        superseded: bool,
    ) {
        let progress = words.progress(row);
        match progress {
            Progress::Waiting => self.unlink(words, id, &[row]),
            Progress::Ready => {
                self.unlink(words, id, &[row]);
                self.groups.get_mut(id).ready -= 1;
            }
            Progress::Leased | Progress::Accumulated | Progress::Done => self.groups.get_mut(id).taken -= 1,
            Progress::Out => {}
        }
        let (was_out, was_waiting) = (progress == Progress::Out, progress == Progress::Waiting);
        match grouping.member {
            Member::Row => {
                let group = self.groups.get_mut(id);
                group.waiting -= u16::from(was_waiting);
                group.out -= u16::from(was_out);
                group.members -= u16::from(superseded);
                group.out += u16::from(!superseded);
            }
            Member::Trajectory(_) => self.groups.change_trajectory(id, meta.trajectory, |trajectory| {
                trajectory.waiting -= u32::from(was_waiting);
                trajectory.rows -= u32::from(!was_out);
                trajectory.out -= u32::from(was_out);
                trajectory.replaced += u32::from(superseded);
                trajectory.out += u32::from(!superseded);
            }),
        }
    }
}

impl super::groups::Groups {
    /// One row fewer lacks a cell.
    fn stops_waiting(&mut self, id: GroupId, grouping: &Grouping, trajectory: u32) {
        match grouping.member {
            Member::Row => self.get_mut(id).waiting -= 1,
            Member::Trajectory(_) => {
                self.change_trajectory(id, trajectory, |trajectory| trajectory.waiting -= 1);
            }
        }
    }
}
