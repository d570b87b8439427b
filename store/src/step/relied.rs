//! Which gradient caches the claims of one handle of a step rely on.
//!
//! A policy's cache may be dropped as a whole by others: a rank that loses a micro-batch of which another has the gradient, or whoever
//! holds another handle of the step. What was accumulated by this one is given back with it then, and is trained on again, so its
//! part of the cache must go: it is refused until it has said so. Ranks of gangs have epochs of their own, and say so by joining again.

use std::collections::BTreeMap;

use crate::error::{Cause, Error, Result};
use crate::state::State;
use crate::sync::Mutex;

/// By policy, the epoch of its cache when it first took a gradient of this handle.
#[derive(Debug, Default)]
pub(crate) struct ReliedCaches(Mutex<BTreeMap<usize, u32>>);

impl ReliedCaches {
    /// A gradient of rows of a table is in its policy's cache from here on.
    ///
    /// # Errors
    /// When that cache was dropped since it took others.
    pub(crate) fn rely_on(&self, state: &State, step: u64, table: u32) -> Result<()> {
        let policy = state.tables[table as usize].policy;
        let epoch = state.membership(step).cache_epoch(policy);
        let relied = *self.0.lock().entry(policy).or_insert(epoch);
        if relied == epoch { Ok(()) } else { Err(dropped(state, policy, epoch)) }
    }

    /// Refuses where one of the caches was dropped since.
    pub(crate) fn check(&self, state: &State, step: u64) -> Result<()> {
        let membership = state.membership(step);
        for (&policy, &relied) in &*self.0.lock() {
            let epoch = membership.cache_epoch(policy);
            if relied != epoch {
                return Err(dropped(state, policy, epoch));
            }
        }
        Ok(())
    }

    /// Nothing of this handle is in the cache of a policy any more.
    pub(crate) fn forget(&self, policy: usize) {
        self.0.lock().remove(&policy);
    }
}

fn dropped(state: &State, policy: usize, epoch: u32) -> Error {
    Cause::CacheDropped { gradient: format!("of policy {:?}", state.policies[policy].name), epoch }.into()
}
