//! A trainer and what is in its cache, from the parts of a state and back.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};

use super::{Recipe, RecipeError};
use crate::device::Device;
use crate::error::Error;
use crate::gradient::{Admission, Row, Trajectory, Unit};
use crate::process_group::batch::MicroBatch;
use crate::process_group::cached::{Cached, OpenMembers};
use crate::process_group::ledger::{CachedClaim, cache_head, read_cache_head};
use crate::process_group::trajectory::BatchTrajectory;
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
            loaded.trainer.merge_cache_from(&mut *part)?;
            loaded.claims.extend(claims);
        }
        loaded.check()?;
        Ok(loaded)
    }

    /// Every unit in the cache is of a claim or of the claims of its members, every member in an open group of one, and every claim's
    /// units and members are there.
    fn check(&self) -> Result<(), RecipeError> {
        let cached = self.trainer.cache().positions;
        let open = self.trainer.arrived().into_iter();
        let open: BTreeMap<usize, BTreeSet<usize>> =
            open.map(|(position, (_, members))| (position, members)).collect();
        let (mut named, mut closed, mut members) = (Vec::new(), BTreeSet::new(), BTreeMap::new());
        for CachedClaim { claim, positions, member } in &self.claims {
            match (member, positions.as_slice()) {
                (None, positions) => named.extend_from_slice(positions),
                (Some(member), [position]) if open.contains_key(position) => {
                    let others: &mut BTreeSet<usize> = members.entry(*position).or_default();
                    if !others.insert(*member) {
                        return Err(format!("member {member} of group {position} is of two claims").into());
                    }
                }
                (Some(_), [position]) => _ = closed.insert(*position),
                (Some(_), other) => {
                    return Err(format!("claim {claim} is of one member, and names groups {other:?}").into());
                }
            }
        }
        named.extend(closed);
        named.sort_unstable();
        if named != cached {
            return Err(format!("claims name units {named:?}, and the cache has {cached:?}").into());
        }
        if members == open {
            Ok(())
        } else {
            Err(format!("claims name members {members:?} of open groups, and the cache has {open:?}").into())
        }
    }

    /// What is in the cache.
    pub(super) fn cached(&self) -> Cached {
        let groups = self.trainer.arrived().into_iter();
        let mut open: BTreeMap<usize, OpenMembers> = groups
            .map(|(position, (planned, _))| (position, OpenMembers { planned, arrived: BTreeMap::new() }))
            .collect();
        for CachedClaim { claim, positions, member } in &self.claims {
            let Some(member) = member else { continue };
            let group = positions.first().and_then(|position| open.get_mut(position));
            group.into_iter().for_each(|group| _ = group.arrived.insert(*member, claim.clone()));
        }
        Cached { claims: self.claims.iter().map(|cached| cached.claim.clone()).collect(), open }
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
        self.claims.push(CachedClaim { claim: batch.claim.clone(), positions, member: None });
        let total = |of: fn(&crate::UnitReport) -> u64| reports.iter().map(of).sum();
        Ok((total(|report| report.rows), total(|report| report.tokens)))
    }

    /// All members, or none; groups that are not open are begun. Gives rows and tokens.
    pub(super) fn add(&mut self, trajectories: &[BatchTrajectory]) -> Result<(u64, u64), RecipeError> {
        let mut begun = Vec::new();
        let added = self.begin_groups(trajectories, &mut begun).and_then(|()| self.add_rows(trajectories));
        if added.is_err() {
            begun.into_iter().try_for_each(|position| self.trainer.exclude_group(position))?;
        }
        added?;
        self.claims.extend(trajectories.iter().map(|trajectory| CachedClaim {
            claim: trajectory.claim.clone(),
            positions: vec![trajectory.group.position],
            member: Some(trajectory.member),
        }));
        let rows = trajectories.iter().map(|trajectory| trajectory.rows.len() as u64).sum();
        Ok((rows, trajectories.iter().map(BatchTrajectory::tokens).sum()))
    }

    /// Begins the groups that are not open; `begun` are those that were, also after an error.
    fn begin_groups(
        &mut self,
        trajectories: &[BatchTrajectory],
        begun: &mut Vec<usize>,
    ) -> Result<(), RecipeError> {
        for trajectory in trajectories {
            let group = trajectory.group.open_group();
            if self.trainer.is_begun(&group)? {
                continue;
            }
            match self.trainer.begin_group(&group)? {
                Admission::Open { .. } => begun.push(group.position),
                Admission::WholeGroups { bytes, budget_bytes } => {
                    let position = group.position;
                    let reason = format!(
                        "with the group at position {position} the sums of open groups would take {bytes} bytes of {budget_bytes}"
                    );
                    return Err(reason.into());
                }
            }
        }
        Ok(())
    }

    fn add_rows(&mut self, trajectories: &[BatchTrajectory]) -> Result<(), RecipeError> {
        let rows: Vec<Vec<Row<'_>>> = trajectories
            .iter()
            .map(|trajectory| trajectory.rows.iter().map(|row| row.row()).collect())
            .collect();
        let borrowed: Vec<Trajectory<'_, Row<'_>>> = trajectories
            .iter()
            .zip(&rows)
            .map(|(trajectory, rows)| Trajectory {
                group: trajectory.group.position,
                member: trajectory.member,
                reward: trajectory.reward,
                rows,
            })
            .collect();
        self.trainer.add_trajectories(&borrowed)?;
        Ok(())
    }

    /// Closes a group; who has not come is excluded first.
    pub(super) fn close(&mut self, position: usize, advantages: &[f64]) -> Result<(), Error> {
        self.trainer.close_with_who_came(position, advantages).map(drop)
    }

    /// Forgets an open group, or everything in the cache.
    pub(super) fn forget(&mut self, position: Option<usize>) -> Result<(), Error> {
        match position {
            Some(position) => {
                self.trainer.exclude_group(position)?;
                self.claims.retain(|cached| cached.positions != [position]);
            }
            None => {
                self.trainer.drop_cache();
                self.forget_claims();
            }
        }
        Ok(())
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
