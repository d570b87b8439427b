//! Several optimiser steps over the rows of one update: epochs over mini-batches, as PPO makes them.
//!
//! Every epoch needs the rows again, so [`Trainer::update`] takes all units of a step at once and the cache is of no use for it.
//! However many optimiser steps it makes, an update is one version, and it is made whole or not at all: whatever goes wrong,
//! weights, moments and counters are as before. Only a device that fails is lost with all that lies on it.

use std::sync::Arc;

use super::{StepReport, Trainer};
use crate::device::Device;
use crate::error::Error;
use crate::gradient::{Row, Unit};
use crate::policy::Policy;

/// How an update goes over its rows. The default is one optimiser step over all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passes {
    /// How often it goes over all rows. Default 1.
    pub epochs: u32,
    /// How many units (closed groups) a mini-batch has; the last of an epoch may have fewer. Default: all.
    pub mini_batch_units: usize,
}

impl Default for Passes {
    fn default() -> Self {
        Self { epochs: 1, mini_batch_units: usize::MAX }
    }
}

/// What an update that fails goes back to.
struct Before<D: Device> {
    policy: Arc<Policy<D>>,
    first_moments: D::Buffer,
    second_moments: D::Buffer,
    updates: u64,
}

impl<D: Device> Trainer<D> {
    /// Makes one update of these units, as [`TrainerOptions::passes`](super::TrainerOptions::passes) says: `epochs` times, in the
    /// order of their positions, mini-batch by mini-batch, with an AdamW step behind each and nothing of its gradient left for the
    /// next. Gives the report of each step; the policy's version rises by one.
    ///
    /// From the second step on the weights are not those that the rows were sampled from, so the objective has to have a ratio
    /// ([`PolicyTerm::Clipped`](crate::PolicyTerm::Clipped) or [`Truncated`](crate::PolicyTerm::Truncated)), unless the rows are
    /// supervised.
    ///
    /// While it runs it takes buffers of the policy's size beyond what a single step takes: two for the moments, and from the second
    /// step on a third for the weights that it began with.
    ///
    /// # Errors
    /// As [`Self::accumulate`], for the first unit that has one: of one unit of another version the whole update is refused, before
    /// anything is computed. [`Error::CacheNotEmpty`] if something was accumulated, [`Error::EmptyCache`] without units, and as
    /// [`Self::apply`]. Weights, moments and counters are then as before. Not so with [`Error::Device`], which memory of the device
    /// that runs out is, too: a device that has failed stays failed, so restore a stored state on another.
    pub fn update<'a, R>(&mut self, units: &[Unit<'a, R>]) -> Result<Vec<StepReport>, Error>
    where
        R: Copy + Into<Row<'a>>,
    {
        self.check_cache_empty()?;
        self.plan(units)?; // every row is looked at before the first is computed
        if units.is_empty() {
            return Err(Error::EmptyCache);
        }
        let mut ordered = units.to_vec();
        ordered.sort_by_key(|unit| unit.position);
        let before = self.before();
        self.device.check()?;
        let made = self.pass_over(&ordered);
        if made.is_err() {
            self.go_back(before);
        }
        made
    }

    fn pass_over<'a, R>(&mut self, units: &[Unit<'a, R>]) -> Result<Vec<StepReport>, Error>
    where
        R: Copy + Into<Row<'a>>,
    {
        let (passes, version) = (self.options.passes, self.version());
        let mini_batches = units.chunks(passes.mini_batch_units);
        let steps = u64::from(passes.epochs) * mini_batches.len() as u64;
        let mut reports = Vec::new(); // not with room for all: how many epochs there are is bounded by nothing
        for _ in 0..passes.epochs {
            for mini_batch in mini_batches.clone() {
                self.accumulate_many(mini_batch)?;
                // The rows of the next mini-batch are of the version that the update began with.
                let is_last = reports.len() as u64 + 1 == steps;
                reports.push(self.step(version + u64::from(is_last))?);
            }
        }
        Ok(reports)
    }

    fn before(&self) -> Before<D> {
        let copied = |buffer: &D::Buffer| {
            let mut copy = self.device.allocate(self.policy.layout().length());
            self.device.copy(buffer, &mut copy);
            copy
        };
        Before {
            policy: Arc::clone(&self.policy),
            first_moments: copied(&self.first_moments),
            second_moments: copied(&self.second_moments),
            updates: self.updates,
        }
    }

    fn go_back(&mut self, before: Before<D>) {
        self.cache.clear();
        self.policy = before.policy;
        self.updates = before.updates;
        (self.first_moments, self.second_moments) = (before.first_moments, before.second_moments);
    }
}
