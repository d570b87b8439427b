//! The first rows of a step: prompts only, everything else comes later.

use forebay_pipeline::plan::Membership;
use forebay_pipeline::route::Router;
use forebay_store::{NewRow, SampleId, Store};
use std::hash::Hasher;

use crate::columns::PROMPT;
use crate::environment::Environment;
use crate::error::{Cause, Result};

/// Inserts the rows that a step's trajectories begin with: one a planned trajectory, with its prompt.
///
/// All rows of the step come in one record. Repeating the call after a crash finds the rows that are there.
///
/// # Errors
/// `input` when an input has no prompt or the agent is unknown; `state` when the version is stale.
pub fn begin_trajectories(
    store: &Store,
    router: &Router,
    environment: &dyn Environment,
    agent: &str,
    membership: &Membership,
    version: u64,
    fingerprint: &str,
) -> Result<usize> {
    let table = store.table(router.table_of(agent)?)?;
    let mut batch = store.batch();
    for input in membership.inputs() {
        let prompt = environment
            .first_prompt(agent, input)
            .map_err(|source| Cause::Prompt { input: input.clone(), source })?;
        for sample in membership.samples(input, 0)? {
            let token = insert_token(agent, &sample, version);
            let row = NewRow::of(version, sample).agent(agent).weights(fingerprint).token(token);
            batch.insert(&table, row, [(PROMPT, (&prompt).into())])?;
        }
    }
    Ok(batch.commit()?.len())
}

/// The idempotency token of a rollout's insert: who, what, and under which version.
pub(crate) fn insert_token(agent: &str, sample: &SampleId, version: u64) -> u128 {
    let half = |salt: u8| {
        let mut hasher = xxhash_rust::xxh3::Xxh3::new();
        hasher.write(&[salt]);
        hasher.write(agent.as_bytes());
        hasher.write(&version.to_le_bytes());
        hasher.write(sample.to_string().as_bytes());
        u128::from(hasher.finish())
    };
    half(1) << 64 | half(2) | 1
}
