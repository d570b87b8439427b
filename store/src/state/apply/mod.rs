//! How each record changes the state.

mod claimed;
mod column;
mod declared;
mod stepped;
mod written;

use super::{Effects, State};
use crate::claim::ClaimProgress;
use crate::clock::Timestamp;
use crate::consumer::Recall;
use crate::log::record::*;
use crate::step::{StepProgress, Undoing};

/// The reason of rows whose version was left behind.
pub(crate) const STALE: &str = "stale";
/// The reason of rows whose next attempt took their place.
pub(crate) const SUPERSEDED: &str = "superseded";
/// The reason of rows that were deleted while they could still be trained on.
pub(crate) const DELETED: &str = "deleted";
/// The reason of rows that a rewind left behind.
pub(crate) const REWOUND: &str = "rewound";

impl State {
    /// Applies one record.
    ///
    /// # Errors
    /// The reason why the record cannot follow on this state. A live call never sees one, for it decides on the same
    /// state; from a log it means damage.
    pub(crate) fn apply(&mut self, record: Record) -> Result<Effects, String> {
        let now = Timestamp(record.time);
        let mut effects = Effects::default();
        match record.event {
            Event::Opened { incarnation, .. } => {
                effects.touched = u64::MAX;
                self.opened(incarnation, now)?;
            }
            Event::PolicyCreated { name, version, objects, state_keys } => {
                self.policy_created(&name, version, objects, state_keys, now);
            }
            Event::TableCreated { name, policy, columns } => self.table_created(&name, policy, columns)?,
            Event::ConsumerCreated { name, declaration } => {
                self.consumer_created(&name, declaration, &mut effects)?;
            }
            Event::Written { operations } => self.written(operations, now, &mut effects)?,
            Event::Claimed(claim) => {
                effects.touch(claim.consumer as usize);
                effects.everyone.extend(claim.gang.as_ref().map(|_| claim.consumer as usize));
                self.claimed(claim, now)?;
            }
            Event::Returned { claims, why } => {
                let to = match why {
                    ReturnReason::Released => ClaimProgress::Released,
                    ReturnReason::Expired => ClaimProgress::Expired,
                    ReturnReason::CacheDropped => ClaimProgress::Returned,
                };
                if why == ReturnReason::CacheDropped {
                    self.count_dropped_caches(&claims);
                }
                claims.iter().for_each(|claim| self.return_claim(*claim, to, now, &mut effects));
                if why == ReturnReason::CacheDropped {
                    effects.everyone.extend_from_slice(&effects.wake); // a gang learns that its cache is gone
                }
            }
            Event::Finished { claim, operations } => {
                self.written(operations, now, &mut effects)?;
                self.advance_claim(claim, ClaimProgress::Finished, now)?;
            }
            Event::Accumulated { claim } => {
                let consumer = self.advance_claim(claim, ClaimProgress::Accumulated, now)?;
                effects.wake.push(consumer);
            }
            Event::StepBegun { step, plan } => {
                effects.touched = u64::MAX;
                self.step_begun(step, plan, now)?;
            }
            Event::StepCommitted { step, updates, rewind_floor } => {
                effects.touched = u64::MAX;
                self.step_committed(step, updates, now, &mut effects)?;
                self.raise_rewind_floor(rewind_floor);
            }
            Event::RankAccumulated { claim, rank } => self.rank_accumulated(claim, rank)?,
            Event::Extended { claim, deadline } => self.claims.extend(claim, Timestamp(deadline)),
            Event::StepAbandoned { step } => {
                effects.touched = u64::MAX;
                self.end_step(step, StepProgress::Abandoned, now);
            }
            Event::Deleted { deletions } => {
                effects.touched = u64::MAX;
                deletions.into_iter().try_for_each(|deletion| self.delete(deletion, &mut effects))?;
            }
            Event::SchemaChanged { table, version, change } => self.change_schema(table, version, change)?,
            Event::Rewound { step, exclude } => {
                let how = Undoing { exclude, recall: Recall::Said };
                self.rewind(step, how, &mut effects)?;
            }
            Event::WentBack { step, exclude } => {
                let how = Undoing { exclude, recall: Recall::Sizes };
                self.rewind(step, how, &mut effects)?;
            }
            Event::SteppedBack { step, exclude, recall } => {
                let recall = Recall::of(recall).ok_or_else(|| format!("a rewind by the rule {recall}"))?;
                self.rewind(step, Undoing { exclude, recall }, &mut effects)?;
            }
            Event::Moved { moves } => self.moved(moves)?,
            Event::GroupsForgotten { consumer, table } => self.groups_forgotten(consumer, table)?,
        }
        self.commits += 1;
        Ok(effects)
    }

    fn opened(&mut self, incarnation: u64, now: Timestamp) -> Result<(), String> {
        if self.incarnation.checked_add(1) != Some(incarnation) {
            return Err(format!("incarnation {incarnation} follows on {}", self.incarnation));
        }
        self.incarnation = incarnation;
        let mut effects = Effects::default(); // nobody waits yet
        for claim in self.claims.live() {
            self.return_claim(claim, ClaimProgress::Lost, now, &mut effects);
        }
        if let Some(step) = self.open_step() {
            self.end_step(step, StepProgress::Abandoned, now);
        }
        Ok(())
    }
}
