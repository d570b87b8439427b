//! The groups of one partition, found by their names.
//!
//! Records lie in pages and the index over their names in runs, as rows do: a checkpoint takes references, stores what
//! has changed, and an opening maps what it stored. So neither costs the number of groups.
//!
//! Invariants
//! - Every page but the last holds [`PAGE_GROUPS`] groups; none is empty.
//! - The index covers the groups there are, by the hash of their names; no two have the same name.

use std::collections::HashMap;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use super::group::{Group, GroupName};
use crate::heap::HeapBytes;
use crate::index::{Entry, IdIndex, Memo, Run, entry};
use crate::page::{CowArc, Page, Rows};

/// A group's number in its partition: numbers are given in the order of creation and never change.
pub(crate) type GroupId = u32;

/// A trajectory of a group whose members are trajectories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Trajectory {
    /// Rows that are not left out.
    pub(crate) rows: u32,
    /// How many of those lack a required cell.
    pub(crate) waiting: u32,
    /// Rows that were left out.
    pub(crate) out: u32,
    /// Rows whose next attempt is about to take their place.
    pub(crate) replaced: u32,
    pub(crate) closed: bool,
}

impl Trajectory {
    /// Whether more is to come.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.closed || self.waiting > 0 || self.replaced > 0
    }

    /// Whether it ended with nothing but rows that were left out.
    pub(crate) fn is_out(&self) -> bool {
        !self.is_waiting() && self.rows == 0 && self.out > 0
    }
}

/// How many groups a page holds.
pub(crate) const PAGE_GROUPS: usize = 512;

/// Up to [`PAGE_GROUPS`] groups.
pub(crate) type GroupPage = CowArc<Page<Rows<Group>>>;

/// The groups of one partition.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    pages: Vec<GroupPage>,
    index: IdIndex,
    /// Of [`Groups::find_or_create`].
    lately: Memo,
    /// Stands for these groups and no others: their numbers mean nothing to groups that were made anew.
    identity: Arc<()>,
    /// By group and number; empty unless members are trajectories.
    pub(crate) trajectories: HashMap<(GroupId, u32), Trajectory>,
    /// Why the groups that are left out are.
    pub(crate) reasons: HashMap<GroupId, Arc<str>>,
}

/// What groups have that lies in pages, as it was at one instant.
#[derive(Debug, Default)]
pub(crate) struct GroupPages {
    pub(crate) pages: Vec<GroupPage>,
    /// The index over the first of them.
    pub(crate) runs: Vec<Run>,
    identity: Arc<()>,
}

impl GroupPages {
    /// Pages and runs that were stored.
    pub(crate) fn stored(pages: Vec<GroupPage>, runs: Vec<Run>) -> Self {
        GroupPages { pages, runs, identity: Arc::default() }
    }

    pub(crate) fn count(&self) -> usize {
        count(&self.pages)
    }

    /// Runs that were made of these pages, for [`Groups::install`].
    pub(crate) fn with_runs(&self, runs: Vec<Run>) -> GroupRuns {
        GroupRuns { runs, identity: self.identity.clone() }
    }

    /// What an index has of groups, from number `first` on.
    pub(crate) fn entries_since(&self, first: u32) -> impl Iterator<Item = Entry> + '_ {
        let pages = self.pages.iter().enumerate().skip(first as usize / PAGE_GROUPS);
        let groups = pages.flat_map(|(number, page)| {
            (page.iter().enumerate()).map(move |(at, group)| ((number * PAGE_GROUPS + at) as u32, group))
        });
        groups.filter(move |(id, _)| *id >= first).map(|(id, group)| entry(hash(&group.name), id))
    }
}

/// An index over the names of groups, and of which.
#[derive(Debug)]
pub(crate) struct GroupRuns {
    pub(crate) runs: Vec<Run>,
    identity: Arc<()>,
}

fn count(pages: &[GroupPage]) -> usize {
    pages.last().map_or(0, |last| (pages.len() - 1) * PAGE_GROUPS + last.len())
}

fn hash(name: &GroupName) -> u64 {
    xxh3_64(bytemuck::bytes_of(name))
}

impl Groups {
    /// Groups as they were. `None` where the pages or the runs cannot be those of any.
    pub(crate) fn of_pages(stored: GroupPages) -> Option<Self> {
        let full = stored.pages.len().saturating_sub(1);
        let whole = stored.pages[..full].iter().all(|page| page.len() == PAGE_GROUPS)
            && stored.pages.last().is_none_or(|last| (1..=PAGE_GROUPS).contains(&last.len()));
        let runs_end = stored.runs.last().map_or(0, |run| run.end);
        if !whole || runs_end as usize > stored.count() {
            return None;
        }
        let mut index = IdIndex::of_runs(stored.runs.clone());
        stored.entries_since(runs_end).for_each(|entry| index.insert_entry(entry));
        Some(Groups { pages: stored.pages, index, identity: stored.identity, ..Groups::default() })
    }

    /// The pages of this instant, and the index over them. From here on the index goes on in a part of its own.
    pub(crate) fn capture(&mut self) -> GroupPages {
        self.index.begin_generation(self.len() as u32);
        let (pages, runs) = (self.pages.clone(), self.index.runs().to_vec());
        GroupPages { pages, runs, identity: self.identity.clone() }
    }

    /// Whether runs were made of these very groups.
    pub(crate) fn are_of(&self, runs: &GroupRuns) -> bool {
        Arc::ptr_eq(&self.identity, &runs.identity)
    }

    /// Puts stored runs, made of these very groups, in the place of what they cover.
    pub(crate) fn install(&mut self, stored: GroupRuns) {
        self.index.install(stored.runs);
    }

    /// Every page but the last, which grows.
    pub(crate) fn full_pages_mut(&mut self) -> &mut [GroupPage] {
        let full = self.pages.len().saturating_sub(1);
        &mut self.pages[..full]
    }

    pub(crate) fn index_mut(&mut self) -> &mut IdIndex {
        &mut self.index
    }

    /// Bytes of memory, other than mapped files'.
    pub(crate) fn heap_bytes(&self) -> usize {
        let pages = self.pages.iter().map(|page| size_of::<Page<Rows<Group>>>() + page.heap_bytes());
        let trajectories = self.trajectories.capacity() * (size_of::<(GroupId, u32, Trajectory)>() + 1);
        self.pages.heap_bytes() + pages.sum::<usize>() + self.index.heap_bytes() + trajectories
    }

    pub(crate) fn len(&self) -> usize {
        count(&self.pages)
    }

    /// All groups, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Group> {
        self.pages.iter().flat_map(|page| page.iter())
    }

    pub(crate) fn find(&self, name: &GroupName) -> Option<GroupId> {
        self.index.find(hash(name), |id| self.is_called(id, name))
    }

    fn is_called(&self, id: GroupId, name: &GroupName) -> bool {
        (id as usize) < self.len() && self.get(id).name == *name
    }

    /// The group of that name, and whether it is new.
    pub(crate) fn find_or_create(&mut self, name: GroupName, size: u32) -> (GroupId, bool) {
        let hash = hash(&name);
        if let Some(id) = self.lately.recall(hash).filter(|id| self.is_called(*id, &name)) {
            return (id, false);
        }
        let known = self.index.find(hash, |id| self.is_called(id, &name));
        let id = known.unwrap_or(self.len() as GroupId);
        self.lately.remember(hash, id);
        if known.is_some() {
            return (id, false);
        }
        if self.pages.last().is_none_or(|last| last.len() >= PAGE_GROUPS) {
            self.pages.push(CowArc::default());
        }
        if let Some(last) = self.pages.last_mut() {
            Page::edit(last).to_mut().push(Group::new(name, size));
        }
        self.index.insert(hash, id);
        (id, true)
    }

    /// A group; one that is nothing where the number is none of theirs, which only a damaged page can say.
    pub(crate) fn get(&self, id: GroupId) -> &Group {
        static NONE: Group = Group::NONE;
        let page = self.pages.get(id as usize / PAGE_GROUPS);
        page.and_then(|page| page.get(id as usize % PAGE_GROUPS)).unwrap_or(&NONE)
    }

    /// A group that was found, to be changed.
    pub(crate) fn get_mut(&mut self, id: GroupId) -> &mut Group {
        &mut Page::edit(&mut self.pages[id as usize / PAGE_GROUPS]).to_mut()[id as usize % PAGE_GROUPS]
    }

    /// Changes a trajectory, and the counts of its group with it.
    pub(crate) fn change_trajectory(
        &mut self,
        id: GroupId,
        number: u32,
        change: impl FnOnce(&mut Trajectory),
    ) {
        if self.get(id).is_excluded() {
            return; // nobody counts it any more
        }
        let Some(trajectory) = self.trajectories.get_mut(&(id, number)) else { return };
        let (waited, was_out) = (trajectory.is_waiting(), trajectory.is_out());
        change(trajectory);
        let (waits, is_out) = (trajectory.is_waiting(), trajectory.is_out());
        let group = self.get_mut(id);
        group.waiting = group.waiting + u16::from(waits) - u16::from(waited);
        group.out = group.out + u16::from(is_out) - u16::from(was_out);
        group.set_gone(group.gone());
    }

    /// Adds a trajectory that waits for its end, unless it is there.
    pub(crate) fn add_trajectory(&mut self, id: GroupId, number: u32) {
        if self.trajectories.contains_key(&(id, number)) {
            return;
        }
        self.trajectories.insert((id, number), Trajectory::default());
        let group = self.get_mut(id);
        group.members += 1;
        group.waiting += 1;
    }

    /// The trajectories of a group that have not ended, by number.
    pub(crate) fn open_trajectories(&self, id: GroupId) -> Vec<u32> {
        let open = self.trajectories.iter().filter(|((group, _), t)| *group == id && !t.closed);
        let mut numbers: Vec<u32> = open.map(|((_, number), _)| *number).collect();
        numbers.sort_unstable();
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::merged;
    use crate::texts::TextId;

    fn name(text: u32) -> GroupName {
        GroupName { text: TextId(text), ..GroupName::default() }
    }

    fn groups(names: impl IntoIterator<Item = u32>) -> Groups {
        let mut groups = Groups::default();
        names.into_iter().for_each(|text| _ = groups.find_or_create(name(text), 8));
        groups
    }

    fn runs_of(pages: &GroupPages) -> GroupRuns {
        let entries = pages.entries_since(0).collect();
        pages.with_runs(merged(&[], entries, pages.count() as u32, |_| true))
    }

    #[test]
    fn groups_are_found_by_name_wherever_a_checkpoint_has_put_them() {
        const MANY: u32 = 3 * PAGE_GROUPS as u32 + 7;
        let mut live = groups(0..MANY);
        let captured = live.capture();
        live.find_or_create(name(MANY), 8); // while the checkpoint is taken
        live.get_mut(0).ready = 5;
        assert_eq!(captured.pages[0][0].ready, 0, "what was captured has changed");
        let runs = runs_of(&captured);
        assert!(live.are_of(&runs));
        let stored = GroupPages::stored(captured.pages.clone(), runs.runs.clone());
        live.install(runs);
        let mut opened = Groups::of_pages(stored).unwrap();
        assert_eq!((live.len(), opened.len()), (MANY as usize + 1, MANY as usize));
        assert_eq!(opened.find_or_create(name(MANY), 8), (MANY, true));
        for id in 0..=MANY {
            assert_eq!((live.find(&name(id)), opened.find(&name(id))), (Some(id), Some(id)));
            assert_eq!(opened.get(id).name, name(id));
        }
        assert_eq!((live.find(&name(MANY + 1)), *live.get(MANY + 1)), (None, Group::NONE));
    }

    #[test]
    fn runs_are_not_taken_for_those_of_groups_that_were_made_anew() {
        let runs = runs_of(&groups([1, 2, 3]).capture());
        assert!(!groups([3, 2, 1]).are_of(&runs), "the same names have other numbers there");
    }

    #[test]
    fn pages_and_runs_that_no_groups_have_are_refused() {
        let page = |groups: usize| Page::new(Rows::Owned(vec![Group::NONE; groups]));
        let run = |end: u32| Run { end, entries: Page::new(Rows::default()) };
        let cases = [
            (vec![page(0)], vec![]),
            (vec![page(3), page(3)], vec![]),
            (vec![page(PAGE_GROUPS + 1)], vec![]),
            (vec![page(3)], vec![run(4)]),
        ];
        for (pages, runs) in cases {
            let shown = format!("{pages:?} with {runs:?}");
            assert!(Groups::of_pages(GroupPages::stored(pages, runs)).is_none(), "{shown}");
        }
        assert!(Groups::of_pages(GroupPages::stored(vec![page(PAGE_GROUPS), page(3)], vec![])).is_some());
    }
}
