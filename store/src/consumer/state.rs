//! A consumer as the engine holds it: which of its rows are ready, and in what order.
//!
//! Every change of a row's [`Progress`] for this consumer happens here, so the queue, the groups and the words in the
//! table always agree.

mod reindex;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::declaration::{ConsumerKind, GroupBy, MicroBatch};
use super::group::{Group, GroupKey, GroupName};
use super::queue::{Entry, Queue};
use crate::table::{Identity, Progress, Purpose, TableState};

/// One consumer.
#[derive(Debug)]
pub(crate) struct ConsumerState {
    pub(crate) name: Arc<str>,
    pub(crate) kind: ConsumerKind,
    pub(crate) tables: Vec<ConsumedTable>,
    pub(crate) group: Option<(GroupBy, u32)>,
    pub(super) queues: BTreeMap<(u32, u64), Queue>,
    pub(super) groups: HashMap<GroupKey, Group>,
    pub(super) next_ticket: u64,
}

/// A consumer's view of one of its tables.
#[derive(Clone, Debug)]
pub(crate) struct ConsumedTable {
    pub(crate) table: u32,
    /// Columns that must be final, a bit each.
    pub(crate) required: u64,
    /// Which of the table's consumers this is.
    pub(crate) slot: usize,
}

/// Rows that can be claimed together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selection {
    pub(crate) table: u32,
    pub(crate) rows: Vec<u32>,
}

/// Why nothing can be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// Not enough is ready; more may come.
    NotReady,
    /// All that was planned has been handed out.
    Complete,
}

impl ConsumerState {
    pub(crate) fn new(
        name: Arc<str>,
        kind: ConsumerKind,
        tables: Vec<ConsumedTable>,
        group: Option<(GroupBy, u32)>,
    ) -> Self {
        let (queues, groups) = (BTreeMap::new(), HashMap::new());
        ConsumerState { name, kind, tables, group, queues, groups, next_ticket: 0 }
    }

    fn consumed(&self, table: &TableState) -> Option<&ConsumedTable> {
        self.tables.iter().find(|consumed| consumed.table == table.id)
    }

    fn slot(&self, table: &TableState) -> usize {
        self.consumed(table).map_or(0, |consumed| consumed.slot)
    }

    pub(super) fn key_of(&self, table: &TableState, row: u32) -> Option<GroupKey> {
        let (by, _) = self.group?;
        let meta = table.meta(row);
        Some(GroupKey { table: table.id, version: meta.policy_version, name: by.name(&meta) })
    }

    /// Takes in the rows that were there before the consumer was.
    pub(crate) fn index(&mut self, table: &mut TableState) {
        for row in 0..table.row_count() {
            if table.is_removed(row) {
                continue;
            }
            if table.status(row).is_excluded() {
                let latest = table.find(Identity::of(&table.meta(row))) == Some(row);
                self.row_excluded(table, row, !latest);
            } else {
                self.row_changed(table, row);
            }
        }
    }

    /// A row has come, or one of its cells has turned final. True when something became claimable.
    pub(crate) fn row_changed(&mut self, table: &mut TableState, row: u32) -> bool {
        let Some(consumed) = self.consumed(table).cloned() else { return false };
        if table.word(consumed.slot, row).progress != Progress::Waiting || table.status(row).is_excluded() {
            return false;
        }
        if !self.takes(table, row) {
            table.set_word(consumed.slot, row, Progress::Out, 0);
            return false;
        }
        if consumed.required & !table.status(row).finals != 0 {
            return false;
        }
        self.make_ready(table, row)
    }

    fn make_ready(&mut self, table: &mut TableState, row: u32) -> bool {
        let slot = self.slot(table);
        let ticket = self.next_ticket;
        let Some(key) = self.key_of(table, row) else {
            self.next_ticket += 1;
            table.set_word(slot, row, Progress::Ready, ticket);
            let version = table.meta(row).policy_version;
            self.queues.entry((table.id, version)).or_default().insert(ticket, Entry::Row(row), 1);
            return true;
        };
        table.set_word(slot, row, Progress::Ready, 0);
        self.unqueue(&key); // a group that is queued already is queued anew, with this member
        self.group_mut(&key).ready.push(row);
        self.queue_if_complete(&key)
    }

    pub(super) fn group_mut(&mut self, key: &GroupKey) -> &mut Group {
        let size = self.members();
        self.groups.entry(*key).or_insert_with(|| Group { size, ..Group::default() })
    }

    /// How many members a group has.
    pub(crate) fn members(&self) -> u32 {
        self.group.map_or(1, |(_, members)| members)
    }

    /// A trainer takes nothing but train rows.
    pub(super) fn takes(&self, table: &TableState, row: u32) -> bool {
        self.kind == ConsumerKind::Task || table.meta(row).purpose() == Purpose::Train
    }

    fn queue_if_complete(&mut self, key: &GroupKey) -> bool {
        let Some(group) = self.groups.get_mut(key) else { return false };
        if group.ticket.is_some() || !group.is_complete() {
            return false;
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        group.ticket = Some(ticket);
        let rows = group.ready.len() as u32;
        self.queues.entry((key.table, key.version)).or_default().insert(ticket, Entry::Group(*key), rows);
        true
    }

    fn unqueue(&mut self, key: &GroupKey) {
        let Some(ticket) = self.groups.get_mut(key).and_then(|group| group.ticket.take()) else { return };
        self.unqueue_ticket(key.table, key.version, ticket);
    }

    fn unqueue_ticket(&mut self, table: u32, version: u64, ticket: u64) {
        if let Some(queue) = self.queues.get_mut(&(table, version)) {
            queue.remove(ticket);
            if queue.is_empty() {
                self.queues.remove(&(table, version));
            }
        }
    }

    /// A row was handed to the holder of `claim`.
    pub(crate) fn row_leased(&mut self, table: &mut TableState, row: u32, claim: u64) {
        let slot = self.slot(table);
        let word = table.word(slot, row);
        if let Some(key) = self.key_of(table, row) {
            self.unqueue(&key);
            let group = self.group_mut(&key);
            group.ready.retain(|&member| member != row);
            group.held += 1;
        } else {
            self.unqueue_ticket(table.id, table.meta(row).policy_version, word.ticket_or_claim);
        }
        table.set_word(slot, row, Progress::Leased, claim);
    }

    /// A held row moves on: from leased to accumulated, or to done.
    pub(crate) fn row_advanced(&mut self, table: &mut TableState, row: u32, claim: u64, to: Progress) {
        let slot = self.slot(table);
        let word = table.word(slot, row);
        let held = matches!(word.progress, Progress::Leased | Progress::Accumulated);
        if !held || word.ticket_or_claim != claim {
            return; // left out while it was held
        }
        table.set_word(slot, row, to, claim);
        if to != Progress::Done {
            return;
        }
        let Some(key) = self.key_of(table, row) else { return };
        let group = self.group_mut(&key);
        group.held = group.held.saturating_sub(1);
        group.done += 1;
        self.forget_if_over(&key);
    }

    /// A task's group that is over is forgotten; a trainer's is kept until its version is over, for steps count it.
    pub(super) fn forget_if_over(&mut self, key: &GroupKey) {
        if self.kind == ConsumerKind::Task && self.groups.get(key).is_some_and(Group::is_over) {
            self.groups.remove(key);
        }
    }

    /// A group that was over and forgotten waits for one member again.
    fn reopen(&mut self, key: &GroupKey) {
        let group = self.group_mut(key);
        group.done = group.size.saturating_sub(1);
    }

    /// A held row is claimable again. True when something became claimable.
    pub(crate) fn row_returned(&mut self, table: &mut TableState, row: u32, claim: u64) -> bool {
        let slot = self.slot(table);
        let word = table.word(slot, row);
        let held = matches!(word.progress, Progress::Leased | Progress::Accumulated);
        if !held || word.ticket_or_claim != claim {
            return false;
        }
        if let Some(key) = self.key_of(table, row) {
            let group = self.group_mut(&key);
            group.held = group.held.saturating_sub(1);
        }
        self.make_ready(table, row)
    }

    /// A row is left out for good. `superseded` says that its next attempt takes its place in the group. True when
    /// something became claimable.
    pub(crate) fn row_excluded(&mut self, table: &mut TableState, row: u32, superseded: bool) -> bool {
        let slot = self.slot(table);
        let word = table.word(slot, row);
        if word.progress != Progress::Done {
            table.set_word(slot, row, Progress::Out, 0); // what a task has done stays done, should the row come back
        }
        if word.progress == Progress::Out || !self.takes(table, row) {
            return false;
        }
        let Some(key) = self.key_of(table, row) else {
            if word.progress == Progress::Ready {
                self.unqueue_ticket(table.id, table.meta(row).policy_version, word.ticket_or_claim);
            }
            return false;
        };
        if word.progress == Progress::Done && !self.groups.contains_key(&key) {
            if superseded {
                self.reopen(&key);
            }
            return false;
        }
        self.unqueue(&key);
        let group = self.group_mut(&key);
        match word.progress {
            Progress::Ready => group.ready.retain(|&member| member != row),
            Progress::Leased | Progress::Accumulated => group.held = group.held.saturating_sub(1),
            Progress::Done => group.done = group.done.saturating_sub(1),
            Progress::Waiting | Progress::Out => {}
        }
        group.out += u32::from(!superseded);
        self.forget_if_over(&key);
        self.queue_if_complete(&key)
    }

    /// A row that had been left out gets another attempt: its group waits for it again.
    pub(crate) fn row_comes_back(&mut self, table: &TableState, row: u32) {
        let Some(key) = self.key_of(table, row).filter(|_| self.takes(table, row)) else { return };
        self.unqueue(&key);
        match self.groups.get_mut(&key) {
            Some(group) if group.out > 0 => group.out -= 1,
            Some(group) => group.done = group.done.saturating_sub(1),
            None => self.reopen(&key),
        }
        self.queue_if_complete(&key);
    }

    /// Forgets the groups of versions that are over.
    pub(crate) fn forget_before(&mut self, table: u32, version: u64) {
        self.groups.retain(|key, _| key.table != table || key.version >= version);
    }

    /// Rows on the queues of a table, of every version.
    pub(crate) fn queued_rows(&self, table: u32) -> u64 {
        self.queues.range((table, 0)..=(table, u64::MAX)).map(|(_, queue)| queue.rows() as u64).sum()
    }

    /// Rows on the ready queue of a table at a version.
    pub(crate) fn ready_rows(&self, table: u32, version: u64) -> usize {
        self.queues.get(&(table, version)).map_or(0, Queue::rows)
    }

    /// Picks what the next claim takes: the oldest entries of the table whose oldest entry is oldest. `versions` gives
    /// the version that counts for each table. `flush` says that no more rows will come, so fewer than asked for will
    /// do; `planned` limits the choice to named groups.
    pub(crate) fn select(
        &self,
        versions: impl Fn(u32) -> u64,
        rule: MicroBatch,
        planned: Option<&HashSet<GroupName>>,
        flush: bool,
    ) -> Option<Selection> {
        let mut queues: Vec<(u32, &Queue)> = self
            .tables
            .iter()
            .filter_map(|c| Some((c.table, self.queues.get(&(c.table, versions(c.table)))?)))
            .collect();
        queues.sort_by_key(|(_, queue)| queue.first_ticket());
        queues.into_iter().find_map(|(table, queue)| self.select_from(table, queue, rule, planned, flush))
    }

    fn select_from(
        &self,
        table: u32,
        queue: &Queue,
        rule: MicroBatch,
        planned: Option<&HashSet<GroupName>>,
        flush: bool,
    ) -> Option<Selection> {
        let mut rows = Vec::new();
        let mut full = false;
        for (entry, count) in queue.iter() {
            if let (Entry::Group(key), Some(planned)) = (entry, planned)
                && !planned.contains(&key.name)
            {
                continue;
            }
            if !rows.is_empty() && rows.len() + count > rule.rows {
                full = true;
                continue;
            }
            match entry {
                Entry::Row(row) => rows.push(*row),
                Entry::Group(key) => {
                    rows.extend(self.groups.get(key).into_iter().flat_map(|group| &group.ready));
                }
            }
            full |= rows.len() >= rule.rows;
            if rows.len() >= rule.rows {
                break;
            }
        }
        let enough = !rows.is_empty() && (full || flush || !rule.exact);
        enough.then_some(Selection { table, rows })
    }

    /// How many members of a group are still to be handed out, and how many of those are ready. `None` while no member
    /// is known.
    pub(crate) fn outstanding(&self, table: u32, version: u64, name: GroupName) -> Option<(usize, usize)> {
        self.groups.get(&GroupKey { table, version, name }).map(Group::outstanding)
    }
}
