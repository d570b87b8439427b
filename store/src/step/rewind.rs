//! Going back to a step: a trainer that fell back to an older checkpoint, and the store, agree again.
//!
//! One record undoes every step after the one that is named. Policies stand where they stood then, on the objects that
//! they stood on. What the undone steps trained on is trained on again, in the order in which it was handed out, or is
//! excluded as `rewound`; rows that were left behind as stale since, and are fresh again, come back behind them. What
//! tasks have done stays done.
//!
//! Rows of versions that the policies no longer have are kept for the time when these versions come again: a run that
//! repeats its steps exactly needs no new ones. Whoever samples anew chooses [`Rewind::Exclude`], which leaves them out.

use std::collections::HashMap;

use super::replay::unknown_step;
use super::{StepProgress, StepState};
use crate::claim::ClaimProgress;
use crate::clock::Timestamp;
use crate::consumer::{Back, Recall};
use crate::error::{Cause, Result};
use crate::log::record::Event;
use crate::object;
use crate::state::apply::{REWOUND, STALE};
use crate::state::{Effects, State};
use crate::store::Store;

/// What becomes of the rows of the steps that a rewind undoes, and of rows of versions that are to come again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rewind {
    /// They are trained on again, in their original order.
    TrainAgain,
    /// They are left out, with the reason `rewound`.
    Exclude,
}

/// How a rewind is applied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Undoing {
    /// Rows that are trained on again, or that wait for their version, are left out instead.
    pub(crate) exclude: bool,
    /// What is known still of what comes back.
    pub(crate) recall: Recall,
}

/// What a rewind did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RewoundTo {
    /// The step that the run stands after now; 0 for none.
    pub step: u64,
    /// Steps that were undone.
    pub steps_undone: u64,
    /// Rows that those steps had consumed.
    pub rows: u64,
}

impl Store {
    /// Undoes every step after `step`; 0 undoes all of them. Numbers of undone steps are not given out again.
    ///
    /// # Errors
    /// `input` when `step` was never committed, or was undone itself; `state` when a step is open, or when objects that
    /// the policies stood on then are no longer kept (see
    /// [`Options::object_versions_kept`](crate::Options::object_versions_kept)).
    pub fn rewind(&self, step: u64, rows: Rewind) -> Result<RewoundTo> {
        self.0.check_writable("rewind it")?;
        let (now, kept) = (self.0.options.clock.now(), self.0.options.object_versions_kept);
        let (commits, objects) = {
            let state = self.0.state.lock();
            state.check_rewind(step, kept, now)?;
            let policies = 0..state.policies.len();
            let objects = policies.flat_map(|policy| state.moment_at(policy, step).objects.to_vec());
            (state.next_step(), objects.collect::<Vec<_>>())
        };
        objects.iter().try_for_each(|object| object::check(&self.0.directory, object))?;
        self.0.submit_if(|state| {
            state.check_rewind(step, kept, now)?;
            if state.next_step() != commits {
                let reason = "another thread committed a step meanwhile; decide again".to_owned();
                return Err(Cause::Argument { what: "rewind", reason }.into());
            }
            let undone = || state.undone_by(step);
            let outcome = RewoundTo {
                step,
                steps_undone: undone().count() as u64,
                rows: undone().map(|(_, step)| step.rows).sum(),
            };
            let (exclude, recall) = (rows == Rewind::Exclude, Recall::LATEST as u16);
            let event = Event::SteppedBack { step, exclude, recall };
            Ok(((outcome.steps_undone > 0).then_some(event), outcome))
        })
    }
}

impl State {
    /// The steps that going back to `step` undoes.
    fn undone_by(&self, step: u64) -> impl Iterator<Item = (u64, &StepState)> {
        let later = self.steps.range(step.saturating_add(1)..);
        later.filter(|(_, s)| s.progress == StepProgress::Committed).map(|(number, step)| (*number, step))
    }

    pub(crate) fn moment_at(&self, policy: usize, step: u64) -> super::objects::Moment<'_> {
        let first = &self.policies[policy].first;
        let start = super::objects::Moment { step: 0, version: first.version, objects: &first.objects };
        self.moments(policy).find(|moment| moment.step <= step).unwrap_or(start)
    }

    fn check_rewind(&self, step: u64, kept: usize, now: Timestamp) -> Result<()> {
        if let Some(open) = self.open_step() {
            let since = self.steps[&open].begun_at.shown_before(now);
            return Err(Cause::StepOpen { step: open, since }.into());
        }
        let stands = |number| {
            self.steps.get(number).is_some_and(|step: &StepState| step.progress == StepProgress::Committed)
        };
        if step != 0 && !stands(&step) {
            return Err(unknown_step(step));
        }
        let oldest = self.oldest_rewind(kept);
        if step < oldest {
            return Err(Cause::RewindTooFar { step, oldest, kept }.into());
        }
        Ok(())
    }

    /// Applies a rewind.
    pub(crate) fn rewind(&mut self, step: u64, how: Undoing, effects: &mut Effects) -> Result<(), String> {
        if self.open_step().is_some() {
            return Err(format!("a rewind to step {step} while a step is open"));
        }
        let undone: Vec<u64> = self.undone_by(step).map(|(number, _)| number).collect();
        let batches = match undone.last() {
            Some(&last) => self.batches_of(step + 1..=last),
            None => return Ok(()),
        };
        let mut trained: Vec<Vec<u32>> = vec![Vec::new(); self.tables.len()];
        batches.into_values().for_each(|(table, rows)| trained[table].extend(rows));
        self.undo_steps(&undone);
        let moved = self.policies_back_to(step);
        for (table, trained) in trained.into_iter().enumerate() {
            if moved[self.tables[table].policy] {
                self.rows_back(table, &trained, how, effects);
            }
        }
        Ok(())
    }

    fn undo_steps(&mut self, undone: &[u64]) {
        for number in undone {
            let Some(step) = self.steps.get_mut(number) else { continue };
            step.progress = StepProgress::Rewound;
            for claim in step.membership().claims.clone() {
                if self.claims.get(claim).is_some_and(|claim| claim.progress == ClaimProgress::Consumed) {
                    self.claims.rewind(claim);
                }
            }
        }
    }

    /// Puts every policy back. Says which ones that moved.
    fn policies_back_to(&mut self, step: u64) -> Vec<bool> {
        let policies = 0..self.policies.len();
        policies
            .map(|index| {
                let moment = self.moment_at(index, step);
                let (version, objects) = (moment.version, moment.objects.to_vec());
                let since = self.steps.get(&moment.step).and_then(|step| step.ended_at);
                let policy = &mut self.policies[index];
                let moved = policy.version != version;
                policy.updated_at = since.unwrap_or(policy.first.updated_at);
                (policy.version, policy.objects) = (version, objects);
                moved
            })
            .collect()
    }

    /// The rows of a consumer's live claims in a table, with the claims.
    pub(crate) fn rows_held(&self, consumer: usize, table: u32) -> HashMap<u32, u64> {
        let live = self.claims.iter().filter(|(_, claim)| claim.progress.is_live());
        let of_consumer = live.filter(|(_, claim)| claim.consumer == consumer && claim.table == table);
        of_consumer.flat_map(|(number, claim)| claim.rows.iter().map(move |row| (*row, number))).collect()
    }

    /// Brings the rows of a table back, `trained` first, and counts its consumers anew.
    fn rows_back(&mut self, table: usize, trained: &[u32], how: Undoing, effects: &mut Effects) {
        let index = table as u32;
        let version = self.current_version(index);
        for &row in trained {
            self.tables[table].unconsume(row);
        }
        let stale = self.texts.intern(STALE);
        self.tables[table].set_current_version(version);
        for row in self.tables[table].rows_excluded_as(stale) {
            self.tables[table].readmit(row, &self.texts);
        }
        let floor = self.tables[table].oldest_own_version();
        if how.exclude {
            let reason = self.texts.intern(REWOUND);
            let state = &mut self.tables[table];
            let future = state.open_rows_after(version);
            for &row in trained.iter().chain(&future) {
                state.exclude(row, reason, &self.texts);
            }
        }
        for slot in 0..self.tables[table].consumers.len() {
            let consumer = self.tables[table].consumers[slot];
            let held = self.rows_held(consumer, index);
            self.change_consumer(consumer, index, effects, |consumer, table, fallout| {
                let back = Back { version: floor, first: trained, held: &held, recall: how.recall };
                consumer.reindex(table, &back, fallout);
            });
            effects.wake.push(consumer);
        }
    }
}
