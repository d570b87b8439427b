//! Whether a step can be committed.

use std::sync::Arc;

use crate::claim::ClaimProgress;
use crate::error::{Cause, Result};
use crate::log::record::UpdateRecord;
use crate::state::State;

impl State {
    /// Checks that a step can be committed with these updates.
    pub(crate) fn decide_commit(&self, step: u64, updates: &[UpdateRecord]) -> Result<()> {
        let Some(state) = self.steps.get(&step).filter(|_| self.open_step() == Some(step)) else {
            return Err(Cause::StepClosed { step }.into());
        };
        self.check_named_once(updates)?;
        self.check_state_named(updates)?;
        let accumulated = self.accumulated_rows(&state.membership().claims)?;
        for (index, &rows) in accumulated.iter().enumerate() {
            let named = updates.iter().any(|update| update.policy as usize == index);
            let (policy, version) = (self.policies[index].name.to_string(), self.policies[index].version);
            if named && rows == 0 {
                return Err(Cause::PolicyIdle { policy, step, version }.into());
            }
            if !named && rows > 0 {
                return Err(Cause::PolicyMissing { policy, step, rows }.into());
            }
        }
        Ok(())
    }

    /// How many rows of each policy are accumulated, once none is in anybody's hands.
    fn accumulated_rows(&self, claims: &[u64]) -> Result<Vec<usize>> {
        let mut accumulated = vec![0; self.policies.len()];
        for (number, claim) in claims.iter().filter_map(|n| Some((*n, self.claims.get(*n)?))) {
            match claim.progress {
                ClaimProgress::Leased => {
                    let consumer = self.consumers[claim.consumer].name.to_string();
                    return Err(Cause::StepUnfinished { claim: number, consumer }.into());
                }
                ClaimProgress::Accumulated => {
                    accumulated[self.tables[claim.table as usize].policy] += claim.rows.len();
                }
                _ => {}
            }
        }
        Ok(accumulated)
    }

    /// The update of a durable policy names every object that its trainer needs to go on.
    fn check_state_named(&self, updates: &[UpdateRecord]) -> Result<()> {
        for update in updates {
            let policy = &self.policies[update.policy as usize];
            let named = |key: &&Arc<str>| update.objects.iter().any(|object| *object.key == ***key);
            if let Some(key) = policy.state_keys.iter().find(|key| !named(key)) {
                let (policy, key) = (policy.name.to_string(), key.to_string());
                return Err(Cause::StateMissing { policy, key }.into());
            }
        }
        Ok(())
    }

    fn check_named_once(&self, updates: &[UpdateRecord]) -> Result<()> {
        for (at, update) in updates.iter().enumerate() {
            if updates[..at].iter().any(|other| other.policy == update.policy) {
                let policy = &self.policies[update.policy as usize].name;
                let reason = format!("policy {policy:?} is named twice; a step moves it once");
                return Err(Cause::Argument { what: "updates", reason }.into());
            }
        }
        Ok(())
    }
}
