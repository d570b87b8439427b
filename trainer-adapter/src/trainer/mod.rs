//! The trainer: units in, one update out.
//!
//! Between updates the weights do not move: a unit's gradient joins the cache as an unnormalised numerator, and
//! [`Trainer::apply`] sums the cache, divides by the step's denominator, clips, and makes one AdamW update. Applying
//! makes a new [`Policy`]; who holds an older version keeps it.
//!
//! One thread owns a trainer. Within a call the device's threads each take whole units.

mod adamw;
mod cache_state;
mod cache_stream;
mod early;
mod options;
mod passes;
mod payload;
mod report;
mod state;
mod stream;
mod update;
mod words;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

pub use adamw::AdamW;
pub use options::TrainerOptions;
pub use passes::Passes;
pub use payload::{CachePayload, FlatTensor, FlatType};
pub use report::{CacheReport, OpenGroupReport, StepReport};
pub use stream::FlatStream;

use crate::device::Device;
use crate::error::Error;
use crate::gradient::{
    EarlyOptions, GradientCache, GroupSums, Loss, Objective, Plan, Row, Terms, Unit, UnitReport, UnitTotals,
};
use crate::policy::{Activations, Policy};

/// Trains one policy.
pub struct Trainer<D: Device> {
    device: D,
    options: TrainerOptions,
    objective: Objective,
    policy: Arc<Policy<D>>,
    first_moments: D::Buffer,
    second_moments: D::Buffer,
    /// Updates that the moments have seen.
    updates: u64,
    cache: GradientCache<D>,
    early: EarlyOptions,
    /// Groups that are trained early and not closed yet, by position.
    groups: BTreeMap<usize, GroupSums<D>>,
    /// Buffers of the forward and backward pass that no thread is using.
    activations: Mutex<Vec<Activations<D>>>,
}

/// A unit's result: its report, and its gradient if it has one.
type Computed<D> = (UnitReport, Option<<D as Device>::Buffer>);

impl<D: Device> Trainer<D> {
    /// A trainer that begins at `policy`, with moments of zero.
    ///
    /// # Errors
    /// [`Error::Config`] if an option is not valid; [`Error::HostMemory`] or [`Error::Device`] if there is no memory for the moments, or
    /// the device has failed.
    pub fn new(device: &D, policy: Policy<D>, options: TrainerOptions) -> Result<Self, Error> {
        options.validate()?;
        let length = policy.layout().length();
        let moments = (device.try_allocate(length)?, device.try_allocate(length)?);
        Self::with_moments(device, policy, options, moments)
    }

    /// The same with moments that are there already.
    fn with_moments(
        device: &D,
        policy: Policy<D>,
        options: TrainerOptions,
        (first_moments, second_moments): (D::Buffer, D::Buffer),
    ) -> Result<Self, Error> {
        options.validate()?;
        let length = policy.layout().length();
        device.check()?;
        Ok(Self {
            first_moments,
            second_moments,
            updates: 0,
            cache: GradientCache::new(length),
            early: EarlyOptions::default(),
            groups: BTreeMap::new(),
            activations: Mutex::default(),
            device: device.clone(),
            options,
            objective: Objective::default(),
            policy: Arc::new(policy),
        })
    }

    /// The same trainer with another objective; the default is the score function alone. To be called before the first
    /// unit: what is in the cache stays as it was computed.
    ///
    /// ```
    /// use forebay_trainer_adapter::{CpuDevice, Objective, Policy, PolicyConfig, PolicyTerm, Trainer, TrainerOptions};
    /// # fn main() -> Result<(), forebay_trainer_adapter::Error> {
    /// let device = CpuDevice::inline();
    /// let policy = Policy::initialise(&device, &PolicyConfig::small(300), 7)?;
    /// let objective = Objective { policy_term: PolicyTerm::CLIP_HIGHER, kl_coefficient: 0.04 };
    /// let trainer = Trainer::new(&device, policy, TrainerOptions::default())?.with_objective(objective)?;
    /// assert_eq!(trainer.objective(), objective);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Config`] if a field is not valid.
    pub fn with_objective(mut self, objective: Objective) -> Result<Self, Error> {
        objective.validate()?;
        self.objective = objective;
        Ok(self)
    }

    /// The objective.
    pub fn objective(&self) -> Objective {
        self.objective
    }

    /// The current weights, to sample from. A later update leaves them as they are.
    pub fn policy(&self) -> Arc<Policy<D>> {
        Arc::clone(&self.policy)
    }

    /// How many updates the policy has seen.
    pub fn version(&self) -> u64 {
        self.policy.version()
    }

    /// The options.
    pub fn options(&self) -> &TrainerOptions {
        &self.options
    }

    /// Changes the learning rate from the next update on (a schedule).
    ///
    /// # Errors
    /// [`Error::Config`] if it is not 0 or more.
    pub fn set_learning_rate(&mut self, learning_rate: f64) -> Result<(), Error> {
        let mut options = self.options.clone();
        options.adamw.learning_rate = learning_rate;
        options.validate()?;
        self.options = options;
        Ok(())
    }

    /// Refuses when the device has failed: nothing that the trainer says is worth anything then.
    pub(crate) fn check_device(&self) -> Result<(), Error> {
        self.device.check()
    }

    /// SHA-256 of the current weights; see [`Policy::sha256`].
    pub fn weights_sha256(&self) -> String {
        self.policy.sha256(&self.device)
    }

    /// Computes a unit's gradient and adds it to the cache. The weights stay as they are.
    ///
    /// # Errors
    /// [`Error::OtherPolicy`], [`Error::OtherVersion`], [`Error::PositionTaken`] if the unit does not belong here;
    /// [`Error::EmptyUnit`], [`Error::EmptyPrompt`], [`Error::Token`], [`Error::TooLong`], [`Error::Advantage`],
    /// [`Error::Weight`], [`Error::ColumnLength`], [`Error::MissingColumn`], [`Error::EmptyMask`], [`Error::LogProb`] if a
    /// row cannot be computed; [`Error::Device`] if the device has failed. The cache is then as before.
    pub fn accumulate<'a, R>(&mut self, unit: &Unit<'a, R>) -> Result<UnitReport, Error>
    where
        R: Copy + Into<Row<'a>>,
    {
        let mut reports = self.accumulate_many(std::slice::from_ref(unit))?;
        Ok(reports.swap_remove(0))
    }

    /// The same for several units, shared out over the device's threads. All are added or none.
    ///
    /// # Errors
    /// As [`Self::accumulate`], for the first unit that has one.
    pub fn accumulate_many<'a, R>(&mut self, units: &[Unit<'a, R>]) -> Result<Vec<UnitReport>, Error>
    where
        R: Copy + Into<Row<'a>>,
    {
        let plans = self.plan(units)?;
        let buffers: Vec<Mutex<Option<D::Buffer>>> = plans
            .iter()
            .map(|plan| (!plan.is_flat(Terms::All)).then(|| self.cache.buffer(&self.device)).into())
            .collect();
        let done = self.in_parallel(plans.len(), |index| {
            let gradient = locked(&buffers[index]).take();
            self.compute(&plans[index], Terms::All, gradient)
        });
        self.device.check()?;
        let mut reports = Vec::with_capacity(units.len());
        for ((unit, plan), (report, gradient)) in units.iter().zip(&plans).zip(done) {
            self.cache.add(&self.device, unit.position, plan.totals, gradient)?;
            reports.push(report);
        }
        Ok(reports)
    }

    /// Checks the units and lays out their rows.
    fn plan<'a, R>(&self, units: &[Unit<'a, R>]) -> Result<Vec<Plan>, Error>
    where
        R: Copy + Into<Row<'a>>,
    {
        let mut plans = Vec::with_capacity(units.len());
        for (index, unit) in units.iter().enumerate() {
            let position = unit.position;
            self.check_unit(position, unit.policy, unit.version)?;
            if units[..index].iter().any(|earlier| earlier.position == position) {
                return Err(Error::PositionTaken { position });
            }
            plans.push(Plan::new(position, &unit.full_rows(), self.policy.config(), self.loss())?);
        }
        Ok(plans)
    }

    /// Whether a unit or group belongs to this policy and version, and its place is free.
    fn check_unit(&self, position: usize, policy: &str, version: u64) -> Result<(), Error> {
        if policy != self.options.policy {
            let (expected, found) = (self.options.policy.clone(), policy.to_owned());
            return Err(Error::OtherPolicy { position, expected, found });
        }
        if version != self.version() {
            return Err(Error::OtherVersion { position, current: self.version(), found: version });
        }
        self.check_place(position)
    }

    /// Whether neither a unit nor an open group has this place.
    fn check_place(&self, position: usize) -> Result<(), Error> {
        if self.groups.contains_key(&position) {
            return Err(Error::PositionTaken { position });
        }
        self.cache.check_free(position)
    }

    fn loss(&self) -> Loss {
        let TrainerOptions { loss_form: form, entropy_coefficient, .. } = self.options;
        Loss { form, entropy_coefficient, objective: self.objective }
    }

    /// Forward, and the gradient of the chosen terms into `gradient` where there is one. Runs on one thread.
    fn compute(&self, plan: &Plan, terms: Terms, mut gradient: Option<D::Buffer>) -> Computed<D> {
        let spare = locked(&self.activations).pop();
        let mut kept = spare.unwrap_or_else(|| Activations::new(&self.device, self.policy.config()));
        let statistics = self.policy.forward(&self.device, &plan.batch, &mut kept);
        if let Some(gradient) = &mut gradient {
            let slopes = plan.slopes(terms, &statistics);
            self.policy.backward(&self.device, &plan.batch, &slopes, &mut kept, gradient);
        }
        locked(&self.activations).push(kept);
        (plan.report(terms, &statistics), gradient)
    }

    /// Calls `work` for each index on the device's threads and gives the results in order.
    fn in_parallel<T: Send>(&self, count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
        let done: Vec<Mutex<Option<T>>> = (0..count).map(|_| Mutex::default()).collect();
        self.device.for_each(count, &|index| {
            let result = work(index);
            *locked(&done[index]) = Some(result);
        });
        let taken = |done: Mutex<Option<T>>| {
            let result = done.into_inner().unwrap_or_else(PoisonError::into_inner);
            result.expect("for_each calls every index")
        };
        done.into_iter().map(taken).collect()
    }

    /// What is in the cache.
    pub fn cache(&self) -> CacheReport {
        let UnitTotals { rows, tokens, .. } = self.cache.totals();
        let bytes = (self.cache.buffers() * self.policy.layout().length() * size_of::<f32>()) as u64;
        let open_group = |(&position, group): (&usize, &GroupSums<D>)| OpenGroupReport {
            position,
            members: group.members.len(),
            arrived: group.arrivals().count(),
            missing: group.missing(),
        };
        CacheReport {
            positions: self.cache.units().keys().copied().collect(),
            rows,
            tokens,
            bytes,
            open_groups: self.groups.iter().map(open_group).collect(),
            open_bytes: self.open_bytes(),
        }
    }

    /// Forgets the units and the open groups of this step.
    pub fn drop_cache(&mut self) {
        self.groups.clear();
        self.cache.clear();
    }
}

/// A panic while the lock was held loses the buffer inside, nothing else: the lock stays usable.
fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
