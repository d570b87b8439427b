//! The next version of a state, put together from what ranks have staged and what the newest version has already.

use std::time::Duration;

use super::cached::Cached;
use super::group::ProcessGroup;
use super::ledger::Ledger;
use super::member::{Fault, Member};
use super::message::{Answer, Command};
use super::rank::loaded::TRAINER;
use super::setting::CACHE;
use crate::states::{Staged, StatesError, Version, Which};

/// What a rank has said when it was asked for its part.
pub(super) struct Said {
    /// Which of the members.
    pub(super) index: usize,
    pub(super) policy_version: u64,
    pub(super) cached: Cached,
    pub(super) trainer: Option<Staged>,
    pub(super) cache: Option<Staged>,
}

/// Why a rank has not staged its part.
pub(super) enum NotStaged {
    /// It would not: it is as before, and may be asked again.
    Refused(Fault),
    /// It is lost.
    Lost(Fault),
}

impl From<Fault> for NotStaged {
    fn from(fault: Fault) -> Self {
        Self::Lost(fault)
    }
}

/// The next version, put together.
pub(super) struct Draft {
    pub(super) ledger: Ledger,
    pub(super) policy_version: u64,
    pub(super) parts: Vec<Staged>,
    /// What each member has of it.
    pub(super) caches: Vec<Held>,
    /// Whether it is another state than the newest version.
    pub(super) is_new: bool,
}

/// Which cached gradients of the next version a rank has, or had begun with.
pub(super) struct Held {
    pub(super) caches: Vec<String>,
    pub(super) cached: Cached,
}

impl Held {
    /// What it began with stays as it is, unless an update has used it up, or the rank has staged it anew with more.
    fn of(member: &Member, said: Option<&Said>, has_moved: bool, version: u64) -> Self {
        match said {
            Some(said) if has_moved || member.is_changed => {
                let cache = said.cache.as_ref().map(|_| cache_name(version, member.rank));
                Self { caches: cache.into_iter().collect(), cached: said.cached.clone() }
            }
            None if has_moved => Self { caches: Vec::new(), cached: Cached::default() },
            _ => Self { caches: member.caches.clone(), cached: member.kept.clone() },
        }
    }

    /// The parts: what the rank has staged, else those that the newest version has.
    fn parts(
        &self,
        said: Option<&Said>,
        newest: Option<&Version>,
        agent: &str,
    ) -> Result<Vec<Staged>, StatesError> {
        match said.and_then(|said| said.cache.clone()) {
            Some(staged) => Ok(vec![staged]),
            None => self.caches.iter().map(|part| kept_part(newest, part, agent)).collect(),
        }
    }
}

impl ProcessGroup {
    /// Puts the parts together; nothing if the last rank was lost meanwhile. `said` are ranks at the newest version of the policy.
    pub(super) fn draft(
        &mut self,
        mut said: Vec<Said>,
        policy_version: u64,
        faults: &mut Vec<Fault>,
    ) -> Result<Option<Draft>, StatesError> {
        let newest = self.states.find(&self.agent, Which::Latest)?;
        let has_moved = self.kept_policy_version != Some(policy_version);
        let trainer = match has_moved {
            true => self.staged_trainer(&mut said, faults),
            false => Some(kept_part(newest.as_ref(), TRAINER, &self.agent)?),
        };
        let Some(trainer) = trainer else { return Ok(None) };
        let mut ledger = Ledger { applied: self.current.applied.clone(), ..Ledger::default() };
        if policy_version > self.policy_version {
            ledger.applied.extend(self.current.accumulated.iter().cloned());
        }
        let (mut parts, mut caches) = (vec![trainer], Vec::new());
        for (index, member) in self.members.iter().enumerate() {
            let one = said.iter().find(|said| said.index == index);
            let held = Held::of(member, one, has_moved, self.version + 1);
            ledger.add(&held.cached);
            parts.extend(held.parts(one, newest.as_ref(), &self.agent)?);
            caches.push(held);
        }
        // A cache may have changed under the same claims: they were taken back, and came again.
        let has_cache = said.iter().any(|said| said.cache.is_some());
        let is_new = has_moved || has_cache || ledger != self.kept;
        Ok(Some(Draft { ledger, policy_version, parts, caches, is_new }))
    }

    /// The trainer as a rank staged it that is at the newest version of the policy; the next is asked where one is lost, or refuses.
    fn staged_trainer(&mut self, said: &mut Vec<Said>, faults: &mut Vec<Fault>) -> Option<Staged> {
        let limit = self.options.command_limit;
        if let Some(trainer) = said.iter().find_map(|said| said.trainer.clone()) {
            return Some(trainer);
        }
        let mut refusals = Vec::new();
        while let Some(index) = said.get(refusals.len()).map(|said| said.index) {
            let command = Command::Stage { trainer: true, cache: String::new() };
            let fault = match stage(index, &mut self.members[index], &command, limit) {
                Ok(Said { trainer: Some(trainer), .. }) => return Some(trainer),
                Ok(_) => self.members[index].fault("it did not stage its trainer"),
                Err(NotStaged::Lost(fault)) => fault,
                Err(NotStaged::Refused(refusal)) => {
                    refusals.push(refusal); // what it has staged before counts
                    continue;
                }
            };
            faults.push(fault);
            said.remove(refusals.len());
        }
        faults.append(&mut refusals);
        None
    }
}

/// What these ranks have staged just now.
pub(super) fn staged_by(said: &[Said]) -> Vec<Staged> {
    said.iter().flat_map(|said| said.trainer.iter().chain(&said.cache)).cloned().collect()
}

pub(super) fn cache_name(version: u64, rank: usize) -> String {
    format!("{CACHE}{version}.{rank}")
}

pub(super) fn stage(
    index: usize,
    member: &mut Member,
    command: &Command,
    limit: Duration,
) -> Result<Said, NotStaged> {
    match member.ask(command, limit)? {
        Answer::Staged { policy_version, cached, trainer, cache } => {
            Ok(Said { index, policy_version, cached, trainer, cache })
        }
        Answer::Refused { reason, .. } => Err(NotStaged::Refused(member.fault(reason))),
        other => Err(NotStaged::Lost(member.fault(format!("it answered {other:?} to stage")))),
    }
}

fn kept_part(newest: Option<&Version>, name: &str, agent: &str) -> Result<Staged, StatesError> {
    let part = newest.and_then(|version| version.part(name));
    part.map(|part| part.staged.clone()).ok_or_else(|| missing(agent, name))
}

fn missing(agent: &str, what: &str) -> StatesError {
    StatesError::Missing { key: agent.to_owned(), what: what.to_owned() }
}
