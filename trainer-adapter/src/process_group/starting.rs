//! Starting a group: processes, their first word, their state. All ranks, or none is left.

use std::time::{Duration, Instant};

use super::boundary::Boundary;
use super::cached::Cached;
use super::error::GroupError;
use super::group::ProcessGroup;
use super::ledger::Ledger;
use super::life::Life;
use super::member::{Fault, Member, place, side_by_side, socket};
use super::message::{Answer, Command, LoadTimes};
use super::setting::CACHE;
use crate::scheduler::Placement;
use crate::states::{StatesError, Version};

/// What a start took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartReport {
    /// The processes, by rank.
    pub pids: Vec<u32>,
    /// From the first process on until all had said hello.
    pub spawn: Duration,
    /// From there on until all had their state.
    pub load: Duration,
    /// What the slowest rank took for each part of loading.
    pub slowest: LoadTimes,
    /// The version of the state that the group began with; the first one was set by this start.
    pub version: u64,
    /// The version of the policy in it.
    pub policy_version: u64,
}

impl ProcessGroup {
    /// Starts all ranks from the newest version, or none.
    pub(super) fn start(&mut self, placement: &Placement) -> Result<StartReport, GroupError> {
        let (world, devices) = (self.options.world, placement.devices.len());
        if devices != world {
            let reason = format!("{devices} devices for {world} ranks; each has one of its own");
            return Err(GroupError::Config { agent: self.agent.clone(), field: "placement", reason });
        }
        let version = self.expected_version()?;
        self.go(Life::Starting);
        self.observer.reached(Boundary::Placed);
        self.try_start(placement, version.as_ref()).map_err(|fault| {
            self.counts.failed_starts += 1;
            let failed = self.members.iter_mut().find(|member| member.rank == fault.rank);
            let exit = failed.map(Member::kill);
            self.end_all(true);
            self.go(self.rest());
            let (agent, Fault { rank, reason }) = (self.agent.clone(), fault);
            GroupError::NotStarted { agent, rank, reason, exit }
        })
    }

    fn try_start(&mut self, placement: &Placement, version: Option<&Version>) -> Result<StartReport, Fault> {
        let began = Instant::now();
        let (world, socket) = (self.options.world, socket(&self.launcher.folder(&placement.node)));
        for rank in 0..world {
            let place = place(&self.agent, (rank, world), placement, &socket);
            let spawned = Member::spawn(self.launcher.as_ref(), &place);
            self.members.push(spawned.map_err(|error| Fault { rank, reason: error.to_string() })?);
            self.observer.reached(Boundary::Spawned);
        }
        let limit = self.options.start_limit;
        all(side_by_side(&mut self.members, |_, member| member.greet(limit)))?;
        self.observer.reached(Boundary::Greeted);
        let (spawn, began) = (began.elapsed(), Instant::now());
        let (policy_version, cached) = self.load(version)?;
        let mut found = Ledger { applied: self.kept.applied.clone(), ..Ledger::default() };
        cached.iter().for_each(|cached| found.add(cached));
        if found != self.kept {
            let reason = "what is in the ranks' caches is not what the ledger names";
            return Err(Fault { rank: 0, reason: reason.into() });
        }
        self.policy_version = policy_version;
        self.kept_policy_version = version.map(|_| policy_version);
        self.current = self.kept.clone();
        self.go(Life::Active);
        self.observer.reached(Boundary::Activated);
        let times = || self.members.iter().map(|member| member.load_times);
        let slowest = LoadTimes {
            context_us: times().map(|times| times.context_us).max().unwrap_or(0),
            get_us: times().map(|times| times.get_us).max().unwrap_or(0),
            copy_us: times().map(|times| times.copy_us).max().unwrap_or(0),
        };
        let (pids, load, version) = (self.pids(), began.elapsed(), self.version);
        self.counts.starts.add(spawn + load);
        Ok(StartReport { pids, spawn, load, slowest, version, policy_version })
    }

    /// All ranks get their state; caches are shared out among them. Gives the policy's version and what is in the caches.
    fn load(&mut self, version: Option<&Version>) -> Result<(u64, Vec<Cached>), Fault> {
        let caches: Vec<&str> = version.map(cache_parts).unwrap_or_default();
        let (world, number) = (self.options.world, version.map_or(0, |version| version.number));
        for member in &mut self.members {
            let own = caches.iter().skip(member.rank).step_by(world);
            (member.caches, member.is_changed) = (own.map(|&part| part.to_owned()).collect(), false);
        }
        let (key, limit) = (self.agent.clone(), self.options.start_limit);
        let loaded = all(side_by_side(&mut self.members, |_, member| {
            let load = Command::Load { key: key.clone(), version: number, caches: member.caches.clone() };
            match member.ask(&load, limit)? {
                Answer::Loaded { policy_version, cached, times } => {
                    member.open = cached.open.keys().copied().collect();
                    (member.load_times, member.kept) = (times, cached.clone());
                    Ok((policy_version, cached))
                }
                Answer::Refused { reason, .. } => Err(member.fault(reason)),
                other => Err(member.fault(format!("it answered {other:?} to load"))),
            }
        }))?;
        let policy_version = loaded[0].0;
        match loaded.iter().position(|(other, _)| *other != policy_version) {
            Some(rank) => {
                let reason =
                    format!("it is at version {} of the policy, rank 0 at {policy_version}", loaded[rank].0);
                Err(Fault { rank, reason })
            }
            None => Ok((policy_version, loaded.into_iter().map(|(_, cached)| cached).collect())),
        }
    }

    /// The newest version; it has to be the one that this group knows of.
    fn expected_version(&self) -> Result<Option<Version>, GroupError> {
        let newest = self.newest()?;
        let found = newest.as_ref().map_or(0, |version| version.number);
        if found == self.version {
            return Ok(newest);
        }
        let (key, expected) = (self.agent.clone(), self.version);
        Err(self.failed(StatesError::Conflict { key, expected, found }))
    }
}

/// The results of all ranks, or the first fault.
fn all<T>(results: Vec<Result<T, Fault>>) -> Result<Vec<T>, Fault> {
    results.into_iter().collect()
}

fn cache_parts(version: &Version) -> Vec<&str> {
    let names = version.parts.iter().map(|part| part.name.as_str());
    names.filter(|name| name.starts_with(CACHE)).collect()
}
