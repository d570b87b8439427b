//! The groups of one partition, found by their names.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use hashbrown::HashTable;
use xxhash_rust::xxh3::Xxh3Builder;

use super::group::{Group, GroupName};

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

/// The groups of one partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    records: Vec<Group>,
    index: HashTable<GroupId>,
    /// By group and number; empty unless members are trajectories.
    pub(crate) trajectories: HashMap<(GroupId, u32), Trajectory>,
    /// Why the groups that are left out are.
    pub(crate) reasons: HashMap<GroupId, Arc<str>>,
}

fn hash(name: &GroupName) -> u64 {
    let mut hasher = Xxh3Builder::new().build_hasher();
    hasher.write(bytemuck::bytes_of(name));
    hasher.finish()
}

impl Groups {
    /// Groups as they were, by number.
    pub(crate) fn from_records(records: Vec<Group>) -> Self {
        let mut index = HashTable::with_capacity(records.len());
        for (id, group) in records.iter().enumerate() {
            index.insert_unique(hash(&group.name), id as GroupId, |&id| hash(&records[id as usize].name));
        }
        Groups { records, index, ..Groups::default() }
    }

    /// Bytes of memory.
    pub(crate) fn heap_bytes(&self) -> usize {
        let index = self.index.allocation_size();
        let trajectories = self.trajectories.capacity() * (size_of::<(GroupId, u32, Trajectory)>() + 1);
        self.records.capacity() * size_of::<Group>() + index + trajectories
    }

    pub(crate) fn records(&self) -> &[Group] {
        &self.records
    }

    pub(crate) fn find(&self, name: &GroupName) -> Option<GroupId> {
        self.index.find(hash(name), |&id| self.records[id as usize].name == *name).copied()
    }

    /// The group of that name, and whether it is new.
    pub(crate) fn find_or_create(&mut self, name: GroupName, size: u32) -> (GroupId, bool) {
        if let Some(id) = self.find(&name) {
            return (id, false);
        }
        let id = self.records.len() as GroupId;
        self.records.push(Group::new(name, size));
        let records = &self.records;
        self.index.insert_unique(hash(&name), id, |&id| hash(&records[id as usize].name));
        (id, true)
    }

    pub(crate) fn get(&self, id: GroupId) -> &Group {
        &self.records[id as usize]
    }

    pub(crate) fn get_mut(&mut self, id: GroupId) -> &mut Group {
        &mut self.records[id as usize]
    }

    /// Changes a trajectory, and the counts of its group with it.
    pub(crate) fn change_trajectory(
        &mut self,
        id: GroupId,
        number: u32,
        change: impl FnOnce(&mut Trajectory),
    ) {
        if self.records[id as usize].is_excluded() {
            return; // nobody counts it any more
        }
        let Some(trajectory) = self.trajectories.get_mut(&(id, number)) else { return };
        let (waited, was_out) = (trajectory.is_waiting(), trajectory.is_out());
        change(trajectory);
        let (waits, is_out) = (trajectory.is_waiting(), trajectory.is_out());
        let group = &mut self.records[id as usize];
        group.waiting = group.waiting + u16::from(waits) - u16::from(waited);
        group.out = group.out + u16::from(is_out) - u16::from(was_out);
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
