//! How rows move: waiting, ready, leased, accumulated, done, out.

use std::sync::Arc;

use super::condition::{number_of, priority_bits};
use super::declaration::ConsumerKind;
use super::groups::GroupId;
use super::partition::Words;
use super::recall::Recall;
use super::state::{ConsumedTable, ConsumerState, Fallout};
use crate::origin::EXTERNAL;
use crate::table::{Identity, Progress, Purpose, RowMeta, TableState};

/// What [`Progress::Out`] says of a row that was counted; 0 for one that never was.
pub(super) const MEMBER: u64 = 1;
/// What it says of a row that its task has done: the claim stands in the bits above.
const DONE: u64 = 2;
/// What it says beside that of a row that was done when it was out already.
const DONE_SINCE: u64 = 1 << 59;
/// What it says of a row without which its group was closed.
pub(super) const CLOSED_OUT: u64 = 1 << 60;

/// Whether [`Progress::Out`] says by `number` that the row's task has done it, for a rewind that knows so much.
pub(super) fn is_done(number: u64, recall: Recall) -> bool {
    number & DONE != 0 && (number & DONE_SINCE == 0 || recall >= Recall::Since)
}

/// Whether it says that the row's group was closed without it, for a rewind that knows so much.
pub(super) fn is_closed_out(number: u64, recall: Recall) -> bool {
    number & CLOSED_OUT != 0 && recall >= Recall::Since
}

/// The claim by which it was done.
pub(super) fn claim_of(number: u64) -> u64 {
    (number & !(CLOSED_OUT | DONE_SINCE)) >> 2
}

/// The number of a row that leaves: what a task has done stays known, should the row come back.
pub(crate) fn number_out(progress: Progress, number: u64) -> u64 {
    if progress == Progress::Done { number << 2 | DONE | MEMBER } else { MEMBER }
}

impl ConsumerState {
    /// Takes in the rows that were there before the consumer was.
    pub(crate) fn index(&mut self, table: &mut TableState, fallout: &mut Fallout) {
        for row in 0..table.row_count() {
            if table.is_removed(row) {
                continue;
            }
            let excluded = table.status(row).is_excluded();
            if excluded && table.find(Identity::of(&table.meta(row))) != Some(row) {
                self.set_word(table, row, Progress::Out, 0); // its next attempt has its place
                continue;
            }
            self.row_inserted(table, row, fallout);
            if excluded {
                self.row_excluded(table, row, "excluded", fallout);
            }
        }
    }

    fn set_word(&self, table: &mut TableState, row: u32, progress: Progress, number: u64) {
        if let Some((_, consumed)) = self.consumed(table.id) {
            table.set_word(consumed.slot, row, progress, number);
        }
    }

    /// A row has come, with or without cells.
    pub(crate) fn row_inserted(&mut self, table: &mut TableState, row: u32, fallout: &mut Fallout) {
        let Some((_, consumed)) = self.consumed(table.id) else { return };
        let meta = table.meta(row);
        if !self.takes(&meta) {
            if self.kind == ConsumerKind::Trainer && meta.is_external() && meta.purpose() == Purpose::Train {
                fallout.leave_out([row], &EXTERNAL.into());
            }
            return table.set_word(consumed.slot, row, Progress::Out, 0);
        }
        if self.grouping.is_none() {
            return self.row_changed(table, row, fallout);
        }
        if let Some(id) = self.group_of(consumed, &meta, true) {
            let mut words = Words { table, slot: consumed.slot };
            if self.enter(&mut words, consumed, id, row, fallout) {
                self.row_changed(table, row, fallout);
            }
        }
    }

    /// A row has come, or one of its cells has turned final.
    pub(crate) fn row_changed(&mut self, table: &mut TableState, row: u32, fallout: &mut Fallout) {
        let Some((at, consumed)) = self.consumed(table.id) else { return };
        let waits = table.word(consumed.slot, row).progress == Progress::Waiting;
        let status = table.status(row);
        if !waits || status.is_excluded() || consumed.required & !status.finals != 0 {
            return;
        }
        if self.waits_for_version(table, row) {
            return;
        }
        if !self.conditions.iter().all(|condition| condition.passes(table, at, row)) {
            return self.leave(table, row, "filtered", false, fallout);
        }
        if self.grouping.is_none() {
            return self.make_ready(table, consumed, row, fallout);
        }
        let mut words = Words { table, slot: consumed.slot };
        let link = words.number(row);
        words.set(row, Progress::Ready, link);
        self.member_turns_ready(&mut words, consumed, row, fallout);
    }

    /// Puts a row that is taken singly at the end of the queue.
    fn make_ready(&mut self, table: &mut TableState, at: ConsumedTable, row: u32, fallout: &mut Fallout) {
        let (ticket, priority) = (self.next_ticket, self.priority_of(table, row));
        let version = table.meta(row).lane();
        let Some(partition) = self.partition(at, version) else {
            return table.set_word(at.slot, row, Progress::Ready, 0);
        };
        partition.queue.push(row, 1, ticket, priority);
        self.next_ticket += 1;
        table.set_word(at.slot, row, Progress::Ready, ticket);
        fallout.wake = true;
    }

    pub(super) fn priority_of(&self, table: &TableState, row: u32) -> u64 {
        let at = self.consumed(table.id).map_or(0, |(at, _)| at);
        self.priority.get(at).map_or(0, |column| priority_bits(number_of(table, usize::from(*column), row)))
    }

    /// Rows were handed to the holder of `claim`.
    pub(crate) fn rows_leased(&mut self, table: &mut TableState, rows: &[u32], claim: u64) {
        let Some((_, consumed)) = self.consumed(table.id) else { return };
        if self.grouping.is_some() {
            return self.members_leased(table, consumed, rows, claim);
        }
        for &row in rows {
            let (ticket, version) = (table.word(consumed.slot, row).ticket_or_claim, table.meta(row).lane());
            if let Some(partition) = self.partition(consumed, version) {
                partition.queue.remove(row, 1, ticket);
            }
            table.set_word(consumed.slot, row, Progress::Leased, claim);
        }
    }

    /// A held row moves on: from leased to accumulated, or to done.
    pub(crate) fn row_advanced(&mut self, table: &mut TableState, row: u32, claim: u64, to: Progress) {
        let Some((_, consumed)) = self.consumed(table.id) else { return };
        let word = table.word(consumed.slot, row);
        if word.is_held() && word.ticket_or_claim == claim {
            return table.set_word(consumed.slot, row, to, claim);
        }
        // It was left out while it was held. What a task has done stays known, should the row come back.
        let out =
            word.progress == Progress::Out && word.ticket_or_claim & MEMBER != 0 && !table.is_removed(row);
        if out && to == Progress::Done && self.kind == ConsumerKind::Task {
            let number = number_out(Progress::Done, claim) | DONE_SINCE;
            table.set_word(consumed.slot, row, Progress::Out, number);
        }
    }

    /// A held row is claimable again.
    pub(crate) fn row_returned(
        &mut self,
        table: &mut TableState,
        row: u32,
        claim: u64,
        fallout: &mut Fallout,
    ) {
        let Some((_, consumed)) = self.consumed(table.id) else { return };
        let word = table.word(consumed.slot, row);
        if !word.is_held() || word.ticket_or_claim != claim {
            return;
        }
        if self.grouping.is_none() {
            self.make_ready(table, consumed, row, fallout);
        } else {
            self.member_returned(&mut Words { table, slot: consumed.slot }, consumed, row, fallout);
        }
        self.hold_back(table, row);
    }

    /// A row is left out for good.
    pub(crate) fn row_excluded(
        &mut self,
        table: &mut TableState,
        row: u32,
        reason: &str,
        fallout: &mut Fallout,
    ) {
        self.leave(table, row, reason, false, fallout);
    }

    /// A row is about to be removed from its table: whoever still waits for it waits no longer. No rewind brings back a
    /// version before `back_to`.
    pub(crate) fn row_removed(
        &mut self,
        table: &mut TableState,
        row: u32,
        (reason, back_to): (&str, u64),
        fallout: &mut Fallout,
    ) {
        let Some((_, consumed)) = self.consumed(table.id) else { return };
        let was_member = self.is_member(table, consumed, row);
        if table.word(consumed.slot, row).progress != Progress::Done {
            self.leave(table, row, reason, false, fallout);
        }
        if was_member {
            self.member_deleted(&mut Words { table, slot: consumed.slot }, row, back_to, fallout);
        }
    }

    /// Whether a row was counted in a group, and its place is not another attempt's.
    fn is_member(&self, table: &TableState, at: ConsumedTable, row: u32) -> bool {
        let word = table.word(at.slot, row);
        let counted = word.progress != Progress::Out || word.ticket_or_claim & MEMBER != 0;
        self.grouping.is_some() && counted && self.takes(&table.meta(row))
    }

    /// A row is left out because its next attempt is about to be inserted, which takes its place in the group.
    pub(crate) fn row_superseded(&mut self, table: &mut TableState, row: u32, fallout: &mut Fallout) {
        self.leave(table, row, "", true, fallout);
    }

    fn leave(
        &mut self,
        table: &mut TableState,
        row: u32,
        reason: &str,
        superseded: bool,
        fallout: &mut Fallout,
    ) {
        let Some((_, consumed)) = self.consumed(table.id) else { return };
        let word = table.word(consumed.slot, row);
        let counted = word.progress != Progress::Out || word.ticket_or_claim & MEMBER != 0;
        if !counted || (word.progress == Progress::Out && !superseded) {
            return;
        }
        if self.grouping.is_some() {
            let mut words = Words { table, slot: consumed.slot };
            return self.member_left(
                &mut words,
                consumed,
                row,
                superseded.then_some(()).map_or(Some(reason), |()| None),
                fallout,
            );
        }
        if word.progress == Progress::Ready
            && let Some(partition) = self.partition(consumed, table.meta(row).lane())
        {
            partition.queue.remove(row, 1, word.ticket_or_claim);
        }
        table.set_word(consumed.slot, row, Progress::Out, number_out(word.progress, word.ticket_or_claim));
    }

    /// The group of a row; created where it is wanted and the version is not over.
    pub(super) fn group_of(&mut self, at: ConsumedTable, meta: &RowMeta, create: bool) -> Option<GroupId> {
        let grouping = self.grouping?;
        let name = grouping.by.name(meta);
        if create {
            return self.find_or_create(at, meta.lane(), name);
        }
        self.partitions.get(&(at.table, meta.lane()))?.groups.find(&name)
    }
}

impl Fallout {
    /// Says that rows are to be left out for good.
    pub(super) fn leave_out(&mut self, rows: impl IntoIterator<Item = u32>, reason: &Arc<str>) {
        self.left_out.extend(rows.into_iter().map(|row| (row, reason.clone())));
    }
}
