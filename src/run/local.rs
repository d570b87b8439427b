//! A trainer in this process, whatever it computes on.

use std::sync::Arc;

use anyhow::{Context, Result};
use forebay_trainer_adapter::{
    Admission, CpuDevice, Device, Error, OpenGroup, Policy, RewardValues, Row, Trainer, Trajectory, Unit,
};

use super::early;
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

    /// Forgets what is in the cache, and in open groups.
    fn drop_cache(&mut self);

    /// The sums of how many open groups the budget of early training holds.
    fn early_room(&self) -> usize;

    /// Which rewards members of open groups may have, given what the loss makes of them.
    fn reward_values(&self) -> RewardValues;

    /// See [`Trainer::begin_group`].
    fn begin_group(&mut self, group: &OpenGroup<'_>) -> Result<Admission, Error>;

    /// See [`Trainer::add_trajectories`].
    fn add_trajectories(&mut self, trajectories: &[Trajectory<'_, Row<'_>>]) -> Result<(), Error>;

    /// See [`Trainer::group_rewards`].
    fn group_rewards(&self, position: usize) -> Result<Vec<f64>, Error>;

    /// See [`Trainer::exclude_member`].
    fn exclude_member(&mut self, position: usize, member: usize) -> Result<(), Error>;

    /// See [`Trainer::close_group`].
    fn close_group(&mut self, position: usize, advantages: &[f64]) -> Result<(), Error>;
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

    fn early_room(&self) -> usize {
        early::early_room(&self.trainer)
    }

    fn reward_values(&self) -> RewardValues {
        early::reward_values(&self.trainer)
    }

    fn begin_group(&mut self, group: &OpenGroup<'_>) -> Result<Admission, Error> {
        self.trainer.begin_group(group)
    }

    fn add_trajectories(&mut self, trajectories: &[Trajectory<'_, Row<'_>>]) -> Result<(), Error> {
        self.trainer.add_trajectories(trajectories).map(drop)
    }

    fn group_rewards(&self, position: usize) -> Result<Vec<f64>, Error> {
        self.trainer.group_rewards(position)
    }

    fn exclude_member(&mut self, position: usize, member: usize) -> Result<(), Error> {
        self.trainer.exclude_member(position, member).map(drop)
    }

    fn close_group(&mut self, position: usize, advantages: &[f64]) -> Result<(), Error> {
        self.trainer.close_group(position, advantages).map(drop)
    }
}
