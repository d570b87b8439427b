//! Exact early training in a group of ranks: members of open groups are trained as they finish.
//!
//! A group is begun at the rank that has the fewest open groups when its first member comes, and stays there: sums are of one rank. Which
//! rank that is, and in which order members come, changes no bit of the closed group's gradient. All open groups of all ranks are in the
//! state, so a group goes on wherever the next start puts it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::boundary::Boundary;
use super::cached::OpenMembers;
use super::error::GroupError;
use super::group::ProcessGroup;
use super::life::Life;
use super::member::{Fault, Member, side_by_side};
use super::message::{Answer, Command};
use super::trajectory::BatchTrajectory;
use super::work::BatchOutcome;

impl ProcessGroup {
    /// Trains members of groups; a group that is not open is begun. A rank adds all that is its share of the call, or nothing of it. Gives
    /// what became of each share, by rank; ranks without one are left out.
    ///
    /// # Errors
    /// [`GroupError::ClaimTaken`] before anything was done; [`GroupError::RankLost`] and [`GroupError::States`] as
    /// [`Self::suspend`], claims of this call among the lost. [`GroupError::Life`] unless the group is active.
    pub fn add_trajectories(
        &mut self,
        trajectories: &[BatchTrajectory],
    ) -> Result<Vec<BatchOutcome>, GroupError> {
        self.expect(Life::Active, "add_trajectories")?;
        let asked = self.check_claims(trajectories.iter().map(|trajectory| &trajectory.claim))?;
        let (shares, limit) = (self.share_out_groups(trajectories), self.options.command_limit);
        let done = side_by_side(&mut self.members, |rank, member| match shares[rank].as_slice() {
            [] => None,
            share => Some(add_share(member, share, limit)),
        });
        self.observer.reached(Boundary::BatchesKnown);
        let (mut outcomes, mut faults) = (Vec::new(), Vec::new());
        for (rank, made) in done.into_iter().enumerate().filter_map(|(rank, made)| Some((rank, made?))) {
            match made {
                Ok(outcome) => {
                    if matches!(outcome, BatchOutcome::Accumulated { .. }) {
                        shares[rank].iter().for_each(|trajectory| self.arrived(rank, trajectory));
                    }
                    outcomes.push(outcome);
                }
                Err(fault) => faults.push(fault),
            }
        }
        if !faults.is_empty() {
            self.lose(faults, &asked)?;
        }
        Ok(outcomes)
    }

    /// Closes a group: its gradient under these advantages takes its place in the step. They are those of the members that have come, in
    /// the order of the members; those that have not are excluded, and never will. What they have to be says
    /// [`crate::Trainer::close_group`].
    ///
    /// # Errors
    /// [`GroupError::NoGroup`]; [`GroupError::Refused`] if the advantages do not fit: the group stays open.
    /// [`GroupError::RankLost`] and [`GroupError::States`] as [`Self::suspend`]: the group is as it was in the newest state, and may have
    /// to be closed again. [`GroupError::Life`] unless the group is active.
    pub fn close_group(&mut self, position: usize, advantages: &[f64]) -> Result<(), GroupError> {
        self.expect(Life::Active, "close_group")?;
        let rank = self.rank_of(position)?;
        let close = Command::Close { position, advantages: advantages.to_vec() };
        self.tell(rank, &close, &Answer::Closed)?;
        self.members[rank].open.remove(&position);
        self.current.open.remove(&position);
        Ok(())
    }

    /// Forgets an open group: it leaves the cache, its claims the ledger, and its place is free again. To make room for others, or as its
    /// members have come out otherwise; whoever holds its claims returns their rows.
    ///
    /// # Errors
    /// [`GroupError::NoGroup`]; [`GroupError::RankLost`] and [`GroupError::States`] as [`Self::suspend`].
    /// [`GroupError::Life`] unless the group is active.
    pub fn forget_group(&mut self, position: usize) -> Result<(), GroupError> {
        self.expect(Life::Active, "forget_group")?;
        let rank = self.rank_of(position)?;
        self.tell(rank, &Command::Forget { position: Some(position) }, &Answer::Forgotten)?;
        self.members[rank].open.remove(&position);
        let OpenMembers { arrived, .. } = self.current.open.remove(&position).unwrap_or_default();
        self.current.accumulated.retain(|claim| arrived.values().all(|forgotten| forgotten != claim));
        Ok(())
    }

    /// Forgets everything that is accumulated, open groups among it. What is applied stays.
    ///
    /// # Errors
    /// [`GroupError::RankLost`] and [`GroupError::States`] as [`Self::suspend`]. [`GroupError::Life`] unless the group is active.
    pub fn forget_accumulated(&mut self) -> Result<(), GroupError> {
        self.expect(Life::Active, "forget_accumulated")?;
        for rank in 0..self.members.len() {
            self.tell(rank, &Command::Forget { position: None }, &Answer::Forgotten)?;
            self.members[rank].open.clear();
        }
        self.current.accumulated.clear();
        self.current.open.clear();
        Ok(())
    }

    /// Refuses while groups are open.
    pub(super) fn expect_closed(&self) -> Result<(), GroupError> {
        let positions: Vec<usize> = self.current.open.keys().copied().collect();
        let agent = || self.agent.clone();
        if positions.is_empty() { Ok(()) } else { Err(GroupError::OpenGroups { agent: agent(), positions }) }
    }

    fn rank_of(&self, position: usize) -> Result<usize, GroupError> {
        let rank = self.members.iter().position(|member| member.open.contains(&position));
        rank.ok_or_else(|| GroupError::NoGroup { agent: self.agent.clone(), position })
    }

    /// Has a rank do what changes its cache. A rank that gives another answer than this one is lost, unless it refuses.
    fn tell(&mut self, rank: usize, command: &Command, expected: &Answer) -> Result<(), GroupError> {
        let member = &mut self.members[rank];
        member.is_changed = true;
        let fault = match member.ask(command, self.options.command_limit) {
            Ok(answer) if answer == *expected => return Ok(()),
            Ok(Answer::Refused { reason, .. }) => {
                return Err(GroupError::Refused { agent: self.agent.clone(), rank, reason });
            }
            Ok(other) => member.fault(format!("it answered {other:?}, and {expected:?} was expected")),
            Err(fault) => fault,
        };
        self.lose(vec![fault], &BTreeSet::new())
    }

    fn arrived(&mut self, rank: usize, trajectory: &BatchTrajectory) {
        let BatchTrajectory { claim, group, member, .. } = trajectory;
        self.members[rank].open.insert(group.position);
        let open = self.current.open.entry(group.position).or_default();
        open.planned = group.members;
        open.arrived.insert(*member, claim.clone());
        self.current.accumulated.insert(claim.clone());
    }

    /// Each member goes to the rank that has its group; groups that are not open, in their order, to the rank with the fewest.
    fn share_out_groups(&self, trajectories: &[BatchTrajectory]) -> Vec<Vec<BatchTrajectory>> {
        let mut open: Vec<usize> = self.members.iter().map(|member| member.open.len()).collect();
        let mut ranks = BTreeMap::new();
        let mut shares = vec![Vec::new(); self.members.len()];
        for trajectory in trajectories {
            let position = trajectory.group.position;
            let rank = *ranks.entry(position).or_insert_with(|| {
                self.rank_of(position).unwrap_or_else(|_| {
                    let fewest = (0..open.len()).min_by_key(|&rank| open[rank]).unwrap_or(0);
                    open[fewest] += 1;
                    fewest
                })
            });
            shares[rank].push(trajectory.clone());
        }
        shares
    }
}

fn add_share(member: &mut Member, share: &[BatchTrajectory], limit: Duration) -> Result<BatchOutcome, Fault> {
    member.is_changed = true;
    let rank = member.rank;
    match member.ask(&Command::Add(share.to_vec()), limit)? {
        Answer::Added { rows, tokens, compute_us } => {
            let compute = Duration::from_micros(compute_us);
            Ok(BatchOutcome::Accumulated { rank, rows, tokens, compute })
        }
        Answer::Refused { reason, .. } => Ok(BatchOutcome::Refused { rank, reason }),
        other => Err(member.fault(format!("it answered {other:?} to members of groups"))),
    }
}
