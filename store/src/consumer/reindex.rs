//! Counting a table anew for one consumer, after a rewind has brought rows and versions back.
//!
//! The words say who is held, done and out; what was said of groups as a whole (their sizes, that they were closed) is
//! remembered for versions that are over, as far back as a rewind reaches, and so are the members that were deleted.
//!
//! Groups keep the size that they had. Who was counted in a group came before whoever came when its version was over, so
//! rows are counted in the order in which they were inserted, those that are deleted in their place, and who comes when all
//! places are taken is surplus. It was not always so: a record of a rewind says whether it is to be ([`Recall`]).

use std::collections::{HashMap, HashSet};

use super::declaration::ConsumerKind;
use super::group::{Group, GroupName};
use super::groups::{GroupId, Groups};
use super::partition::{Words, chain};
use super::recall::Recall;
use super::rows::{MEMBER, claim_of, is_closed_out, is_done};
use super::state::{ConsumedTable, ConsumerState, Fallout, LATE};
use crate::table::{Identity, Progress, TableState};

/// What was said of a group of a version that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(super) name: GroupName,
    pub(super) size: u16,
    pub(super) closed: bool,
    /// The trajectories that were closed.
    pub(super) trajectories: Vec<u32>,
}

/// What a table is counted anew for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Back<'a> {
    /// The oldest version that is served again.
    pub(crate) version: u64,
    /// The rows that come before all others.
    pub(crate) first: &'a [u32],
    /// The rows of live claims, with the claims.
    pub(crate) held: &'a HashMap<u32, u64>,
    /// What is known still.
    pub(crate) recall: Recall,
}

impl Groups {
    /// What was said of these groups, where it is not what the declaration says of all.
    fn said(&self, size: u32) -> Vec<Said> {
        let mut trajectories: HashMap<GroupId, Vec<u32>> = HashMap::new();
        for ((id, number), _) in self.trajectories.iter().filter(|(_, trajectory)| trajectory.closed) {
            trajectories.entry(*id).or_default().push(*number);
        }
        let said = self.iter().enumerate().filter_map(|(id, group)| {
            let mut trajectories = trajectories.remove(&(id as GroupId)).unwrap_or_default();
            trajectories.sort_unstable();
            let special = group.is_closed() || u32::from(group.size) != size || !trajectories.is_empty();
            let Group { name, size, .. } = *group;
            special.then(|| Said { name, size, closed: group.is_closed(), trajectories })
        });
        said.collect()
    }
}

impl ConsumerState {
    /// Keeps in mind what was said of the groups of versions that are about to be forgotten.
    pub(super) fn remember(&mut self, versions: impl std::ops::RangeBounds<(u32, u64)>) {
        let Some(grouping) = self.grouping else { return };
        for (&key, partition) in self.partitions.range(versions) {
            let said = partition.groups.said(grouping.size);
            if !said.is_empty() {
                self.said.insert(key, said);
            }
        }
    }

    /// No rewind brings back a version of a table before this one.
    pub(crate) fn forget_said_before(&mut self, table: u32, version: u64) {
        self.said.retain(|&(of, at), _| of != table || at >= version);
        self.deleted.forget(|(of, at)| of == table && at < version);
    }

    /// Makes queues and groups anew for the rows of `version` and of those after it. What is held stays held and what a
    /// task has done stays done; a trainer's rows in `first` are no longer trained on. Ready rows are queued in this order:
    /// `first`, then those on the queue before, then the rest as they were inserted.
    ///
    /// A row of a live claim that was taken from its holder when it was left out is the holder's again.
    pub(crate) fn reindex(&mut self, table: &mut TableState, back: &Back<'_>, fallout: &mut Fallout) {
        let Some((at, _)) = self.consumed(table.id) else { return };
        let &Back { version, first, .. } = back;
        self.tables[at].floor = version;
        let consumed = self.tables[at];
        let queued = self.rows_in_queue_order(table, consumed, version);
        let versions = (table.id, version)..=(table.id, u64::MAX);
        self.remember(versions.clone());
        self.partitions.retain(|key, _| !versions.contains(key));
        let untrained = if self.kind == ConsumerKind::Trainer { first } else { &[] };
        untrained.iter().for_each(|&row| table.set_word(consumed.slot, row, Progress::Waiting, 0));

        self.say_again(consumed, back);
        let rows = rows_since(table, version);
        if back.recall >= Recall::Sizes && self.grouping.is_some() {
            self.count_exactly(&mut Words { table, slot: consumed.slot }, consumed, (&rows, back), fallout);
        } else {
            let words = &mut Words { table, slot: consumed.slot };
            for &row in &rows {
                self.count_again(words, consumed, (row, back), fallout);
            }
        }
        for &row in first.iter().chain(&queued).chain(&rows) {
            self.row_changed(table, row, fallout);
        }
        self.close_again(table, consumed, back, fallout);
    }

    /// Counts rows, and members that are deleted, in the order in which they were inserted: a next attempt with the first.
    fn count_exactly(
        &mut self,
        words: &mut Words<'_>,
        at: ConsumedTable,
        (rows, back): (&[u32], &Back<'_>),
        fallout: &mut Fallout,
    ) {
        let deleted = self.deleted.since((at.table, back.version));
        let deleted = deleted.into_iter().map(|gone| (gone.2.0, Some(gone)));
        let mut all: Vec<_> = rows.iter().map(|&row| (row, None)).chain(deleted).collect();
        all.sort_unstable_by_key(|(row, _)| *row);
        let mut counted = HashSet::new(); // of those that have an attempt before them
        for (row, gone) in all {
            if let Some(gone) = gone {
                self.count_deleted(at, gone);
                continue;
            }
            if counted.contains(&row) {
                continue;
            }
            self.count_again(words, at, (row, back), fallout);
            let is_out = words.table.status(row).is_excluded();
            let latest = is_out.then(|| words.table.find(Identity::of(&words.table.meta(row)))).flatten();
            if let Some(latest) = latest.filter(|latest| *latest != row && counted.insert(*latest)) {
                self.count_again(words, at, (latest, back), fallout);
            }
        }
        self.count_gone_trajectories((at.table, back.version));
    }

    /// Rows on the queues, in their order there.
    fn rows_in_queue_order(&self, table: &TableState, consumed: ConsumedTable, version: u64) -> Vec<u32> {
        let mut entries = Vec::new();
        for (_, partition) in self.partitions.range((table.id, version)..=(table.id, u64::MAX)) {
            for entry in partition.queue.iter() {
                let ticket = self.ticket_of(partition, table, consumed.slot, entry);
                let head = self.grouping.map(|_| partition.groups.get(entry).head);
                entries.push((ticket, entry, head));
            }
        }
        entries.sort_unstable();
        let rows = entries.into_iter().flat_map(|(_, entry, head)| {
            let mut rows: Vec<u32> =
                head.map_or(vec![entry], |head| chain(table, consumed.slot, head).collect());
            rows.sort_unstable();
            rows
        });
        rows.collect()
    }

    /// The groups of which something was said, with the sizes that they had, and with the trajectories that were closed: those are
    /// members whether or not they have rows.
    fn say_again(&mut self, consumed: ConsumedTable, back: &Back<'_>) {
        let said = self.said.range((consumed.table, back.version)..=(consumed.table, u64::MAX));
        let all: Vec<(u64, Said)> =
            said.flat_map(|((_, at), said)| said.iter().map(|said| (*at, said.clone()))).collect();
        for (version, said) in all {
            let Some(id) = self.find_or_create(consumed, version, said.name) else { continue };
            let Some(partition) = self.partition(consumed, version) else { continue };
            partition.groups.get_mut(id).size = said.size;
            if back.recall >= Recall::Sizes {
                said.trajectories.iter().for_each(|number| partition.groups.add_trajectory(id, *number));
            }
        }
    }

    /// Counts a row again as what it is; one that may become ready waits.
    fn count_again(
        &mut self,
        words: &mut Words<'_>,
        consumed: ConsumedTable,
        (row, back): (u32, &Back<'_>),
        fallout: &mut Fallout,
    ) {
        let claim = back.held.get(&row).copied();
        let (meta, status) = (words.table.meta(row), words.table.status(row));
        let (progress, number) = (words.progress(row), words.number(row));
        let never_counted = progress == Progress::Out && number & MEMBER == 0 && self.grouping.is_some();
        if !self.takes(&meta) || never_counted {
            return;
        }
        let stands = match (progress, claim) {
            (Progress::Out, _) if status.is_excluded() => (Progress::Out, number),
            (_, _) if status.is_excluded() => (Progress::Out, MEMBER),
            (Progress::Out, Some(claim)) => (Progress::Leased, claim),
            (Progress::Out, None) if is_closed_out(number, back.recall) => (Progress::Out, number),
            (Progress::Out, None) if is_done(number, back.recall) => (Progress::Done, claim_of(number)),
            (Progress::Leased | Progress::Accumulated | Progress::Done, _) => (progress, number),
            (Progress::Waiting | Progress::Ready | Progress::Out, _) => (Progress::Waiting, 0),
        };
        if self.grouping.is_none() {
            return words.set(row, stands.0, stands.1);
        }
        if stands.0 == Progress::Out && words.table.find(Identity::of(&meta)) != Some(row) {
            return words.set(row, Progress::Out, number & !MEMBER); // its next attempt has its place
        }
        if back.recall >= Recall::Sizes && matches!(stands.0, Progress::Waiting | Progress::Out) {
            self.enter_if_there_is_place(words, consumed, (row, stands), fallout);
        } else {
            self.enter_again(words, consumed, row, stands);
        }
    }

    /// Tells the groups again that they were closed, and lets every group be as its rule wants it.
    fn close_again(
        &mut self,
        table: &mut TableState,
        consumed: ConsumedTable,
        back: &Back<'_>,
        fallout: &mut Fallout,
    ) {
        let version = back.version;
        let range = (consumed.table, version)..=(consumed.table, u64::MAX);
        let said: Vec<_> = self.said.range(range.clone()).map(|(key, said)| (key.1, said.clone())).collect();
        for (version, said) in said {
            for said in said {
                // Where trajectories end by it, it is not known yet which of them were deleted.
                let reason = (back.recall < Recall::Sizes).then_some(LATE);
                self.close_as_before(table, consumed, (version, &said, reason), fallout);
            }
        }
        if back.recall >= Recall::Sizes {
            self.count_gone_trajectories((consumed.table, version));
        }
        self.said.retain(|key, _| !range.contains(key));
        let ids = self.partitions.range(range).flat_map(|((_, version), partition)| {
            let ids = 0..partition.groups.len() as GroupId;
            ids.map(move |id| (*version, id))
        });
        for place in ids.collect::<Vec<_>>() {
            self.settle_again(&mut Words { table, slot: consumed.slot }, place, fallout);
        }
    }
}

/// The rows of a version and of those after it, in the order of their insertion. Chunks of older ones are passed over.
fn rows_since(table: &TableState, version: u64) -> Vec<u32> {
    let rows = table.rows_where(|chunk| chunk.summary.version_max >= version);
    rows.filter(|&row| !table.is_removed(row) && table.meta(row).lane() >= version).collect()
}
