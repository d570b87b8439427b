//! What is asked for, and what comes of it.

use crate::error::Error;
use crate::policy::PolicyConfig;
use crate::random::SampleKey;

/// A response to be sampled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GenerateRequest<'a> {
    /// Tokens that are given. Not empty.
    pub prompt: &'a [u32],
    /// Names the random numbers that the response is drawn with.
    pub key: SampleKey,
}

/// How responses are sampled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GenerateOptions {
    /// What logits are divided by before sampling; 0 takes the likeliest token (the lowest of equals). Default 1.
    pub temperature: f32,
    /// Most tokens of a response, the stop token included. Default 32.
    pub max_new_tokens: usize,
    /// The token that ends a response; without one responses run to `max_new_tokens`. Default none.
    pub stop_token: Option<u32>,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self { temperature: 1.0, max_new_tokens: 32, stop_token: None }
    }
}

/// A sampled response.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Generation {
    /// The tokens; the last one is the stop token if the response finished.
    pub tokens: Vec<u32>,
    /// Log-probability of each token, in nats, under the distribution that it was sampled from (at temperature 0: under
    /// that of temperature 1).
    pub log_probs: Vec<f32>,
    /// Whether the stop token was sampled.
    pub finished: bool,
}

impl GenerateOptions {
    /// The least temperature above 0: below it, logits that are divided by it leave the range of 32 bits.
    pub const TEMPERATURE_MIN: f32 = 1e-6;

    /// Checks options and requests against a policy.
    pub(super) fn check(&self, config: &PolicyConfig, requests: &[GenerateRequest<'_>]) -> Result<(), Error> {
        let sampled = self.temperature.is_finite() && self.temperature >= Self::TEMPERATURE_MIN;
        if !(sampled || self.temperature == 0.0) {
            let (field, reason) =
                ("temperature", "has to be 0, which takes the likeliest token, or at least 1e-6");
            return Err(Error::Config { field, value: self.temperature.to_string(), reason });
        }
        let (vocab_size, limit) = (config.vocab_size, config.max_position_embeddings);
        for (row, request) in requests.iter().enumerate() {
            if request.prompt.is_empty() {
                return Err(Error::EmptyPrompt { row });
            }
            let length = request.prompt.len().saturating_add(self.max_new_tokens);
            if length > limit {
                return Err(Error::TooLong { row, length, limit });
            }
            if let Some(&token) = request.prompt.iter().find(|&&token| token as usize >= vocab_size) {
                return Err(Error::Token { row, token, vocab_size });
            }
        }
        Ok(())
    }
}
