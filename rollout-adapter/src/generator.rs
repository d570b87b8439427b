//! What samples: an inference server, or a policy in the same process.

use forebay_store::SampleId;

use crate::error::Failure;

/// One response that is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The sample, which together with its attempt keys the random numbers that it is drawn with.
    pub sample: &'a SampleId,
    /// Which attempt at the sample this is, from 0.
    pub attempt: u64,
    /// Token ids to go on from.
    pub prompt: &'a [u32],
}

/// One response.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    /// Token ids, the end token included.
    pub tokens: Vec<u32>,
    /// Natural logarithms of the probabilities with which they were sampled, one each.
    pub logprobs: Vec<f32>,
}

/// Samples responses. A worker owns one, so it may keep buffers.
pub trait Generator: Send {
    /// Answers each request, in order, with the weights of exactly this version of the agent's policy.
    ///
    /// # Errors
    /// Whatever keeps it from answering; the rows go back and the worker stops.
    fn generate(
        &mut self,
        agent: &str,
        version: u64,
        requests: &[Request<'_>],
    ) -> Result<Vec<Response>, Failure>;

    /// What tells the weights of this version of the agent's policy from any others; empty where nobody knows.
    fn fingerprint(&self, agent: &str, version: u64) -> String {
        let _ = (agent, version);
        String::new()
    }
}
