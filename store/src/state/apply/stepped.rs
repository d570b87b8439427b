//! Steps that begin and end, and the policies that they move.

use std::collections::HashSet;
use std::sync::Arc;

use super::super::{Effects, State};
use crate::claim::ClaimProgress;
use crate::clock::Timestamp;
use crate::log::record::*;
use crate::object::ObjectRef;
use crate::step::{Membership, Planned, StepProgress, StepState, StepUpdate};

impl State {
    pub(super) fn step_begun(
        &mut self,
        number: u64,
        plan: Vec<PlanRecord>,
        now: Timestamp,
    ) -> Result<(), String> {
        let known = plan.iter().all(|entry| (entry.consumer as usize) < self.consumers.len());
        if u32::try_from(number).is_err() {
            return Err(format!("step {number} is more than a row can name"));
        }
        if number != self.next_step() || self.open_step().is_some() || !known {
            return Err(format!("step {number} cannot begin here"));
        }
        let planned = plan.into_iter().map(|entry| self.planned(entry)).collect::<Result<_, _>>()?;
        let first_cache_epoch = self.next_first_cache_epoch(number);
        let step = StepState {
            progress: StepProgress::Open,
            begun_at: now,
            ended_at: None,
            rows: 0,
            deleted_rows: 0,
            updates: Box::default(),
            membership: Some(Box::new(Membership { planned, first_cache_epoch, ..Membership::NOTHING })),
        };
        self.steps.insert(number, step);
        self.resume_plans();
        Ok(())
    }

    pub(crate) fn planned(&mut self, entry: PlanRecord) -> Result<Planned, String> {
        let consumer = entry.consumer as usize;
        let by = self.consumers[consumer].grouping.map(|grouping| grouping.by);
        let mut groups = HashSet::with_capacity(entry.groups.len());
        for key in &entry.groups {
            let name = by.and_then(|by| self.group_name(by, key));
            groups.insert(name.ok_or_else(|| format!("{key:?} is no group of its consumer"))?);
        }
        Ok(Planned { consumer, groups: Arc::new(groups), rows: entry.rows, claims: 0, held: 0 })
    }

    pub(super) fn step_committed(
        &mut self,
        number: u64,
        updates: Vec<UpdateRecord>,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<(), String> {
        let step = self.steps.get(&number).filter(|_| self.open_step() == Some(number));
        let claims = step.ok_or_else(|| format!("step {number} is not open"))?.membership().claims.clone();
        let (mut trained_on, mut removed) = (0, 0);
        for claim in claims {
            let Some(state) = self.claims.get(claim).filter(|c| c.progress == ClaimProgress::Accumulated)
            else {
                continue;
            };
            let (table, rows) = (state.table as usize, state.rows.clone());
            self.advance_claim(claim, ClaimProgress::Consumed, now)?;
            trained_on += rows.len() as u64;
            let gone = rows.iter().filter(|&&row| !self.tables[table].consume(row, number as u32));
            removed += gone.count() as u64;
        }
        let mut moved = Vec::new();
        for update in updates {
            moved.push(self.update_policy(update, now, effects)?);
        }
        self.end_step(number, StepProgress::Committed, now);
        if let Some(step) = self.steps.get_mut(&number) {
            (step.rows, step.deleted_rows, step.updates) = (trained_on, removed, moved.into());
        }
        Ok(())
    }

    /// Raises a policy's version and leaves the rows of the old one behind, with their reason.
    pub(super) fn update_policy(
        &mut self,
        update: UpdateRecord,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<StepUpdate, String> {
        let index = update.policy as usize;
        let policy = self.policies.get_mut(index).ok_or_else(|| format!("no policy {index}"))?;
        let old = policy.version;
        policy.version = old.checked_add(1).ok_or("a policy is at the greatest version")?;
        policy.updated_at = now;
        policy.objects = update.objects.into_iter().map(ObjectRef::from_record).collect();
        let moved = StepUpdate { policy: index, version: policy.version, objects: policy.objects.clone() };
        self.policy_moved(index, moved.version, effects);
        Ok(moved)
    }

    pub(crate) fn end_step(&mut self, number: u64, progress: StepProgress, now: Timestamp) {
        if let Some(step) = self.steps.get_mut(&number) {
            step.progress = progress;
            step.ended_at = Some(now);
            for planned in &step.membership().planned {
                self.consumers[planned.consumer].end_plan();
            }
        }
    }
}
