//! What the next claim takes.

use std::ops::RangeInclusive;

use super::micro_batch::MicroBatch;
use super::partition::{Partition, chain};
use super::queue::{Entry, Place};
use super::state::{ConsumedTable, ConsumerState};
use crate::extent::View;
use crate::log::record::StoredValue;
use crate::origin::EXTERNAL_VERSION;
use crate::table::TableState;

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

/// How a claim chooses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    pub(crate) rule: MicroBatch,
    /// Takes only groups that the open step plans.
    pub(crate) planned: bool,
    /// No more will come, so fewer than asked for will do.
    pub(crate) flush: bool,
}

/// How many entries behind the first that does not fit are looked at for one that does.
const LOOK_AHEAD: usize = 64;

impl ConsumerState {
    /// Picks what the next claim takes: the first entries of the queue whose first entry comes first. `versions` gives
    /// the versions that count for each table; rows of peers, where they are taken at all, always do.
    pub(crate) fn select(
        &self,
        tables: &[TableState],
        versions: impl Fn(u32) -> RangeInclusive<u64>,
        choice: &Choice,
    ) -> Option<Selection> {
        let mut queues: Vec<(Place, ConsumedTable, &Partition)> = Vec::with_capacity(self.tables.len());
        for consumed in &self.tables {
            let (table, versions) = (&tables[consumed.table as usize], versions(consumed.table));
            let range = (consumed.table, *versions.start())..=(consumed.table, *versions.end());
            let external = self.partitions.get(&(consumed.table, EXTERNAL_VERSION));
            let own = self.partitions.range(range).map(|(_, partition)| partition);
            for partition in own.chain(external) {
                let first =
                    partition.queue.first(|entry| self.ticket_of(partition, table, consumed.slot, entry));
                queues.extend(first.map(|place| (place, *consumed, partition)));
            }
        }
        queues.sort_by_key(|(place, ..)| *place);
        let whole = queues.into_iter().find_map(|(_, consumed, partition)| {
            let rows =
                self.select_from(&tables[consumed.table as usize], consumed.slot, partition, choice)?;
            Some(Selection { table: consumed.table, rows })
        });
        self.select_early(tables, whole, choice)
    }

    /// Where an entry stands.
    pub(super) fn ticket_of(
        &self,
        partition: &Partition,
        table: &TableState,
        slot: usize,
        entry: Entry,
    ) -> u64 {
        match self.grouping {
            Some(_) => partition.groups.get(entry).ticket,
            None => table.word(slot, entry).ticket_or_claim,
        }
    }

    fn select_from(
        &self,
        table: &TableState,
        slot: usize,
        partition: &Partition,
        choice: &Choice,
    ) -> Option<Vec<u32>> {
        let MicroBatch { rows: most, exact, budget, .. } = choice.rule;
        let column = budget.and_then(|budget| table.schema.index_of(budget.column.as_str()).ok());
        let most_tokens = budget.map_or(u64::MAX, |budget| budget.tokens);
        let (mut rows, mut tokens, mut skipped) = (Vec::new(), 0_u64, 0);
        for entry in partition.queue.iter() {
            let group = self.grouping.map(|_| partition.groups.get(entry));
            if choice.planned && group.is_some_and(|group| !group.is_planned()) {
                continue;
            }
            let count = group.map_or(1, |group| group.ready as usize);
            let before = rows.len();
            match group {
                None if entry >= table.row_count() => continue, // a damaged page may say so
                None => rows.push(entry),
                Some(group) => rows.extend(chain(table, slot, group.head)),
            }
            let length =
                column.map_or(0, |column| rows[before..].iter().map(|row| length(table, column, *row)).sum());
            if before > 0 && (before + count > most || tokens.saturating_add(length) > most_tokens) {
                rows.truncate(before);
                skipped += 1;
                if skipped > LOOK_AHEAD {
                    break;
                }
                continue;
            }
            tokens = tokens.saturating_add(length);
            if rows.len() >= most || tokens >= most_tokens {
                return Some(rows);
            }
        }
        let enough = !rows.is_empty() && (skipped > 0 || choice.flush || !exact);
        enough.then_some(rows)
    }
}

/// How many elements the list in a final cell has; 0 for one that is null or no list.
pub(crate) fn length(table: &TableState, column: usize, row: u32) -> u64 {
    let Some(StoredValue::View(view)) = table.cell(column, row) else { return 0 };
    let width = table.schema.data_columns().get(column).map_or(1, |column| column.data_type.element_bytes());
    (View(view).length() / width.max(1)) as u64
}
