//! The update: what is in the cache becomes the next version of the weights.

use std::sync::Arc;

use super::{Passes, StepReport, Trainer};
use crate::device::Device;
use crate::error::Error;
use crate::gradient::UnitTotals;
use crate::policy::Policy;

impl<D: Device> Trainer<D> {
    /// Makes one update of everything in the cache, and empties it.
    ///
    /// # Errors
    /// [`Error::OpenGroups`] while groups are open, [`Error::EmptyCache`] if nothing was accumulated; [`Error::Config`] if the
    /// options want several passes over the rows, which [`Self::update`] makes; [`Error::NotFinite`] if the gradient is not
    /// finite. Weights and moments are then as before; in the last case the cache is empty: nothing can be added to such a sum.
    /// [`Error::Device`] if the device has failed: then this trainer is lost.
    pub fn apply(&mut self) -> Result<StepReport, Error> {
        self.check_closed()?;
        if self.options.passes != Passes::default() {
            let value = format!("{:?}", self.options.passes);
            let reason = "a cache has no rows to pass over again; give all units of the step to `update`";
            return Err(Error::Config { field: "passes", value, reason });
        }
        self.step(self.version() + 1)
    }

    /// Makes an optimiser step of everything in the cache, empties it, and gives what it made that version.
    pub(super) fn step(&mut self, version: u64) -> Result<StepReport, Error> {
        let units = self.cache.units().len() as u64;
        if units == 0 {
            return Err(Error::EmptyCache);
        }
        let totals = self.cache.totals();
        let denominator = self.denominator(&totals);
        let zero;
        let gradient = match self.cache.sum(&self.device) {
            Some(gradient) => gradient,
            None => {
                zero = self.device.allocate(self.policy.layout().length());
                &zero
            }
        };
        let norm = self.device.sum_of_squares(gradient).sqrt() / denominator;
        self.device.check()?;
        let clipped = norm > self.options.clip_norm;
        let scale = if clipped { self.options.clip_norm / norm } else { 1.0 };
        let step = self.options.adamw.step(self.updates + 1, scale / denominator);
        // The device computes in 32 bits: a denominator next to nothing makes infinite factors of finite ones.
        if !(norm.is_finite() && step.is_finite()) {
            self.cache.clear();
            return Err(Error::NotFinite { norm });
        }
        let mut parameters = self.device.allocate(self.policy.layout().length());
        self.device.copy(&self.policy.parameters, &mut parameters);
        let (first, second) = (&mut self.first_moments, &mut self.second_moments);
        self.device.adamw(&step, gradient, &mut parameters, first, second);
        self.device.check()?;
        self.updates += 1;
        self.replace_policy(parameters, version);
        self.cache.clear();
        let UnitTotals { rows, tokens, .. } = totals;
        Ok(StepReport { gradient_norm: norm, clipped, units, rows, tokens, denominator, version })
    }

    fn denominator(&self, totals: &UnitTotals) -> f64 {
        match self.options.loss_form.denominator(totals) {
            // Nothing but empty responses or weights of 0: there is no gradient to divide.
            0.0 => 1.0,
            counted => counted,
        }
    }

    fn replace_policy(&mut self, parameters: D::Buffer, version: u64) {
        let shape = Arc::clone(&self.policy.shape);
        self.policy = Arc::new(Policy::from_parameters(&self.device, shape, parameters, version));
    }
}
