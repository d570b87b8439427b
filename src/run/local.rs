//! A trainer in this process, whatever it computes on.

use std::sync::Arc;

use anyhow::{Context, Result};
use forebay_trainer_adapter::{CpuDevice, Device, Error, Policy, Row, Trainer, Unit};

use super::trainer::Update;

/// What a step asks of a trainer in this process.
pub(super) trait LocalTrainer: Send {
    /// The version of the policy.
    fn version(&self) -> u64;

    /// The weights, for rollouts and for measuring, which are on the processor.
    fn policy(&self) -> Arc<Policy<CpuDevice>>;

    /// Adds the gradients of whole groups, all or none.
    fn accumulate(&mut self, units: &[Unit<'_, Row<'_>>]) -> Result<(), Error>;

    /// Makes the update of everything in the cache; nothing where that is empty.
    fn update(&mut self, learning_rate: f64) -> Result<Option<Update>>;

    /// Forgets what is in the cache.
    fn drop_cache(&mut self);
}

/// A trainer on a device, and its weights on the processor.
pub(super) struct OnDevice<D: Device> {
    device: D,
    trainer: Trainer<D>,
    policy: Arc<Policy<CpuDevice>>,
}

impl<D: Device> OnDevice<D> {
    /// # Errors
    /// When the device fails.
    pub(super) fn new(device: D, trainer: Trainer<D>) -> Result<Self, Error> {
        let policy = on_processor(&device, &trainer)?;
        Ok(OnDevice { device, trainer, policy })
    }
}

/// A copy of the weights; on the processor too, where who samples from a version holds it longer than the trainer does.
fn on_processor<D: Device>(device: &D, trainer: &Trainer<D>) -> Result<Arc<Policy<CpuDevice>>, Error> {
    let policy = trainer.policy();
    let values = policy.values(device);
    device.check()?;
    let copy = Policy::from_values(&CpuDevice::inline(), policy.config(), &values, policy.version())?;
    Ok(Arc::new(copy))
}

impl<D: Device> LocalTrainer for OnDevice<D> {
    fn version(&self) -> u64 {
        self.trainer.version()
    }

    fn policy(&self) -> Arc<Policy<CpuDevice>> {
        Arc::clone(&self.policy)
    }

    fn accumulate(&mut self, units: &[Unit<'_, Row<'_>>]) -> Result<(), Error> {
        self.trainer.accumulate_many(units).map(drop)
    }

    fn update(&mut self, learning_rate: f64) -> Result<Option<Update>> {
        if self.trainer.cache().rows == 0 {
            return Ok(None);
        }
        self.trainer.set_learning_rate(learning_rate)?;
        let version = self.trainer.apply()?.version;
        let state = self.trainer.state();
        self.policy = on_processor(&self.device, &self.trainer).context("an update could not be read")?;
        Ok(Some(Update { version, state }))
    }

    fn drop_cache(&mut self) {
        self.trainer.drop_cache();
    }
}
