//! Who may have what, and the claims of a task.

use std::time::Duration;

use forebay_store::*;

use super::row::{Content, Hold, ModelRow, value};
use super::{MEMBERS, ModelClaim, Run};
use crate::support::*;

impl Run {
    /// Rows of an input that can be claimed, by scanning.
    pub(super) fn claimable_of(&self, trainer: bool, input: u32) -> Vec<usize> {
        let own = (self.life.floor..=self.life.version).map(|version| (false, version));
        let mut peers: Vec<u64> =
            self.life.rows.iter().filter(|row| row.peer).map(|row| row.version).collect();
        peers.sort_unstable();
        peers.dedup();
        let all = own.chain(peers.into_iter().map(|version| (true, version)));
        all.flat_map(|of| self.claimable_at(trainer, of, input)).collect()
    }

    /// Those of one origin and version: groups do not mix them.
    pub(super) fn claimable_at(&self, trainer: bool, of: (bool, u64), input: u32) -> Vec<usize> {
        let here = |index: &usize| {
            let row = &self.life.rows[*index];
            (row.peer, row.version) == of && row.input == input && !(trainer && row.eval)
        };
        let rows: Vec<usize> = (0..self.life.rows.len()).filter(here).collect();
        let ready: Vec<usize> = rows
            .iter()
            .copied()
            .filter(|&i| self.life.rows[i].is_ready(trainer, self.life.version))
            .collect();
        let settled = rows.iter().filter(|&&i| match &self.life.rows[i] {
            row if row.deleted || row.excluded.is_some() => self.latest(i),
            row => row.hold(trainer) != Hold::Free,
        });
        let complete = ready.len() + settled.count() >= MEMBERS as usize;
        if !self.setup.group || complete { ready } else { Vec::new() }
    }

    pub(super) fn claimable(&self, trainer: bool) -> Vec<usize> {
        (0..3).flat_map(|input| self.claimable_of(trainer, input)).collect()
    }

    pub(super) fn claim_at(&self, index: usize, trainer: bool) -> Option<u64> {
        let of_kind: Vec<u64> =
            self.claims.iter().filter(|(_, c)| c.trainer == trainer).map(|(n, _)| *n).collect();
        of_kind.get(index.checked_rem(of_kind.len())?).copied()
    }

    /// Rows that a claim holds still.
    pub(super) fn held(&self, number: u64) -> Vec<usize> {
        let holds = |row: &ModelRow| {
            [row.train, row.task]
                .iter()
                .any(|h| *h == Hold::Leased(number) || *h == Hold::Accumulated(number))
        };
        (0..self.life.rows.len()).filter(|&i| holds(&self.life.rows[i])).collect()
    }

    pub(super) fn set_hold(&mut self, trainer: bool, index: usize, hold: Hold) {
        let row = &mut self.life.rows[index];
        *(if trainer { &mut row.train } else { &mut row.task }) = hold;
    }

    pub(super) fn give_back(&mut self, number: u64) {
        for index in self.held(number) {
            let row = &mut self.life.rows[index];
            for hold in [&mut row.train, &mut row.task] {
                if matches!(hold, Hold::Leased(n) | Hold::Accumulated(n) if *n == number) {
                    *hold = Hold::Free;
                }
            }
        }
    }

    /// Whether the lease of a claim is still the holder's.
    pub(super) fn is_leased(&self, number: u64) -> bool {
        self.store().claims().iter().any(|c| c.claim == number && c.progress == ClaimProgress::Leased)
    }

    /// Whether rows are of one version, or all of peers: a micro-batch takes them together.
    pub(super) fn of_one_kind(&self, rows: &[usize]) -> bool {
        let kind = |index: usize| Some(self.life.rows[index].version).filter(|_| !self.life.rows[index].peer);
        rows.iter().all(|&index| kind(index) == kind(rows[0]))
    }

    /// Takes a granted claim in, after a look at whether it may be so.
    pub(super) fn granted(&mut self, claim: Claim, trainer: bool, from: &[usize]) {
        let indexes: Vec<usize> = claim
            .rows()
            .iter()
            .map(|row| self.life.rows.iter().position(|r| r.row == *row).unwrap())
            .collect();
        assert!(self.of_one_kind(&indexes), "a micro-batch of {indexes:?}");
        for &index in &indexes {
            assert!(from.contains(&index), "row {index} was claimed, but only {from:?} could be");
            if self.setup.group {
                let ModelRow { version, peer, input, .. } = self.life.rows[index];
                let whole = self.claimable_at(trainer, (peer, version), input);
                assert!(whole.iter().all(|member| indexes.contains(member)), "a part of a group");
            }
        }
        let number = claim.epoch().1;
        indexes.iter().for_each(|&index| self.set_hold(trainer, index, Hold::Leased(number)));
        let deadline = self.world.clock.now().after(LEASE);
        self.claims.insert(number, ModelClaim { handle: claim, trainer, deadline });
    }

    pub(super) fn task_claim(&mut self, rows: usize) {
        let from = self.claimable(false);
        let task = self.store().consumer("task").unwrap();
        let claim = task.claim(MicroBatch::up_to(rows), "model", Wait::No).unwrap();
        assert_eq!(claim.as_ref().map_or(0, Claim::len) > 0, !from.is_empty());
        let Some(claim) = claim else { return };
        if !self.setup.group && self.of_one_kind(&from) {
            assert_eq!(claim.len(), rows.min(from.len()));
        }
        self.granted(claim, false, &from);
    }

    /// Whether it was finished; otherwise its lease was given back.
    pub(super) fn task_finish(&mut self, claim: usize, write: bool) -> bool {
        let Some(number) = self.claim_at(claim, false) else { return false };
        let claim = self.claims.remove(&number).unwrap().handle;
        let rows = claim.rows().to_vec();
        let indexes: Vec<usize> =
            rows.iter().map(|row| self.life.rows.iter().position(|r| r.row == *row).unwrap()).collect();
        let (_, shown) = value(2, 2);
        let writable = !write || indexes.iter().all(|&index| self.takes(index, 2, &shown).0);
        let allowed = self.is_leased(number) && writable;
        let table = self.table().clone();
        let finished = claim.finish(|batch| {
            let rows = rows.iter().filter(|_| write);
            rows.copied().try_for_each(|row| batch.write(&table, row, [("reward", value(2, 2).0)]))
        });
        assert_eq!(finished.is_ok(), allowed);
        if !allowed {
            self.give_back(number);
            return false;
        }
        for index in indexes {
            if write {
                self.life.rows[index].cells[2] = Content::Final(shown.clone());
            }
            if self.life.rows[index].task == Hold::Leased(number) {
                self.life.rows[index].task = Hold::Done;
            }
        }
        true
    }

    pub(super) fn advance(&mut self, seconds: u64) {
        self.world.clock.advance(Duration::from_secs(seconds));
        self.store().run_once().unwrap();
        let now = self.world.clock.now();
        let leased = |row: &ModelRow, n: u64| row.train == Hold::Leased(n) || row.task == Hold::Leased(n);
        let due: Vec<u64> = self
            .claims
            .iter()
            .filter(|(n, c)| c.deadline <= now && self.life.rows.iter().any(|row| leased(row, **n)))
            .map(|(n, _)| *n)
            .collect();
        due.into_iter().for_each(|number| self.give_back(number));
        if self.setup.window.is_none() {
            self.life.retain();
        }
    }

    pub(super) fn drop_claim(&mut self, claim: usize) {
        let number = self.claim_at(claim, true).or(self.claim_at(claim, false));
        let Some(number) = number else { return };
        self.give_back(number);
        self.claims.remove(&number);
    }
}
