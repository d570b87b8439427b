//! A trainer and what is in its cache, from the parts of a state and back.

use std::io::{self, Read, Write};

use super::{Recipe, RecipeError};
use crate::device::Device;
use crate::error::Error;
use crate::gradient::{Row, Unit};
use crate::process_group::batch::{ClaimId, MicroBatch};
use crate::process_group::ledger::{CachedClaim, cache_head, read_cache_head};
use crate::states::{Staged, States, StatesError, Which};
use crate::trainer::Trainer;

/// The part that is [`Trainer::state`].
pub(in crate::process_group) const TRAINER: &str = "trainer";

/// What a rank takes of a state: found, and where it has to be mapped, mapped; not read.
pub(super) struct Parts<'a> {
    /// Nothing: the agent has no state yet.
    trainer: Option<Box<dyn Read + 'a>>,
    caches: Vec<Box<dyn Read + 'a>>,
}

/// Finds what a rank takes of a version; 0 is no version.
pub(super) fn open<'a>(
    states: &'a dyn States,
    key: &str,
    version: u64,
    caches: &[String],
) -> Result<Parts<'a>, StatesError> {
    if version == 0 {
        return Ok(Parts { trainer: None, caches: Vec::new() });
    }
    let part = |part: &str| states.open(key, Which::Exact(version), part);
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
        parts: Parts<'_>,
    ) -> Result<Self, RecipeError> {
        let trainer = match parts.trainer {
            Some(mut state) => {
                let trainer = recipe.restore(device, &mut *state)?;
                // The end says whether the bytes were what was staged, and no recipe is trusted to have looked there.
                io::copy(&mut state, &mut io::sink())?;
                trainer
            }
            None => recipe.create(device)?,
        };
        let mut loaded = Self { trainer, claims: Vec::new() };
        for mut part in parts.caches {
            let claims = read_cache_head(&mut *part)?;
            if loaded.trainer.cache().positions.is_empty() {
                loaded.trainer.import_cache_from(&mut *part)?;
            } else {
                loaded.trainer.merge_cache_from(&mut *part)?;
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

    /// Stages the trainer, straight from where it lies.
    pub(super) fn stage_trainer(&self, states: &dyn States, key: &str) -> Result<Staged, StatesError> {
        let state = self.trainer.state_stream();
        states.stage_from(key, TRAINER, state.bytes(), &mut |to| state.write(to))
    }

    /// Stages the cache; nothing if it is empty.
    pub(super) fn stage_cache(
        &self,
        states: &dyn States,
        key: &str,
        part: &str,
    ) -> Result<Option<Staged>, StatesError> {
        if self.claims.is_empty() {
            return Ok(None);
        }
        let cache = self.trainer.cache_stream();
        let head = cache_head(&self.claims, cache.bytes());
        let bytes = head.len() as u64 + cache.bytes();
        let mut fill = |to: &mut dyn Write| to.write_all(&head).and_then(|()| cache.write(to));
        states.stage_from(key, part, bytes, &mut fill).map(Some)
    }
}
