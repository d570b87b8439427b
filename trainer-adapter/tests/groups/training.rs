//! A caller of a group: it writes down which claims it hands out, and trains an agent to the end through suspensions and losses.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use forebay_trainer_adapter::process_group::{ClaimId, GroupError, Life, MicroBatch, ProcessGroup};

use crate::open_groups::{advantages, members, rewards};
use crate::program::{STEPS, batches, placement};

/// What the caller of a group has on stable storage: claims that were handed out, and claims that were consumed.
pub(crate) struct Records(PathBuf);

impl Records {
    pub(crate) fn of(folder: &Path) -> Self {
        Self(folder.join("records"))
    }

    fn add(&self, word: &str, claims: impl IntoIterator<Item = ClaimId>) {
        let mut file = OpenOptions::new().append(true).create(true).open(&self.0).unwrap();
        for claim in claims {
            writeln!(file, "{word} {claim}").unwrap();
        }
    }

    /// Claims that were handed out, and neither returned nor consumed; twice, if twice as often.
    pub(crate) fn open(&self) -> Vec<ClaimId> {
        let mut open = self.all("handed");
        for claim in self.all("returned") {
            let at =
                open.iter().position(|open| *open == claim).expect("only what was handed out is returned");
            open.swap_remove(at);
        }
        let consumed = self.all("consumed");
        open.retain(|claim| !consumed.contains(claim));
        open.sort_unstable();
        open
    }

    pub(crate) fn all(&self, word: &str) -> Vec<ClaimId> {
        let text = fs::read_to_string(&self.0).unwrap_or_default();
        let words = text.lines().filter_map(|line| line.split_once(' '));
        words.filter(|(found, _)| *found == word).map(|(_, claim)| ClaimId(claim.into())).collect()
    }
}

/// Trains an agent to the end of all steps, from wherever its state is: suspends after every second call, and goes on after losses.
pub(crate) struct Training<'a> {
    pub(crate) group: ProcessGroup,
    pub(crate) records: Records,
    pub(crate) agent: &'a str,
    calls: usize,
    /// Where the next start is: never where the last one was.
    starts: usize,
}

impl<'a> Training<'a> {
    pub(crate) fn new(group: ProcessGroup, folder: &Path, agent: &'a str) -> Self {
        Self { group, records: Records::of(folder), agent, calls: 0, starts: 0 }
    }

    pub(crate) fn run(&mut self) {
        self.recover();
        (0..STEPS).for_each(|step| self.run_step(step));
    }

    /// One step, to the end; the group is suspended then.
    pub(crate) fn run_step(&mut self, step: u64) {
        let mut failures = 0;
        while !self.is_consumed(step) {
            if let Err(error) = self.turn(step) {
                self.check_lost(&error);
                failures += 1;
                assert!(failures < 5, "{error}");
            }
        }
        if self.group.life() == Life::Active
            && let Err(error) = self.group.suspend()
        {
            self.check_lost(&error);
        }
    }

    /// After a crash of the coordinator: what the state has is kept, what it has not is returned.
    fn recover(&mut self) {
        let ledger = self.group.ledger().clone();
        let consumed: BTreeSet<ClaimId> = self.records.all("consumed").into_iter().collect();
        let applied = ledger.applied.iter().filter(|claim| !consumed.contains(claim)).cloned();
        self.records.add("consumed", applied);
        let open = self.records.open();
        self.records.add("returned", ledger.lost_of(&open));
        self.check_open();
    }

    fn is_consumed(&self, step: u64) -> bool {
        let consumed = self.records.all("consumed");
        self.claims(step).iter().all(|claim| consumed.contains(claim))
    }

    /// All claims of a step.
    fn claims(&self, step: u64) -> Vec<ClaimId> {
        let batches = batches(self.agent, step).into_iter().map(|batch| batch.claim);
        batches.chain(members(self.agent, step).into_iter().map(|member| member.claim)).collect()
    }

    fn turn(&mut self, step: u64) -> Result<(), GroupError> {
        let world = self.group.world();
        let placement = placement(["a", "b"][self.starts % 2], world);
        match self.group.life() {
            Life::Absent => drop(self.group.activate(&placement)?),
            Life::Suspended => drop(self.group.resume(&placement)?),
            _ => {}
        }
        self.starts += 1;
        let todo: Vec<MicroBatch> = batches(self.agent, step)
            .into_iter()
            .filter(|batch| !self.group.ledger().has(&batch.claim))
            .take(world)
            .collect();
        if todo.is_empty() {
            return if self.add_members(step)? { Ok(()) } else { self.finish(step) };
        }
        self.records.add("handed", todo.iter().map(|batch| batch.claim.clone()));
        self.group.accumulate(&todo)?;
        self.called()
    }

    /// Every second call is followed by a suspension.
    fn called(&mut self) -> Result<(), GroupError> {
        self.calls += 1;
        if self.calls.is_multiple_of(2) {
            self.group.suspend()?;
        }
        Ok(())
    }

    /// Two more members of open groups, or the next of the groups that are to be closed; false when there is nothing left of that.
    fn add_members(&mut self, step: u64) -> Result<bool, GroupError> {
        let members = members(self.agent, step).into_iter();
        let todo: Vec<_> = members.filter(|member| !self.group.ledger().has(&member.claim)).take(2).collect();
        if !todo.is_empty() {
            self.records.add("handed", todo.iter().map(|member| member.claim.clone()));
            self.group.add_trajectories(&todo)?;
        } else if let Some((&position, open)) = self.group.ledger().open.first_key_value() {
            let rewards = rewards(open.arrived.keys());
            self.group.close_group(position, &advantages(&rewards))?;
        } else {
            return Ok(false);
        }
        self.called()?;
        Ok(true)
    }

    /// The update, its state, and only then the records.
    fn finish(&mut self, step: u64) -> Result<(), GroupError> {
        if !self.group.ledger().accumulated.is_empty() {
            self.group.apply()?;
        }
        self.group.save()?;
        self.records.add("consumed", self.claims(step));
        self.group.settle()
    }

    /// Returns what the error says was lost, which has to be exactly what is not in the state.
    fn check_lost(&self, error: &GroupError) {
        assert!(!self.group.life().has_processes(), "{error}");
        self.records.add("returned", error.lost().iter().cloned());
        self.check_open();
    }

    /// The claims that are out are those whose gradient is in the state, each once.
    fn check_open(&self) {
        let ledger = self.group.ledger();
        let kept: Vec<ClaimId> = ledger.accumulated.union(&ledger.applied).cloned().collect();
        let consumed: BTreeSet<ClaimId> = self.records.all("consumed").into_iter().collect();
        let kept: Vec<ClaimId> = kept.into_iter().filter(|claim| !consumed.contains(claim)).collect();
        assert_eq!(self.records.open(), kept);
    }
}
