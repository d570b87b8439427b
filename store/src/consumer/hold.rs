//! Rows that have all they need and wait all the same: for a version that made a part of them.

use super::declaration::ConsumerKind;
use super::grouping::Member;
use super::partition::Words;
use super::state::{ConsumerState, Fallout};
use crate::table::{Progress, TableState};

impl ConsumerState {
    /// Whether a row is not to be trained on before its policy has reached another version.
    pub(super) fn waits_for_version(&self, table: &TableState, row: u32) -> bool {
        self.kind == ConsumerKind::Trainer && table.is_ahead(row)
    }

    /// A row was told to have been made by a version that is still to come: it is ready no more. One that is held goes
    /// on, and waits when it comes back.
    pub(crate) fn hold_back(&mut self, table: &mut TableState, row: u32) {
        let Some((_, consumed)) = self.consumed(table.id) else { return };
        let word = table.word(consumed.slot, row);
        if word.progress != Progress::Ready || !self.waits_for_version(table, row) {
            return;
        }
        let meta = table.meta(row);
        let version = meta.lane();
        if self.grouping.is_none() {
            if let Some(partition) = self.partition(consumed, version) {
                partition.queue.remove(row, 1, word.ticket_or_claim);
            }
            return table.set_word(consumed.slot, row, Progress::Waiting, 0);
        }
        let Some(id) = self.group_of(consumed, &meta, false) else { return };
        let mut words = Words { table, slot: consumed.slot };
        let fallout = &mut Fallout::default(); // a group that waits again means nothing to anybody else
        self.change_group(&mut words, (version, id), None, fallout, |partition, words, grouping| {
            words.set(row, Progress::Waiting, word.ticket_or_claim);
            partition.groups.get_mut(id).ready -= 1;
            match grouping.member {
                Member::Row => partition.groups.get_mut(id).waiting += 1,
                Member::Trajectory(_) => {
                    partition
                        .groups
                        .change_trajectory(id, meta.trajectory, |trajectory| trajectory.waiting += 1);
                }
            }
        });
    }
}
