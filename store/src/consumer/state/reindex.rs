//! Counting a table anew for one consumer, after a rewind has brought rows back.

use std::collections::HashMap;

use super::{ConsumerState, GroupKey};
use crate::consumer::ConsumerKind;
use crate::consumer::queue::Entry;
use crate::table::{Identity, Progress, TableState};

impl ConsumerState {
    /// Makes queues and groups anew for the rows of `version` and of those after it. What is held stays held and what a
    /// task has done stays done; a trainer's rows in `first` are no longer trained on. Ready rows are queued in this order: `first`, then those on the queue before, then the
    /// rest as they were inserted.
    ///
    /// `held` are the rows of live claims: one that was taken from its holder when it was left out is the holder's again.
    pub(crate) fn reindex(
        &mut self,
        table: &mut TableState,
        version: u64,
        first: &[u32],
        held: &HashMap<u32, u64>,
    ) {
        let Some(slot) = self.consumed(table).map(|consumed| consumed.slot) else { return };
        let queued = self.rows_in_queue_order(table.id, version);
        self.queues.retain(|(of, at), _| *of != table.id || *at < version);
        self.groups.retain(|key, _| key.table != table.id || key.version < version);
        let rows: Vec<u32> =
            (0..table.row_count()).filter(|&row| table.meta(row).policy_version >= version).collect();
        let untrained = if self.kind == ConsumerKind::Trainer { first } else { &[] };
        for &row in untrained {
            table.set_word(slot, row, Progress::Waiting, 0);
        }
        for &row in &rows {
            if let Some(&claim) = held.get(&row).filter(|_| !table.status(row).is_excluded())
                && table.word(slot, row).progress == Progress::Out
            {
                table.set_word(slot, row, Progress::Leased, claim);
            }
            self.settle(table, slot, row);
        }
        let over: Vec<GroupKey> = self.groups.keys().filter(|key| key.table == table.id).copied().collect();
        over.iter().for_each(|key| self.forget_if_over(key));
        for &row in first.iter().chain(&queued).chain(&rows) {
            self.row_changed(table, row);
        }
    }

    /// Rows on the queues, in their order there.
    fn rows_in_queue_order(&self, table: u32, version: u64) -> Vec<u32> {
        let mut entries: Vec<_> = self
            .queues
            .range((table, version)..=(table, u64::MAX))
            .flat_map(|(_, queue)| queue.places())
            .collect();
        entries.sort_by_key(|(ticket, _)| *ticket);
        let mut rows = Vec::new();
        for (_, entry) in entries {
            match entry {
                Entry::Row(row) => rows.push(*row),
                Entry::Group(key) => {
                    rows.extend(self.groups.get(key).into_iter().flat_map(|group| &group.ready));
                }
            }
        }
        rows
    }

    /// Counts a row that is held, done or out; one that may become ready waits.
    fn settle(&mut self, table: &mut TableState, slot: usize, row: u32) {
        if !self.takes(table, row) {
            return;
        }
        let progress = table.word(slot, row).progress;
        let key = self.key_of(table, row);
        let excluded = table.status(row).is_excluded();
        match progress {
            _ if excluded => {
                let latest = table.find(Identity::of(&table.meta(row))) == Some(row);
                if progress != Progress::Done {
                    table.set_word(slot, row, Progress::Out, 0);
                }
                self.count(key, |group| group.out += u32::from(latest));
            }
            Progress::Leased | Progress::Accumulated => self.count(key, |group| group.held += 1),
            Progress::Done => self.count(key, |group| group.done += 1),
            Progress::Waiting | Progress::Ready | Progress::Out => {
                table.set_word(slot, row, Progress::Waiting, 0);
            }
        }
    }

    fn count(&mut self, key: Option<GroupKey>, change: impl FnOnce(&mut crate::consumer::group::Group)) {
        if let Some(key) = key {
            change(self.group_mut(&key));
        }
    }
}
