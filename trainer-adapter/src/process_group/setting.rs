//! Setting a group's state: whole, or after a loss as much of it as is left.
//!
//! The procedure
//! 1. Every rank that is there says which version of the policy it has and which claims are in its cache, and stages its cache if
//!    that has changed. One rank stages the trainer, if the weights have moved.
//! 2. What did not change is named once more, not copied: the trainer between updates, caches of ranks that did nothing, and
//!    those that a lost rank had begun with.
//! 3. The ledger is made of what the ranks said, and staged.
//! 4. One commit makes these parts the next version. Before it the old version is the state; after it the new one is. No moment
//!    has none.
//!
//! A rank that refuses to stage its part costs nothing where the group goes on: what others have staged is let go of, and all may be asked again. Where the
//! processes end, it is as one that is lost; but one that refuses the trainer is asked for its cache alone, and the next one for the trainer.
//!
//! A rank that is lost on the way takes with it what it accumulated since the version that it began with, and nothing else. If it is
//! lost in an update, those that have made the update have the gradient of all: then the update stands, and the caches of those
//! that have not made it are part of it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::batch::ClaimId;
use super::boundary::Boundary;
use super::draft::{Draft, NotStaged, Said, cache_name, stage, staged_by};
use super::error::GroupError;
use super::group::ProcessGroup;
use super::launcher::RankExit;
use super::life::Life;
use super::member::{Fault, Member, side_by_side};
use super::message::Command;
use crate::states::{Staged, StatesError, Version, Which};

/// The part that is the ledger.
pub(super) const LEDGER: &str = "ledger";

/// What the names of parts that are caches begin with; version and rank follow.
pub(super) const CACHE: &str = "cache.";

/// What a suspension took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuspendReport {
    /// The version that the state is kept as.
    pub version: u64,
    /// How each process ended.
    pub exits: Vec<RankExit>,
    /// Setting the state.
    pub set: Duration,
    /// From there on until the last process had ended and its memory was free.
    pub end: Duration,
}

impl ProcessGroup {
    /// Sets the state, ends all processes and waits until they have ended: then their memory is free for others.
    ///
    /// # Errors
    /// [`GroupError::RankLost`] if a rank was lost on the way, or could not stage its part: the group is suspended with what is left.
    /// [`GroupError::States`] if nothing could be set: the group is suspended as its newest version says. [`GroupError::Unknown`] if
    /// nobody can say whether it was set. [`GroupError::Life`] unless it is active.
    pub fn suspend(&mut self) -> Result<SuspendReport, GroupError> {
        self.expect(Life::Active, "suspend")?;
        let began = Instant::now();
        self.go(Life::Suspending);
        let collected = self.collect(Vec::new());
        let outcome = self.set(collected);
        let (set, began) = (began.elapsed(), Instant::now());
        let exits = self.leave();
        let end = began.elapsed();
        self.counts.suspends.add(set + end);
        self.conclude(outcome, &BTreeSet::new(), &exits)?;
        Ok(SuspendReport { version: self.version, exits, set, end })
    }

    /// Sets the state and stays active: nothing that was accumulated or applied until now is lost any more. Gives the version.
    ///
    /// # Errors
    /// [`GroupError::NotStaged`] if a rank could not stage its part: the group is active and as before. Otherwise as [`Self::suspend`];
    /// after any but this and [`GroupError::Life`] the group is suspended.
    pub fn save(&mut self) -> Result<u64, GroupError> {
        self.expect(Life::Active, "save")?;
        let mut collected = self.collect(Vec::new());
        // Before the first version there is nothing that the group could go back to.
        let goes_on = self.version > 0 && collected.faults.is_empty();
        if goes_on && let Some(Fault { rank, reason }) = collected.refusals.pop() {
            self.discard(&staged_by(&collected.said));
            return Err(GroupError::NotStaged { agent: self.agent.clone(), rank, reason });
        }
        let outcome = self.set(collected);
        if !outcome.as_ref().is_ok_and(Vec::is_empty) {
            self.go(Life::Suspending);
            let exits = self.leave();
            self.conclude(outcome, &BTreeSet::new(), &exits)?;
        }
        Ok(self.version)
    }

    /// Lets go of what was staged for a version that is not made, or it would take the room of the next try.
    fn discard(&self, staged: &[Staged]) {
        staged.iter().for_each(|part| self.states.discard(&self.agent, part));
    }

    /// Ranks were lost: keeps what the others have, and ends them. `asked` are claims that were being accumulated.
    ///
    /// # Errors
    /// [`GroupError::RankLost`], unless the loss could not even be kept: [`GroupError::States`], [`GroupError::Unknown`].
    pub(super) fn lose(&mut self, faults: Vec<Fault>, asked: &BTreeSet<ClaimId>) -> Result<(), GroupError> {
        self.go(Life::Suspending);
        let exits = self.kill(&faults);
        let collected = self.collect(faults);
        let outcome = self.set(collected);
        let exits = [exits, self.leave()].concat();
        self.conclude(outcome, asked, &exits)
    }

    /// Ends the processes that are faulty.
    fn kill(&mut self, faults: &[Fault]) -> Vec<RankExit> {
        let is_faulty = |member: &&mut Member| faults.iter().any(|fault| fault.rank == member.rank);
        self.members.iter_mut().filter(is_faulty).map(Member::kill).collect()
    }

    /// Ends all processes.
    fn leave(&mut self) -> Vec<RankExit> {
        let exits = self.end_all(false);
        self.go(self.rest());
        exits
    }

    /// What there is to say once the group has no processes any more.
    fn conclude(
        &mut self,
        outcome: Result<Vec<Fault>, NotSet>,
        asked: &BTreeSet<ClaimId>,
        exits: &[RankExit],
    ) -> Result<(), GroupError> {
        let known: BTreeSet<&ClaimId> =
            self.current.accumulated.iter().chain(&self.current.applied).chain(asked).collect();
        let (agent, lost) = (self.agent.clone(), self.kept.lost_of(known));
        self.current = self.kept.clone();
        let faults = match outcome {
            Ok(faults) => faults,
            Err(NotSet::Refused(source)) => return Err(GroupError::States { agent, lost, source }),
            Err(NotSet::Unknown(source)) => {
                let version = match source {
                    StatesError::NotDurable { version, .. } => version,
                    _ => self.version + 1,
                };
                return Err(GroupError::Unknown { agent, version, claims: lost, source });
            }
        };
        self.counts.lost_ranks += faults.len() as u64;
        let Some(Fault { rank, reason }) = faults.into_iter().next() else { return Ok(()) };
        let exit = exits.iter().find(|exit| exit.rank == rank).copied();
        Err(GroupError::RankLost { agent, rank, reason, exit, lost })
    }

    /// Makes what is left the next version. Gives all ranks that are lost, those that were lost before first.
    fn set(&mut self, mut collected: Collected) -> Result<Vec<Fault>, NotSet> {
        self.ask_without_trainer(&mut collected);
        let Collected { mut said, mut faults, refusals, .. } = collected;
        faults.extend(refusals);
        if let Some(policy_version) = said.iter().map(|said| said.policy_version).max() {
            said.retain(|said| said.policy_version == policy_version);
            let staged = staged_by(&said);
            match self.draft(said, policy_version, &mut faults)? {
                Some(draft) => self.commit(draft)?,
                None => self.discard(&staged),
            }
        }
        Ok(faults)
    }

    /// What the ranks that are not lost have, staged where it has changed.
    fn collect(&mut self, faults: Vec<Fault>) -> Collected {
        self.observer.reached(Boundary::Setting);
        let lost: Vec<usize> = faults.iter().map(|fault| fault.rank).collect();
        let first = (0..self.members.len()).find(|rank| !lost.contains(rank));
        let has_moved = self.kept_policy_version != Some(self.policy_version);
        let (limit, version) = (self.options.command_limit, self.version + 1);
        let asked = side_by_side(&mut self.members, |index, member| {
            if lost.contains(&member.rank) {
                return None;
            }
            let command = command_of(member, version, has_moved && Some(index) == first);
            Some(stage(index, member, &command, limit))
        });
        let trainer_of = first.filter(|_| has_moved);
        let mut collected = Collected { said: Vec::new(), refusals: Vec::new(), faults, trainer_of };
        asked.into_iter().flatten().for_each(|asked| collected.take(asked));
        collected
    }

    /// A rank that refuses to stage the trainer with its cache may have room for the cache.
    fn ask_without_trainer(&mut self, collected: &mut Collected) {
        let Some(index) = collected.trainer_of else { return };
        let Some(at) = collected.refusals.iter().position(|refusal| refusal.rank == index) else { return };
        collected.refusals.remove(at);
        let (limit, member) = (self.options.command_limit, &mut self.members[index]);
        let command = command_of(member, self.version + 1, false);
        collected.take(stage(index, member, &command, limit));
    }

    fn commit(&mut self, draft: Draft) -> Result<(), NotSet> {
        let Draft { ledger, policy_version, mut parts, caches, is_new } = draft;
        if !is_new {
            return Ok(());
        }
        parts.push(self.states.stage(&self.agent, LEDGER, &ledger.to_bytes())?);
        self.observer.reached(Boundary::AllStaged);
        self.version = match self.states.commit(&self.agent, self.version, &parts) {
            Ok(version) => version,
            // It is there, and not what was promised: no version to go on from, and nobody may train on its claims meanwhile.
            Err(error @ StatesError::NotDurable { is_taken_back: false, .. }) => {
                return Err(NotSet::Unknown(error));
            }
            // The disk, or the way there, may have failed behind the moment that made it a version.
            Err(error) => match self.committed(&parts) {
                Ok(Some(version)) => version,
                Ok(None) => return Err(error.into()),
                Err(_) if error.leaves_all_as_it_was() => return Err(error.into()),
                Err(_) => return Err(NotSet::Unknown(error)),
            },
        };
        self.observer.reached(Boundary::Committed);
        for (member, held) in self.members.iter_mut().zip(caches) {
            (member.caches, member.kept, member.is_changed) = (held.caches, held.cached, false);
        }
        self.kept = ledger;
        (self.kept_policy_version, self.policy_version) = (Some(policy_version), policy_version);
        Ok(())
    }

    /// The number of the version after the newest that is known, if it is there and made of exactly these parts; it is durable then. The first
    /// may have any number, and so may one that comes after one that was taken back.
    fn committed(&self, parts: &[Staged]) -> Result<Option<u64>, StatesError> {
        let mut next = match self.version {
            0 => None,
            version => self.states.find(&self.agent, Which::Exact(version + 1))?,
        };
        if next.is_none() {
            next = self.states.find(&self.agent, Which::Latest)?;
        }
        let is_ours = |version: &Version| version.parts.iter().map(|part| &part.staged).eq(parts);
        let ours = next.filter(is_ours).map(|version| version.number);
        // A commit that was not answered may have been left before its end.
        ours.map_or(Ok(()), |number| self.states.make_durable(&self.agent, number))?;
        Ok(ours)
    }
}

/// What ranks say that are asked for their parts.
struct Collected {
    said: Vec<Said>,
    /// Of those that would not stage them.
    refusals: Vec<Fault>,
    /// Of those that are lost.
    faults: Vec<Fault>,
    /// The rank that was asked for the trainer as well, if one was.
    trainer_of: Option<usize>,
}

impl Collected {
    fn take(&mut self, asked: Result<Said, NotStaged>) {
        match asked {
            Ok(one) => self.said.push(one),
            Err(NotStaged::Refused(refusal)) => self.refusals.push(refusal),
            Err(NotStaged::Lost(fault)) => self.faults.push(fault),
        }
    }
}

/// What a rank is asked for: its cache if that has changed, and the trainer where that is its part.
fn command_of(member: &Member, version: u64, trainer: bool) -> Command {
    let cache = if member.is_changed { cache_name(version, member.rank) } else { String::new() };
    Command::Stage { trainer, cache }
}

/// Why there is no next version, as far as is known.
enum NotSet {
    /// There is none.
    Refused(StatesError),
    /// There may be one: neither the commit nor a look after it was answered. Or there is, and it is not as durable as was promised.
    Unknown(StatesError),
}

impl From<StatesError> for NotSet {
    fn from(error: StatesError) -> Self {
        Self::Refused(error)
    }
}

#[cfg(test)]
mod tests;
