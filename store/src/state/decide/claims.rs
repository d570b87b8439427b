//! What a consumer's next claim takes, and how the consumer stands until then.

use crate::claim::ClaimState;
use crate::clock::Timestamp;
use crate::consumer::{Choice, ConsumerKind, MicroBatch, Readiness, Selection, Shortage};
use crate::error::{Cause, Result};
use crate::sample_id::SampleKey;
use crate::state::State;
use crate::step::{Begun, Planned};
use crate::texts::TextId;

impl State {
    /// Decides the next claim of a consumer, in a step or outside of one.
    pub(crate) fn decide_claim(
        &self,
        consumer: usize,
        rule: MicroBatch,
        step: Option<u64>,
    ) -> std::result::Result<(Selection, u32), Shortage> {
        let Some(number) = step else {
            return Ok((self.select(consumer, Choice { rule, planned: false, flush: false })?, 0));
        };
        let planned = self.plan_of(number, consumer).ok_or(Shortage::Complete)?;
        let (open, ready) = self.outstanding(planned);
        if open == 0 {
            return Err(Shortage::Complete);
        }
        let by_groups = !planned.groups.is_empty();
        let rule = if by_groups { rule } else { MicroBatch { rows: rule.rows.min(open), ..rule } };
        let choice = Choice { rule, planned: by_groups, flush: ready >= open };
        Ok((self.select(consumer, choice)?, planned.claims))
    }

    /// What a claim takes, no more of it than the consumer's limiter allows.
    fn select(&self, consumer: usize, choice: Choice) -> std::result::Result<Selection, Shortage> {
        let (state, allowed) = (&self.consumers[consumer], self.may_claim(consumer));
        let versions = |table| self.claimable_versions(consumer, table);
        let select = |choice| state.select(&self.tables, versions, &choice).ok_or(Shortage::NotReady);
        let mut selection = select(choice)?;
        if selection.rows.len() > allowed && allowed > 0 && !choice.rule.exact {
            let rule = MicroBatch { rows: allowed, ..choice.rule };
            selection = select(Choice { rule, ..choice })?;
        }
        let enough = selection.rows.len() <= allowed;
        if enough { Ok(self.in_sample_order(selection)) } else { Err(Shortage::NotReady) }
    }

    /// What a step takes of a consumer; nothing where it plans nothing.
    fn plan_of(&self, step: u64, consumer: usize) -> Option<&Planned> {
        self.membership(step).planned.iter().find(|planned| planned.consumer == consumer)
    }

    /// Whether a step has nothing left to hand out to a consumer.
    pub(crate) fn is_handed_out(&self, step: u64, consumer: usize) -> bool {
        self.plan_of(step, consumer).is_none_or(|planned| self.outstanding(planned).0 == 0)
    }

    /// Rows that a step has yet to hand out to a consumer, and how many of those are ready.
    fn outstanding(&self, planned: &Planned) -> (usize, usize) {
        let consumer = &self.consumers[planned.consumer];
        if !planned.groups.is_empty() {
            return consumer.outstanding();
        }
        let open = planned.rows.saturating_sub(planned.held) as usize;
        (open, self.claimable_rows(planned.consumer))
    }

    /// How a consumer stands for those who want to claim of it.
    pub(crate) fn readiness(&self, consumer: usize) -> Readiness {
        if self.consumers[consumer].kind == ConsumerKind::Task {
            let rows = self.claimable_rows(consumer).min(self.may_claim(consumer));
            return Readiness { rows, early: rows, step: 0 };
        }
        let step = self.open_begun();
        let planned = step.and_then(|step| self.plan_of(step.number, consumer));
        let (open, ready) = planned.map_or((0, 0), |planned| self.outstanding(planned));
        let allowed = self.may_claim(consumer);
        let whole = ready >= open && allowed >= open;
        let rows = if whole { Readiness::LOOK } else { ready.min(allowed) };
        let parts = if planned.is_some() { self.consumers[consumer].partial_rows() } else { 0 };
        let early = if whole { Readiness::LOOK } else { ready.saturating_add(parts).min(allowed) };
        Readiness { rows, early, step: step.map_or(0, Begun::word) }
    }

    fn in_sample_order(&self, mut selection: Selection) -> Selection {
        let table = &self.tables[selection.table as usize];
        if selection.rows.len() < 2 {
            return selection;
        }
        // All records, then all texts: among many rows each lies somewhere else in memory, and what does not hang on
        // one another comes at once.
        let named = |&row: &u32| {
            let record = table.meta(row);
            (record.input, record.turn, record.trajectory)
        };
        let named: Vec<(TextId, u32, u32)> = selection.rows.iter().map(named).collect();
        let inputs = self.texts.pages().get_all(named.iter().map(|(input, ..)| *input));
        let key = |(&(_, turn, trajectory), input)| SampleKey { input, turn, trajectory };
        let mut rows: Vec<_> = named.iter().zip(inputs).map(key).zip(selection.rows).collect();
        rows.sort_by_key(|(key, _)| *key);
        selection.rows = rows.into_iter().map(|(_, row)| row).collect();
        selection
    }

    /// A live, leased or accumulated claim of this process, or the error that fences its holder off.
    pub(crate) fn check_claim(&self, claim: u64, expected: &'static [&'static str]) -> Result<&ClaimState> {
        let state = self.claims.get(claim);
        match state {
            Some(state) if expected.contains(&state.progress.as_str()) => Ok(state),
            found => {
                let found = found.map_or("ended", |claim| claim.progress.as_str());
                Err(Cause::ClaimFenced { claim, found, expected: expected[0] }.into())
            }
        }
    }

    /// Leased claims whose deadline has come.
    pub(crate) fn decide_expiry(&self, now: Timestamp) -> Vec<u64> {
        self.claims.due(now)
    }
}
