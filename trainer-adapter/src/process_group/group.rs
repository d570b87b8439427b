//! A group, its beginning and its end; its start is in `starting.rs`, work in `work.rs`, setting its state in `setting.rs`,
//! a state that comes from elsewhere in `beginning.rs`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::batch::ClaimId;
use super::boundary::{Boundary, Observer};
use super::counts::GroupCounts;
use super::error::GroupError;
use super::launcher::{Launcher, RankExit};
use super::ledger::Ledger;
use super::life::Life;
use super::member::Member;
use super::setting::LEDGER;
use super::starting::StartReport;
use crate::scheduler::Placement;
use crate::states::{States, StatesError, Version, Which};

/// How a group is run: plain data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupOptions {
    /// Ranks. Default 1.
    pub world: usize,
    /// How long a rank may take to say hello, and then to get its state; more than 0. Default a minute.
    pub start_limit: Duration,
    /// How long a rank may take for a micro-batch, an update, or to stage its state; more than 0. Default ten minutes.
    pub command_limit: Duration,
    /// How long a rank that was told to end may take before it is killed; 0 is at once. Default ten seconds.
    pub end_limit: Duration,
}

impl GroupOptions {
    /// Refuses what no group can be run with. A socket takes no limit of 0, and whoever asked for one would lose every rank for it.
    fn check(&self) -> Result<(), (&'static str, String)> {
        if self.world == 0 {
            return Err(("world", "has to be at least 1".to_owned()));
        }
        for (field, limit) in [("start_limit", self.start_limit), ("command_limit", self.command_limit)] {
            if limit.is_zero() {
                return Err((field, format!("{limit:?} leaves a rank no time to answer; give more than 0")));
            }
        }
        Ok(())
    }
}

impl Default for GroupOptions {
    fn default() -> Self {
        Self {
            world: 1,
            start_limit: Duration::from_secs(60),
            command_limit: Duration::from_secs(600),
            end_limit: Duration::from_secs(10),
        }
    }
}

/// All trainer processes of one agent. See the module for its life, and for what holds when something dies.
pub struct ProcessGroup {
    pub(super) agent: String,
    pub(super) options: GroupOptions,
    pub(super) launcher: Arc<dyn Launcher>,
    pub(super) states: Arc<dyn States>,
    pub(super) observer: Observer,
    pub(super) life: Life,
    pub(super) members: Vec<Member>,
    /// The newest version of the state; 0 if there is none.
    pub(super) version: u64,
    /// The version of the policy in that; nothing as long as no group was started from it.
    pub(super) kept_policy_version: Option<u64>,
    /// The version of the policy in the ranks.
    pub(super) policy_version: u64,
    /// What is in the newest version.
    pub(super) kept: Ledger,
    /// What is in the ranks, where there are any.
    pub(super) current: Ledger,
    /// Of the next update, if it was said.
    pub(super) learning_rate: Option<f64>,
    pub(super) counts: GroupCounts,
}

impl fmt::Debug for ProcessGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { agent, life, version, .. } = self;
        f.debug_struct("ProcessGroup")
            .field("agent", agent)
            .field("life", life)
            .field("version", version)
            .field("pids", &self.pids())
            .finish_non_exhaustive()
    }
}

impl ProcessGroup {
    /// The group of an agent as its newest state says: absent if there is none, else suspended. No process is started. A version that its
    /// coordinator did not live to make durable is made so first: nobody may go on from what a power failure would still take.
    ///
    /// This is also what is called after the coordinator has died: [`Self::ledger`] then tells of every claim that was handed out
    /// whether its gradient is in the state. One coordinator at a time for an agent; `agent` is the key of its state.
    ///
    /// # Errors
    /// [`GroupError::Config`], [`GroupError::States`], [`GroupError::Damaged`].
    pub fn create(
        agent: impl Into<String>,
        options: GroupOptions,
        launcher: Arc<dyn Launcher>,
        states: Arc<dyn States>,
    ) -> Result<Self, GroupError> {
        let agent = agent.into();
        if let Err((field, reason)) = options.check() {
            return Err(GroupError::Config { agent, field, reason });
        }
        let (kept, current, counts) = Default::default();
        let mut group = Self {
            agent,
            options,
            launcher,
            states,
            observer: Observer::default(),
            life: Life::Absent,
            members: Vec::new(),
            version: 0,
            kept_policy_version: None,
            policy_version: 0,
            kept,
            current,
            learning_rate: None,
            counts,
        };
        if let Some(version) = group.newest()? {
            let durable = group.states.make_durable(&group.agent, version.number);
            durable.map_err(|error| group.failed(error))?;
            group.kept = group.read_ledger(&version)?;
            (group.version, group.life) = (version.number, Life::Suspended);
        }
        Ok(group)
    }

    /// The same, telling whenever a boundary is reached.
    #[must_use]
    pub fn observed(mut self, observer: Observer) -> Self {
        self.observer = observer;
        self
    }

    /// Starts the group of an agent that has no state: its trainer is made anew, and its first state is set before the group is
    /// active. So from here on there is always a version to go back to.
    ///
    /// # Errors
    /// [`GroupError::NotStarted`], [`GroupError::States`]: all ranks are started or none. [`GroupError::Life`] unless it is absent;
    /// [`GroupError::Config`] if the placement has not one device a rank.
    pub fn activate(&mut self, placement: &Placement) -> Result<StartReport, GroupError> {
        self.expect(Life::Absent, "activate")?;
        let mut report = self.start(placement)?;
        self.save()?;
        report.version = self.version;
        Ok(report)
    }

    /// Starts the group from its state, wherever that was set.
    ///
    /// # Errors
    /// As [`Self::activate`]; [`GroupError::Life`] unless it is suspended.
    pub fn resume(&mut self, placement: &Placement) -> Result<StartReport, GroupError> {
        self.expect(Life::Suspended, "resume")?;
        self.start(placement)
    }

    /// Ends all processes without setting anything, for good. The states that were set stay where they are.
    ///
    /// Gives the claims whose gradient is in no state: return their rows.
    pub fn destroy(mut self) -> (Vec<RankExit>, Vec<ClaimId>) {
        let exits = self.end_all(true);
        self.go(Life::Destroyed);
        let lost = self.kept.lost_of(self.current.accumulated.iter().chain(&self.current.applied));
        (exits, lost)
    }

    /// The agent.
    pub fn agent(&self) -> &str {
        &self.agent
    }

    /// Where the group is in its life.
    pub fn life(&self) -> Life {
        self.life
    }

    /// How many ranks it has, when it has any.
    pub fn world(&self) -> usize {
        self.options.world
    }

    /// The processes, by rank; none unless it is active.
    pub fn pids(&self) -> Vec<u32> {
        self.members.iter().map(Member::pid).collect()
    }

    /// The newest version of its state; 0 if none was set.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The claims whose gradient is in the ranks if it is active, and in its newest state otherwise.
    pub fn ledger(&self) -> &Ledger {
        if self.life.has_processes() { &self.current } else { &self.kept }
    }

    /// What it has been through since it was created.
    pub fn counts(&self) -> GroupCounts {
        self.counts
    }

    pub(super) fn expect(&self, life: Life, call: &'static str) -> Result<(), GroupError> {
        if self.life == life { Ok(()) } else { Err(self.life_error(call)) }
    }

    pub(super) fn life_error(&self, call: &'static str) -> GroupError {
        GroupError::Life { agent: self.agent.clone(), life: self.life, call }
    }

    pub(super) fn go(&mut self, next: Life) {
        debug_assert!(self.life.leads_to(next), "{} does not lead to {next}", self.life);
        self.life = next;
    }

    /// Where a group without processes is.
    pub(super) fn rest(&self) -> Life {
        if self.version == 0 { Life::Absent } else { Life::Suspended }
    }

    /// Ends all processes at once, wherever a call was left: what is in no version is lost.
    pub(super) fn abandon(&mut self) {
        if self.life.has_processes() {
            self.end_all(true);
            (self.life, self.current) = (self.rest(), self.kept.clone());
        }
    }

    /// Ends all processes. Ranks that are not killed are told to end, and return.
    pub(super) fn end_all(&mut self, is_killed: bool) -> Vec<RankExit> {
        let limit = self.options.end_limit;
        if !is_killed {
            self.members.iter_mut().for_each(Member::tell_end);
            self.observer.reached(Boundary::EndTold);
        }
        let mut members = std::mem::take(&mut self.members);
        let end = |member: &mut Member| if is_killed { member.kill() } else { member.end(limit) };
        let exits = members.iter_mut().map(end).collect();
        self.observer.reached(Boundary::Ended);
        exits
    }

    pub(super) fn newest(&self) -> Result<Option<Version>, GroupError> {
        self.states.find(&self.agent, Which::Latest).map_err(|error| self.failed(error))
    }

    fn read_ledger(&self, version: &Version) -> Result<Ledger, GroupError> {
        let bytes = self.states.read(&self.agent, Which::Exact(version.number), LEDGER);
        let bytes = bytes.map_err(|error| self.failed(error))?;
        Ledger::from_bytes(&bytes).map_err(|error| GroupError::Damaged {
            agent: self.agent.clone(),
            version: version.number,
            reason: error.to_string(),
        })
    }

    /// A failure that lost nothing.
    pub(super) fn failed(&self, source: StatesError) -> GroupError {
        GroupError::States { agent: self.agent.clone(), lost: Vec::new(), source }
    }
}

impl Drop for ProcessGroup {
    /// Ends all processes; what was not set is lost. [`ProcessGroup::suspend`] keeps it.
    fn drop(&mut self) {
        if !self.members.is_empty() {
            self.end_all(true);
        }
    }
}
