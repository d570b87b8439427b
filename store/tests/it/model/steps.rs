//! Steps, and going back to one.

use forebay_store::*;

use super::row::{Hold, origin};
use super::{Plan, Run};

impl Run {
    pub(super) fn begin(&mut self, rows: u64, inputs: u8) {
        if self.step.is_some() {
            assert!(matches!(
                self.store().begin_step(StepPlan::new()).unwrap_err().cause(),
                Cause::StepOpen { .. }
            ));
            return;
        }
        let train = self.store().consumer("train").unwrap();
        let (plan, planned) = if self.setup.group {
            let planned: Vec<u32> = (0..3).filter(|input| inputs >> input & 1 == 1).collect();
            let own = planned.iter().map(|input| format!("in{input}"));
            let peers = (0..=self.life.version + 1).flat_map(|version| {
                planned.iter().map(move |input| origin(version).group(&format!("in{input}")))
            });
            let keys: Vec<String> = own.chain(peers).collect();
            (StepPlan::new().groups(&train, keys), Plan::Inputs(planned))
        } else {
            (StepPlan::new().rows(&train, rows), Plan::Rows(rows))
        };
        let step = self.store().begin_step(plan).unwrap();
        assert_eq!(step.number(), self.life.last_step + 1);
        self.step = Some((step, planned));
    }

    pub(super) fn next(&mut self, rows: usize) {
        let Some((step, plan)) = &self.step else { return };
        let in_step = self
            .life
            .rows
            .iter()
            .filter(|r| matches!(r.train, Hold::Leased(_) | Hold::Accumulated(_)))
            .count();
        let (from, open) = match plan {
            Plan::Rows(planned) => (self.claimable(true), (*planned as usize).saturating_sub(in_step)),
            Plan::Inputs(inputs) => {
                (inputs.iter().flat_map(|&input| self.claimable_of(true, input)).collect(), usize::MAX)
            }
        };
        let train = self.store().consumer("train").unwrap();
        let claim = step.next(&train, MicroBatch::up_to(rows), Wait::No).unwrap();
        let expected = if open == 0 { 0 } else { from.len() };
        assert_eq!(claim.is_some(), expected > 0);
        if !self.setup.group {
            assert_eq!(step.is_complete(&train), open == claim.as_ref().map_or(0, Claim::len));
        }
        let Some(claim) = claim else { return };
        if !self.setup.group && self.of_one_kind(&from) {
            assert_eq!(claim.len(), rows.min(open).min(from.len()));
        }
        self.granted(claim, true, &from);
    }

    pub(super) fn accumulate(&mut self, claim: usize) {
        let Some(number) = self.claim_at(claim, true) else { return };
        let allowed = self.is_leased(number);
        let claim = self.claims.remove(&number).unwrap().handle;
        assert_eq!(claim.accumulated().is_ok(), allowed);
        if allowed {
            self.held(number).into_iter().for_each(|i| self.set_hold(true, i, Hold::Accumulated(number)));
        }
    }

    /// What the trainer holds goes back; handles of its claims stay and are fenced.
    pub(super) fn trainer_lost(&mut self) {
        for row in &mut self.life.rows {
            if row.train != Hold::Done {
                row.train = Hold::Free;
            }
        }
    }

    pub(super) fn drop_step(&mut self) {
        if self.step.take().is_some() {
            self.trainer_lost();
        }
    }

    pub(super) fn commit(&mut self, named: bool) {
        let Some((step, _)) = self.step.take() else { return };
        let leased = self.life.rows.iter().any(|row| matches!(row.train, Hold::Leased(_)));
        let accumulated: Vec<usize> = (0..self.life.rows.len())
            .filter(|&i| matches!(self.life.rows[i].train, Hold::Accumulated(_)))
            .collect();
        let allowed = !leased && accumulated.is_empty() != named;
        let updates = if named { vec![("t", vec![])] } else { vec![] };
        let committed = step.commit(updates);
        assert_eq!(committed.is_ok(), allowed, "{committed:?}");
        if !allowed {
            return self.trainer_lost();
        }
        let expected = CommittedStep { step: self.life.last_step + 1, rows: accumulated.len() as u64 };
        assert_eq!(committed.unwrap(), expected);
        for index in accumulated {
            (self.life.rows[index].train, self.life.rows[index].step) = (Hold::Done, Some(expected.step));
        }
        if named {
            self.policy_moves();
        }
        self.life.committed(named);
    }

    /// What the policy's next version leaves behind.
    fn policy_moves(&mut self) {
        self.life.version += 1;
        self.life.floor = self.oldest_fresh();
        for index in 0..self.life.rows.len() {
            let row = &self.life.rows[index];
            if row.eval || row.peer || row.excluded.is_some() || row.step.is_some() {
                continue;
            }
            if self.counts_as(row) < self.oldest_fresh() {
                self.life.rows[index].exclude("stale");
            } else {
                self.life.floor = self.life.floor.min(row.version);
            }
        }
    }

    pub(super) fn drop_cache(&mut self) {
        let Some((step, _)) = &self.step else { return };
        step.drop_cache("t").unwrap();
        for row in &mut self.life.rows {
            if let Hold::Accumulated(_) = row.train {
                row.train = Hold::Free;
            }
        }
    }

    /// Goes back so many steps. What that means within a window has a model of its own.
    pub(super) fn rewind(&mut self, back: usize, exclude: bool) {
        if self.setup.window.is_some() {
            return;
        }
        let at = self.life.steps.len().saturating_sub(back + 1);
        let step = self.life.steps[at].step;
        let how = if exclude { Rewind::Exclude } else { Rewind::TrainAgain };
        let allowed = self.step.is_none() && step >= self.life.oldest.0;
        let result = self.store().rewind(step, how);
        assert_eq!(result.is_ok(), allowed, "{result:?}");
        if allowed {
            self.life.rewind(at, exclude);
        }
    }
}
