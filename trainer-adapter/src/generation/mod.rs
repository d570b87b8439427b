//! Sampling from a policy.
//!
//! Requests of one call are decoded together, one token of each at a time; a sequence that stops leaves the batch. Equal
//! prompts run through the model once. What is generated for a request is a pure function of the weights, its prompt,
//! its key and the options: neither the other requests nor their order change a bit.

mod decoder;
mod generator;
mod request;
mod sampler;
mod slot;

pub use generator::Generator;
pub use request::{GenerateOptions, GenerateRequest, Generation};

use crate::device::Device;
use crate::error::Error;
use crate::policy::Policy;

/// Generates a response for each request.
///
/// For many calls keep a [`Generator`], which keeps its buffers.
///
/// # Errors
/// As [`Generator::generate`].
pub fn generate<D: Device>(
    device: &D,
    policy: &Policy<D>,
    requests: &[GenerateRequest<'_>],
    options: &GenerateOptions,
) -> Result<Vec<Generation>, Error> {
    Generator::new(device).generate(policy, requests, options)
}
