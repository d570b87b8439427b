//! A trainer and what is in its cache, from the parts of a state and back.

use super::{Recipe, RecipeError};
use crate::device::Device;
use crate::error::Error;
use crate::gradient::{Row, Unit};
use crate::process_group::batch::{ClaimId, MicroBatch};
use crate::process_group::ledger::{CachedClaim, cache_part, read_cache_part};
use crate::states::{States, StatesError, Which};
use crate::trainer::{CachePayload, Trainer};

/// The part that is [`Trainer::state`].
pub(in crate::process_group) const TRAINER: &str = "trainer";

/// What was read of a state.
pub(super) struct Parts {
    /// Nothing: the agent has no state yet.
    trainer: Option<Vec<u8>>,
    caches: Vec<Vec<u8>>,
}

/// Reads what a rank takes of a version; 0 is no version.
pub(super) fn read(
    states: &dyn States,
    key: &str,
    version: u64,
    caches: &[String],
) -> Result<Parts, StatesError> {
    if version == 0 {
        return Ok(Parts { trainer: None, caches: Vec::new() });
    }
    let part = |part: &str| states.read(key, Which::Exact(version), part);
    let caches = caches.iter().map(|cache| part(cache)).collect::<Result<_, _>>()?;
    Ok(Parts { trainer: Some(part(TRAINER)?), caches })
}

/// A trainer, and which claims are in its cache.
pub(super) struct Loaded<D: Device> {
    pub(super) trainer: Trainer<D>,
    claims: Vec<CachedClaim>,
}

impl<D: Device> Loaded<D> {
    pub(super) fn new<R: Recipe<Device = D>>(
        recipe: &mut R,
        device: &D,
        parts: Parts,
    ) -> Result<Self, RecipeError> {
        let trainer = match &parts.trainer {
            Some(state) => recipe.restore(device, state)?,
            None => recipe.create(device)?,
        };
        let mut loaded = Self { trainer, claims: Vec::new() };
        for part in &parts.caches {
            let (claims, cache) = read_cache_part(part)?;
            let payload = CachePayload::from_bytes(cache)?;
            if loaded.trainer.cache().positions.is_empty() {
                loaded.trainer.import_cache(&payload)?;
            } else {
                loaded.trainer.merge_cache(&payload)?;
            }
            loaded.claims.extend(claims);
        }
        loaded.check()?;
        Ok(loaded)
    }

    /// Every unit in the cache is of a claim, and every claim's units are in the cache.
    fn check(&self) -> Result<(), RecipeError> {
        let mut named: Vec<usize> =
            self.claims.iter().flat_map(|cached| cached.positions.iter().copied()).collect();
        named.sort_unstable();
        let cached = self.trainer.cache().positions;
        if named == cached {
            Ok(())
        } else {
            Err(format!("claims name units {named:?}, and the cache has {cached:?}").into())
        }
    }

    pub(super) fn claim_ids(&self) -> Vec<ClaimId> {
        self.claims.iter().map(|cached| cached.claim.clone()).collect()
    }

    /// All units of the micro-batch, or none. Gives rows and tokens.
    pub(super) fn accumulate(&mut self, batch: &MicroBatch) -> Result<(u64, u64), Error> {
        let rows: Vec<Vec<Row<'_>>> =
            batch.units.iter().map(|unit| unit.rows.iter().map(|row| row.row()).collect()).collect();
        let units: Vec<Unit<'_, Row<'_>>> = batch
            .units
            .iter()
            .zip(&rows)
            .map(|(unit, rows)| Unit {
                position: unit.position,
                policy: &unit.policy,
                version: unit.version,
                rows,
            })
            .collect();
        let reports = self.trainer.accumulate_many(&units)?;
        let positions = batch.units.iter().map(|unit| unit.position).collect();
        self.claims.push(CachedClaim { claim: batch.claim.clone(), positions });
        let total = |of: fn(&crate::UnitReport) -> u64| reports.iter().map(of).sum();
        Ok((total(|report| report.rows), total(|report| report.tokens)))
    }

    /// Nothing is in the cache any more.
    pub(super) fn forget_claims(&mut self) {
        self.claims.clear();
    }

    /// The cache as a part; nothing if it is empty.
    pub(super) fn cache(&self) -> Option<Vec<u8>> {
        let cache = || cache_part(&self.claims, &self.trainer.export_cache().to_bytes());
        (!self.claims.is_empty()).then(cache)
    }
}
