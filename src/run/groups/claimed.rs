//! What a claim of the store brings to train on, and what is known of claims that are accumulated.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use forebay_store::{Claim, Kind};
use forebay_trainer_adapter::process_group::{BatchTrajectory, ClaimId, Ledger, MicroBatch};

/// A micro-batch as ranks take it.
pub(super) enum Work {
    /// Each of its groups is a unit of its own.
    Groups(Vec<MicroBatch>),
    /// Members of groups, others of which may come later.
    Members(Vec<GroupPart>),
}

/// What a claim has of one group.
#[derive(Clone)]
pub(super) struct GroupPart {
    /// The group's planned place in the step.
    pub(super) position: usize,
    /// The store's name for it.
    pub(super) key: String,
    pub(super) members: Vec<BatchTrajectory>,
}

/// A micro-batch and its claim.
pub(super) struct Claimed {
    pub(super) claim: Claim,
    pub(super) work: Work,
}

impl Claimed {
    /// Names of the gradients of all of it.
    pub(super) fn gradients(&self) -> Vec<ClaimId> {
        match &self.work {
            Work::Groups(batches) => batches.iter().map(|batch| batch.claim.clone()).collect(),
            Work::Members(parts) => {
                let members = parts.iter().flat_map(|part| &part.members);
                members.map(|member| member.claim.clone()).collect()
            }
        }
    }

    /// Whether a ledger has the gradients of all of it.
    pub(super) fn is_in(&self, ledger: &Ledger) -> bool {
        self.gradients().iter().all(|gradient| ledger.has(gradient))
    }

    /// Says that the gradients are in the cache, and gives what is to be remembered of the claim. A claim that has ended meanwhile is none:
    /// its rows come again, with the same names, and the answer is nothing.
    pub(super) fn accumulated(self) -> Result<Option<Held>> {
        let (epoch, gradients) = (self.claim.epoch(), self.gradients());
        let arrived = match &self.work {
            Work::Groups(_) => Vec::new(),
            Work::Members(parts) => parts.iter().map(Arrived::of).collect(),
        };
        match self.claim.accumulated() {
            Err(error) if error.kind() == Kind::State => {
                tracing::debug!(%error, "a claim has ended; its rows come again");
                Ok(None)
            }
            said => Ok(said.map(|()| Some(Held { epoch, gradients, arrived }))?),
        }
    }
}

/// Members of one group that have come.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Arrived {
    pub(super) position: usize,
    /// The store's name for the group.
    pub(super) key: String,
    /// Their gradients and rewards, by number.
    pub(super) members: BTreeMap<usize, (ClaimId, f64)>,
}

impl Arrived {
    fn of(part: &GroupPart) -> Self {
        let members = part.members.iter();
        let members = members.map(|member| (member.member, (member.claim.clone(), member.reward))).collect();
        Arrived { position: part.position, key: part.key.clone(), members }
    }
}

/// A claim that is accumulated, and the gradients that it was accumulated for.
#[derive(Debug, PartialEq)]
pub(super) struct Held {
    epoch: (u64, u64),
    gradients: Vec<ClaimId>,
    arrived: Vec<Arrived>,
}

/// The claims of a step that are accumulated in the store.
#[derive(Debug, Default)]
pub(super) struct AllHeld {
    claims: Vec<Held>,
    /// The groups that they have members of, by position.
    groups: BTreeMap<usize, Arrived>,
}

impl AllHeld {
    pub(super) fn add(&mut self, held: Held) {
        held.arrived.iter().for_each(|arrived| join(&mut self.groups, arrived));
        self.claims.push(held);
    }

    /// Takes those out of which a ledger does not have every gradient, and gives their epochs.
    pub(super) fn take_lost(&mut self, ledger: &Ledger) -> Vec<(u64, u64)> {
        let is_lost = |held: &mut Held| !held.gradients.iter().all(|gradient| ledger.has(gradient));
        let lost = self.claims.extract_if(.., is_lost).map(|lost| lost.epoch).collect();
        self.groups.clear();
        let arrived = self.claims.iter().flat_map(|held| &held.arrived);
        arrived.for_each(|arrived| join(&mut self.groups, arrived));
        lost
    }

    /// A gradient that only they have or only these are; nothing where both are the same.
    pub(super) fn other_than<'a>(&self, gradients: impl IntoIterator<Item = &'a ClaimId>) -> Option<ClaimId> {
        let own: BTreeSet<&ClaimId> = self.claims.iter().flat_map(|held| &held.gradients).collect();
        let others: BTreeSet<&ClaimId> = gradients.into_iter().collect();
        own.symmetric_difference(&others).next().copied().cloned()
    }

    /// The members of the group at this place that have come, those in these parts too; nothing where there are none.
    pub(super) fn arrived(&self, position: usize, at_hand: &[GroupPart]) -> Option<Arrived> {
        let mut group: BTreeMap<usize, Arrived> = BTreeMap::new();
        self.groups.get(&position).into_iter().for_each(|arrived| join(&mut group, arrived));
        let at_hand = at_hand.iter().filter(|part| part.position == position);
        at_hand.for_each(|part| join(&mut group, &Arrived::of(part)));
        group.remove(&position)
    }

    /// Whether anybody has come of the group at this place.
    pub(super) fn has_come(&self, position: usize, at_hand: &[GroupPart]) -> bool {
        self.groups.contains_key(&position) || at_hand.iter().any(|part| part.position == position)
    }
}

fn join(groups: &mut BTreeMap<usize, Arrived>, arrived: &Arrived) {
    match groups.get_mut(&arrived.position) {
        Some(group) => group.members.extend(arrived.members.clone()),
        None => _ = groups.insert(arrived.position, arrived.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<ClaimId> {
        names.iter().map(|name| ClaimId((*name).into())).collect()
    }

    fn held(number: u64, gradients: &[&str]) -> Held {
        Held { epoch: (1, number), gradients: names(gradients), arrived: Vec::new() }
    }

    fn all(held: impl IntoIterator<Item = Held>) -> AllHeld {
        let mut all = AllHeld::default();
        held.into_iter().for_each(|held| all.add(held));
        all
    }

    // FX-57: exactly the rows whose gradient was lost
    #[test]
    fn what_is_lost_is_what_the_ledger_does_not_have_and_is_told_once() {
        let mut all = all([held(1, &["a", "b"]), held(2, &["c"]), held(3, &["d", "e"]), held(4, &["f"])]);
        let ledger = Ledger {
            accumulated: names(&["a", "b", "d"]).into_iter().collect(),
            applied: names(&["f"]).into_iter().collect(),
            ..Ledger::default()
        };
        assert_eq!(all.take_lost(&ledger), [(1, 2), (1, 3)], "a half that is lost takes its claim along");
        assert_eq!(all.claims, [held(1, &["a", "b"]), held(4, &["f"])]);
        assert!(all.take_lost(&ledger).is_empty());
        assert_eq!(all.take_lost(&Ledger::default()), [(1, 1), (1, 4)]);
    }

    #[test]
    fn members_of_a_group_are_those_of_all_claims_that_are_held() {
        let arrived = |position: usize, members: &[usize]| Arrived {
            position,
            key: format!("q{position}"),
            members: members.iter().map(|&m| (m, (ClaimId(format!("{position}-{m}")), m as f64))).collect(),
        };
        let of = |held: Held, arrived: Vec<Arrived>| Held { arrived, ..held };
        let mut all = all([
            of(held(1, &["a"]), vec![arrived(3, &[0]), arrived(5, &[1])]),
            of(held(2, &["lost"]), vec![arrived(3, &[2]), arrived(6, &[0])]),
        ]);
        assert_eq!(all.arrived(3, &[]), Some(arrived(3, &[0, 2])));
        assert!(all.has_come(6, &[]) && !all.has_come(4, &[]) && all.arrived(4, &[]).is_none());
        let ledger = Ledger { accumulated: names(&["a"]).into_iter().collect(), ..Ledger::default() };
        assert_eq!(all.other_than(&ledger.accumulated), names(&["lost"]).pop());
        all.take_lost(&ledger);
        assert_eq!(all.other_than(&ledger.accumulated), None);
        assert_eq!(all.arrived(3, &[]), Some(arrived(3, &[0])), "what was returned has not come");
        assert!(!all.has_come(6, &[]));
        assert_eq!(all.other_than([]), names(&["a"]).pop());
    }
}
