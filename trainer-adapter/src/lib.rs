//! The reference policy, its devices and its gradient cache.
//!
//! The reference policy is a small decoder-only transformer in the Qwen2 layout, trained by a hand-written
//! backward pass on flat fp32 buffers. It is the embedded default of Forebay and the yardstick of its tests;
//! it is no framework for large models.
//!
//! Read the modules in this order:
//! - [`policy`]: the configuration, the flat parameter layout, one immutable version of the weights;
//! - [`generation`]: sampling from a policy, with a key-value cache;
//! - [`gradient`]: what one unit (a closed group) adds to the step, and the cache that keeps it;
//! - [`trainer`]: units in, one update out;
//! - [`device`]: the arithmetic that all of them are written in, and the CPU that does it;
//! - [`random`]: the counter generator.
//!
//! # Bit equality
//! On the CPU device the same seed gives the same bits, whatever the number of threads, the make-up of a batch
//! and the order in which units arrive:
//! - one multiplication runs on one thread; threads share out whole units, never parts of a sum;
//! - a unit's gradient depends on that unit alone, and units are summed in a tree fixed by planned position;
//! - a sequence's logits do not depend on the sequences beside it in a batch;
//! - a sampled token is a pure function of weights, prompt and [`SampleKey`].
//!
//! The promise holds on one machine: which vector instructions and block sizes the multiplication uses is decided
//! by the processor found at run time.
#![warn(missing_docs)]

pub mod device;
mod error;
pub mod generation;
pub mod gradient;
pub mod policy;
pub mod random;
pub mod trainer;

pub use device::{CpuDevice, Device};
pub use error::{Error, ErrorKind};
pub use generation::{GenerateOptions, GenerateRequest, Generation, generate};
pub use gradient::{LossForm, Sequence, Unit, UnitReport};
pub use policy::{Policy, PolicyConfig, StoredType};
pub use random::SampleKey;
pub use trainer::{AdamW, CacheReport, StepReport, Trainer, TrainerOptions};
