//! What the agents act in: it asks, verifies, and hands on.

use forebay_store::SampleId;

use crate::error::Failure;

/// One finished turn of a trajectory.
#[derive(Clone, Copy, Debug)]
pub struct Turn<'a> {
    /// Who spoke.
    pub agent: &'a str,
    /// The sample.
    pub sample: &'a SampleId,
    /// Token ids that the agent was given.
    pub prompt: &'a [u32],
    /// Token ids that it wrote.
    pub response: &'a [u32],
}

/// The world that agents act in. Shared by all workers; the same turn always gets the same answer.
pub trait Environment: Send + Sync {
    /// The first prompt of an input, for the first agent of a trajectory.
    fn first_prompt(&self, agent: &str, input: &str) -> Result<Vec<u32>, Failure>;

    /// What a response is worth.
    ///
    /// # Errors
    /// When it cannot be told. The sample is then left out with this reason; it never counts as a reward of 0.
    fn reward(&self, turn: &Turn<'_>) -> Result<f32, Failure>;

    /// The prompt with which the next agent goes on.
    fn next_prompt(&self, next_agent: &str, turn: &Turn<'_>) -> Result<Vec<u32>, Failure>;

    /// Tokens as text, for people.
    fn text(&self, tokens: &[u32]) -> String;
}

/// Told of what workers do, as they do it. Calls come from worker threads.
pub trait Observer: Send + Sync {
    /// Responses were written.
    fn generated(&self, agent: &str, rows: usize, tokens: usize) {
        let _ = (agent, rows, tokens);
    }

    /// Rewards were written; rows that were left out are not counted.
    fn rewarded(&self, agent: &str, rows: usize, reward_sum: f64) {
        let _ = (agent, rows, reward_sum);
    }
}

/// An observer that does not care.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl Observer for Unobserved {}
