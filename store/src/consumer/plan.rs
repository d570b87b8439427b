//! How far the open step has come with a consumer's groups.
//!
//! Every change of a planned group changes two sums, so that nobody has to walk the plan to see whether more is to come.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use super::group::{Group, GroupName};
use super::grouping::Grouping;
use super::groups::GroupId;

/// A group's table, version and number.
pub(crate) type GroupPlace = (u32, u64, GroupId);

/// The planned groups of the open step, and what is outstanding of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PlanProgress {
    /// Where each planned group is known; nowhere until its first row has come.
    pub(crate) groups: HashMap<GroupName, Vec<GroupPlace>>,
    /// Rows that are still to be handed out.
    pub(crate) open: usize,
    /// Rows of those that can be now.
    pub(crate) ready: usize,
    /// The versions that the step takes, by table.
    versions: HashMap<u32, RangeInclusive<u64>>,
}

impl PlanProgress {
    /// A plan of groups of which nothing is known yet.
    pub(crate) fn new(
        groups: impl IntoIterator<Item = GroupName>,
        versions: HashMap<u32, RangeInclusive<u64>>,
        grouping: &Grouping,
    ) -> Self {
        let groups: HashMap<_, _> = groups.into_iter().map(|name| (name, Vec::new())).collect();
        PlanProgress { open: groups.len() * grouping.size as usize, ready: 0, groups, versions }
    }

    /// A group has become known. True when it is planned, and of a version that the step takes. A planned group lies in one of the consumer's tables: the one
    /// that knows it says what is open.
    pub(crate) fn found(&mut self, group: &Group, place: GroupPlace, grouping: &Grouping) -> bool {
        let takes = self.versions.get(&place.0).is_some_and(|versions| versions.contains(&place.1));
        let Some(places) = self.groups.get_mut(&group.name).filter(|_| takes) else { return false };
        if places.is_empty() {
            self.open -= grouping.size as usize;
        }
        places.push(place);
        let (open, ready) = group.outstanding(grouping);
        self.open += open;
        self.ready += ready;
        true
    }

    /// Takes in a change of a planned group, from what it was to what it is.
    pub(crate) fn changed(&mut self, before: &Group, after: &Group, grouping: &Grouping) {
        let (was_open, was_ready) = before.outstanding(grouping);
        let (open, ready) = after.outstanding(grouping);
        self.open = self.open + open - was_open;
        self.ready = self.ready + ready - was_ready;
    }
}
