//! The reference policy, its devices and its gradient cache.
//!
//! The reference policy is a small decoder-only transformer in the Qwen2 or Qwen3 layout, trained by a hand-written
//! backward pass on flat fp32 buffers. It is the embedded default of Forebay and the yardstick of its tests;
//! it is no framework for large models.
//!
//! Read the modules in this order:
//! - [`policy`]: the configuration, the flat parameter layout, one immutable version of the weights;
//! - [`generation`]: sampling from a policy, with a key-value cache;
//! - [`gradient`]: what one unit (a closed group) adds to the step, and the cache that keeps it;
//! - [`trainer`]: units in, one update out;
//! - [`parallel`]: several processes that make one update together;
//! - [`process_group`], [`scheduler`], [`states`]: the processes of an agent, started where and when there is room, ended
//!   and resumed elsewhere;
//! - [`publication`]: versions that go from one device to another, between processes of a node;
//! - [`device`]: the arithmetic that all of them are written in, the CPU and the GPU that do it;
//! - [`random`]: the counter generator.
//!
//! # One step
//! ```
//! use forebay_trainer_adapter::{
//!     CpuDevice, GenerateOptions, GenerateRequest, Policy, PolicyConfig, SampleKey, Sequence, Trainer, TrainerOptions, Unit,
//!     generate,
//! };
//! # fn main() -> Result<(), forebay_trainer_adapter::Error> {
//! let device = CpuDevice::new(2);
//! let policy = Policy::initialise(&device, &PolicyConfig::small(300), 7)?;
//! let mut trainer = Trainer::new(&device, policy, TrainerOptions::default())?;
//!
//! // A group of four responses to one prompt, sampled from the current version.
//! let (policy, prompt) = (trainer.policy(), [5, 6, 7]);
//! let key = |sample| SampleKey { seed: 7, version: policy.version(), sample, attempt: 0 };
//! let requests: Vec<_> = (0..4).map(|sample| GenerateRequest { prompt: &prompt, key: key(sample) }).collect();
//! let group = generate(&device, &policy, &requests, &GenerateOptions::default())?;
//!
//! // The group is a unit of the step; the weights move in `apply` and only there.
//! let advantages = [1.0, -1.0, 0.5, -0.5];
//! let rows: Vec<_> = group
//!     .iter()
//!     .zip(advantages)
//!     .map(|(made, advantage)| Sequence { prompt: &prompt, response: &made.tokens, advantage })
//!     .collect();
//! trainer.accumulate(&Unit { position: 0, policy: "policy", version: policy.version(), rows: &rows })?;
//! let report = trainer.apply()?;
//! assert_eq!((report.rows, report.version), (4, 1));
//! # Ok(())
//! # }
//! ```
//!
//! # Bit equality
//! On the CPU device the same seed gives the same bits, whatever the number of threads, the make-up of a batch
//! and the order in which units arrive:
//! - one multiplication runs on one thread; threads share out whole units, never parts of a sum;
//! - a unit's gradient depends on that unit alone, and units are summed in a tree fixed by planned position, on however
//!   many ranks;
//! - the sums of a group that is trained early are integers;
//! - a sequence's logits do not depend on the sequences beside it in a batch;
//! - a sampled token is a pure function of weights, prompt and [`SampleKey`].
//!
//! The promise holds on one machine: which vector instructions and block sizes the multiplication uses is decided
//! by the processor found at run time.
#![warn(missing_docs)]

pub mod device;
mod error;
mod frame;
pub mod generation;
pub mod gradient;
pub mod parallel;
pub mod policy;
pub mod process_group;
pub mod publication;
pub mod random;
pub mod scheduler;
pub mod states;
pub mod trainer;

pub use device::{Copies, CpuDevice, CudaDevice, CudaOptions, Device, StandInDevice, StandInOptions};
pub use error::{Error, ErrorKind};
pub use generation::{GenerateOptions, GenerateRequest, Generation, generate};
pub use gradient::{
    Admission, EarlyOptions, LossForm, Objective, OpenGroup, PolicyTerm, RewardValues, Row, Sequence,
    Trajectory, Unit, UnitReport,
};
pub use parallel::{ExchangeReport, RankLinks};
pub use policy::{ModelType, Policy, PolicyConfig, StoredType};
pub use random::SampleKey;
pub use trainer::{
    AdamW, CachePayload, CacheReport, OpenGroupReport, Passes, StepReport, Trainer, TrainerOptions,
};
