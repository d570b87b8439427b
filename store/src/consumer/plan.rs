//! How far the open step has come with a consumer's groups.
//!
//! Every change of a planned group changes two sums, so that nobody has to walk the plan to see whether more is to come.
//!
//! A plan names groups without a version. It means every group of that name that the consumer may take; where none of them
//! has anybody to hand out, one of the current version is waited for. So a group that came late is planned like one that is
//! to come, and a group that an earlier step was done with does not stand for the one that is wanted now.

use std::collections::{BTreeSet, HashMap};
use std::ops::RangeInclusive;

use super::group::{Group, GroupName, Standing};
use super::grouping::Grouping;
use super::groups::GroupId;
use crate::origin::EXTERNAL_VERSION;

/// A group's table, version and number.
pub(crate) type GroupPlace = (u32, u64, GroupId);

/// The planned groups of the open step, and what is outstanding of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PlanProgress {
    /// Each planned group, and where it is known.
    pub(crate) groups: HashMap<GroupName, PlannedGroup>,
    /// Rows that are still to be handed out.
    pub(crate) open: usize,
    /// Rows of those that can be now.
    pub(crate) ready: usize,
    /// Groups that somebody is waited for in, and that have rows to be handed out all the same.
    pub(crate) partial: BTreeSet<GroupPlace>,
    /// How many rows those are.
    pub(crate) partial_rows: usize,
    /// Groups of which some rows were handed out and others are still to be.
    pub(crate) begun: usize,
    /// The versions that the step takes, by table.
    versions: HashMap<u32, RangeInclusive<u64>>,
}

/// A name that the plan has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PlannedGroup {
    /// The groups that have it; none until its first row has come.
    pub(crate) places: Vec<GroupPlace>,
    /// One of those says what is open.
    answered: bool,
}

impl PlanProgress {
    /// A plan of groups of which nothing is known yet.
    pub(crate) fn new(
        groups: impl IntoIterator<Item = GroupName>,
        versions: HashMap<u32, RangeInclusive<u64>>,
        grouping: &Grouping,
    ) -> Self {
        let groups: HashMap<_, _> = groups.into_iter().map(|name| (name, PlannedGroup::default())).collect();
        let open = groups.len() * grouping.size as usize;
        PlanProgress { open, groups, versions, ..PlanProgress::default() }
    }

    /// A group has become known, and is marked if it is planned, and of a version that the step takes. A planned group lies
    /// in one of the consumer's tables: the one that knows it says what is open.
    pub(crate) fn found(&mut self, group: &mut Group, place: GroupPlace, grouping: &Grouping) {
        let external = place.1 == EXTERNAL_VERSION;
        let versions = self.versions.get(&place.0).filter(|v| external || v.contains(&place.1));
        let (Some(versions), Some(planned)) = (versions, self.groups.get_mut(&group.name)) else { return };
        planned.places.push(place);
        group.set_planned(true);
        let (open, ready) = group.outstanding(grouping);
        self.open += open;
        self.ready += ready;
        let answers = group.answers() || open > 0 || external || place.1 == *versions.end();
        self.count_parts(None, group, place, grouping);
        self.answer(group, answers, grouping);
    }

    /// Groups of a table and a version have other numbers.
    pub(crate) fn renumber(&mut self, (table, version): (u32, u64), new: impl Fn(GroupId) -> GroupId) {
        let anew = |place: GroupPlace| {
            let (of, at, id) = place;
            if (of, at) == (table, version) { (of, at, new(id)) } else { place }
        };
        for planned in self.groups.values_mut() {
            planned.places.iter_mut().for_each(|place| *place = anew(*place));
        }
        self.partial = std::mem::take(&mut self.partial).into_iter().map(anew).collect();
    }

    /// Takes in a change of a planned group, from what it was to what it is.
    pub(crate) fn changed(
        &mut self,
        before: &Group,
        after: &mut Group,
        place: GroupPlace,
        grouping: &Grouping,
    ) {
        let (was_open, was_ready) = before.outstanding(grouping);
        let (open, ready) = after.outstanding(grouping);
        self.open = self.open + open - was_open;
        self.ready = self.ready + ready - was_ready;
        self.count_parts(Some(before), after, place, grouping);
        self.answer(after, open > 0, grouping);
    }

    /// Counts what a group has for those who do not wait until it is complete.
    fn count_parts(&mut self, before: Option<&Group>, after: &Group, place: GroupPlace, grouping: &Grouping) {
        let partial = |group: &Group| {
            let is_open = group.standing(grouping) == Standing::Open;
            if is_open { group.ready as usize } else { 0 }
        };
        let was = before.map_or(0, partial);
        let is = partial(after);
        self.partial_rows = self.partial_rows + is - was;
        match is {
            0 => self.partial.remove(&place),
            _ => self.partial.insert(place),
        };
        let begun = |group: &Group| usize::from(group.is_begun(grouping));
        self.begun = self.begun + begun(after) - before.map_or(0, begun);
    }

    /// A group says what is open, if it does, so that no other of its name is waited for. It remembers that by itself: what
    /// it was when the step began is not known any more when the plan is counted anew.
    fn answer(&mut self, group: &mut Group, answers: bool, grouping: &Grouping) {
        let Some(planned) = self.groups.get_mut(&group.name).filter(|_| answers) else { return };
        group.set_answers(true);
        if !planned.answered {
            planned.answered = true;
            self.open -= grouping.size as usize;
        }
    }
}
