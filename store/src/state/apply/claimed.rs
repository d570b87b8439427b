//! Claims that are given, and that end.

use super::super::{Effects, State};
use crate::claim::{ClaimProgress, ClaimState};
use crate::clock::Timestamp;
use crate::log::record::*;
use crate::step::StepBatch;
use crate::table::Progress;

impl State {
    pub(super) fn claimed(&mut self, record: ClaimRecord, now: Timestamp) -> Result<(), String> {
        self.check_claimed(&record)?;
        let consumer = record.consumer as usize;
        let table = &mut self.tables[record.table as usize];
        self.consumers[consumer].rows_leased(table, &record.rows, record.claim);
        if let Some(membership) = self.membership_mut(record.step) {
            membership.claims.push(record.claim);
            membership.batches.push(StepBatch {
                claim: record.claim,
                consumer,
                table: record.table,
                sequence: record.sequence_in_step,
            });
            membership.planned.iter_mut().filter(|p| p.consumer == consumer).for_each(|planned| {
                planned.claims += 1;
                planned.held += record.rows.len() as u64;
            });
        }
        let owner = self.texts.intern(&record.owner);
        let claim = ClaimState {
            consumer,
            table: record.table,
            row_count: record.rows.len() as u32,
            rows: record.rows,
            owner,
            incarnation: self.incarnation,
            granted_at: now,
            deadline: Timestamp(record.deadline),
            accumulated_at: None,
            ended_at: None,
            step: record.step,
            sequence_in_step: record.sequence_in_step,
            gang: record.gang,
            ranks_done: Vec::new(),
            progress: ClaimProgress::Leased,
        };
        self.claims.grant(record.claim, claim);
        Ok(())
    }

    /// A claim has the next number, and rows of one of its consumer's tables that are ready for it.
    pub(super) fn check_claimed(&self, record: &ClaimRecord) -> Result<(), String> {
        let refuse = |why: String| Err(format!("claim {} {why}", record.claim));
        if record.claim != self.claims.next_number() {
            return refuse(format!("stands where {} should", self.claims.next_number()));
        }
        let consumer = self.consumers.get(record.consumer as usize);
        let consumed = consumer.and_then(|c| c.tables.iter().find(|consumed| consumed.table == record.table));
        let (Some(consumed), Some(table)) = (consumed, self.tables.get(record.table as usize)) else {
            return refuse("names a consumer that does not exist or does not read its table".to_owned());
        };
        let ready = |&row: &u32| {
            row < table.row_count() && table.word(consumed.slot, row).progress == Progress::Ready
        };
        match record.rows.iter().find(|row| !ready(row)) {
            Some(row) => refuse(format!("names row {row}, which is not ready")),
            None => Ok(()),
        }
    }

    pub(super) fn return_claim(
        &mut self,
        number: u64,
        to: ClaimProgress,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let Some(claim) = self.claims.get(number).filter(|claim| claim.progress.is_live()) else { return };
        let (consumer, table, rows, step) = (claim.consumer, claim.table, claim.rows.clone(), claim.step);
        self.claims.advance(number, to, now);
        // One that outlived its step is not of another that has its number.
        let membership = self.membership_mut(step).filter(|membership| membership.has_claim(number));
        let planned = membership.into_iter().flat_map(|membership| &mut membership.planned);
        for planned in planned.filter(|planned| planned.consumer == consumer) {
            planned.held = planned.held.saturating_sub(rows.len() as u64);
        }
        self.change_consumer(consumer, table, effects, |consumer, table, fallout| {
            rows.iter().for_each(|&row| consumer.row_returned(table, row, number, fallout));
        });
        effects.wake.push(consumer);
    }

    /// Moves a live claim and its rows on. Gives its consumer.
    pub(super) fn advance_claim(
        &mut self,
        number: u64,
        to: ClaimProgress,
        now: Timestamp,
    ) -> Result<usize, String> {
        let claim = self.claims.get(number).filter(|claim| claim.progress.is_live());
        let claim = claim.ok_or_else(|| format!("claim {number} is not live"))?;
        let (consumer, table, rows) = (claim.consumer, claim.table as usize, claim.rows.clone());
        let progress = if to == ClaimProgress::Accumulated { Progress::Accumulated } else { Progress::Done };
        for row in rows {
            self.consumers[consumer].row_advanced(&mut self.tables[table], row, number, progress);
        }
        self.claims.advance(number, to, now);
        Ok(consumer)
    }
}
