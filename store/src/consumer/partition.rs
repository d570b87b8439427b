//! What a consumer holds of one table at one policy version: a ready queue, and groups.

use super::group::{Group, Standing};
use super::grouping::Grouping;
use super::groups::{GroupId, Groups};
use super::queue::Queue;
use crate::table::{Progress, TableState};

/// The queue and the groups of one table and one version. When the version is over, all of it goes at once.
#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) queue: Queue,
    pub(crate) groups: Groups,
}

/// The words of one consumer in one table.
pub(crate) struct Words<'a> {
    pub(crate) table: &'a mut TableState,
    pub(crate) slot: usize,
}

impl Words<'_> {
    pub(crate) fn progress(&self, row: u32) -> Progress {
        self.table.word(self.slot, row).progress
    }

    pub(crate) fn number(&self, row: u32) -> u64 {
        self.table.word(self.slot, row).ticket_or_claim
    }

    pub(crate) fn set(&mut self, row: u32, progress: Progress, number: u64) {
        self.table.set_word(self.slot, row, progress, number);
    }
}

/// The rows of a chain: a group's rows that wait or are ready.
pub(crate) fn chain<'a>(table: &'a TableState, slot: usize, head: u32) -> impl Iterator<Item = u32> + 'a {
    let next = move |row: &u32| (table.word(slot, *row).ticket_or_claim as u32).checked_sub(1);
    let there = |row: &u32| *row < table.row_count(); // a damaged page may say otherwise
    std::iter::successors(head.checked_sub(1), next).take_while(there).take(table.row_count() as usize)
}

impl Partition {
    pub(crate) fn new(by_priority: bool) -> Self {
        Partition { queue: Queue::new(by_priority), groups: Groups::default() }
    }

    /// Puts a row at the head of its group's chain.
    pub(crate) fn link(&mut self, words: &mut Words<'_>, id: GroupId, row: u32, progress: Progress) {
        let group = self.groups.get_mut(id);
        words.set(row, progress, group.head.into());
        group.head = row + 1;
    }

    /// Takes some rows out of their group's chain; their words are the caller's to set. `rows` is sorted.
    pub(crate) fn unlink(&mut self, words: &mut Words<'_>, id: GroupId, rows: &[u32]) {
        let group = self.groups.get_mut(id);
        let kept: Vec<u32> = chain(words.table, words.slot, group.head)
            .filter(|row| rows.binary_search(row).is_err())
            .collect();
        group.head = 0;
        for &row in kept.iter().rev() {
            let progress = words.progress(row);
            if words.number(row) != u64::from(group.head) {
                words.set(row, progress, group.head.into());
            }
            group.head = row + 1;
        }
    }

    /// Takes a group out of the queue.
    pub(crate) fn unqueue(&mut self, id: GroupId) {
        let Group { ticket, ready, .. } = *self.groups.get(id);
        if ticket != 0 {
            self.queue.remove(id, ready, ticket);
            self.groups.get_mut(id).ticket = 0;
        }
    }

    /// Puts a group that is complete into the queue. True when it was not there.
    pub(crate) fn queue(&mut self, id: GroupId, grouping: &Grouping, ticket: u64, priority: u64) -> bool {
        let group = self.groups.get_mut(id);
        if group.ticket != 0 || group.standing(grouping) != Standing::Complete {
            return false;
        }
        group.ticket = ticket;
        let rows = group.ready;
        self.queue.push(id, rows, ticket, priority);
        true
    }
}
