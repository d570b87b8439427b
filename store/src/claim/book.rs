//! What the engine knows of claims. Of one that has ended it remembers everything but its rows.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::clock::Timestamp;
use crate::heap::HeapBytes;
use crate::log::record::{ClaimRecord, GangRecord};
use crate::texts::TextId;

/// How far a claim has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClaimProgress {
    /// In the hands of its holder until its deadline.
    Leased,
    /// Its gradient is in the policy's cache; no deadline.
    Accumulated,
    /// Its step was committed.
    Consumed,
    /// Its task was completed.
    Finished,
    /// Given back by its holder.
    Released,
    /// Taken back at its deadline.
    Expired,
    /// Returned because the cache that held its gradient was dropped.
    Returned,
    /// Its process ended.
    Lost,
    /// Its step was committed and undone later: the run went back to a step before it.
    Rewound,
}

impl ClaimProgress {
    /// Every state, in the order of their numbers in checkpoints.
    pub(crate) const ALL: [ClaimProgress; 9] = [
        ClaimProgress::Leased,
        ClaimProgress::Accumulated,
        ClaimProgress::Consumed,
        ClaimProgress::Finished,
        ClaimProgress::Released,
        ClaimProgress::Expired,
        ClaimProgress::Returned,
        ClaimProgress::Lost,
        ClaimProgress::Rewound,
    ];

    /// The word for this state, in messages and SQL.
    pub fn as_str(self) -> &'static str {
        match self {
            ClaimProgress::Leased => "leased",
            ClaimProgress::Accumulated => "accumulated",
            ClaimProgress::Consumed => "consumed",
            ClaimProgress::Finished => "finished",
            ClaimProgress::Released => "released",
            ClaimProgress::Expired => "expired",
            ClaimProgress::Returned => "returned",
            ClaimProgress::Lost => "lost",
            ClaimProgress::Rewound => "rewound",
        }
    }

    pub(crate) fn is_live(self) -> bool {
        matches!(self, ClaimProgress::Leased | ClaimProgress::Accumulated)
    }
}

/// One claim.
#[derive(Clone, Debug)]
pub(crate) struct ClaimState {
    pub(crate) consumer: usize,
    pub(crate) table: u32,
    /// Of one that is live.
    pub(crate) rows: Vec<u32>,
    /// How many it has, also when it has ended.
    pub(crate) row_count: u32,
    pub(crate) owner: TextId,
    pub(crate) incarnation: u64,
    pub(crate) granted_at: Timestamp,
    pub(crate) deadline: Timestamp,
    pub(crate) accumulated_at: Option<Timestamp>,
    pub(crate) ended_at: Option<Timestamp>,
    pub(crate) step: u64,
    pub(crate) sequence_in_step: u32,
    /// The ranks that hold it as one, and which of them have its gradient.
    pub(crate) gang: Option<GangRecord>,
    pub(crate) ranks_done: Vec<u32>,
    pub(crate) progress: ClaimProgress,
}

impl ClaimState {
    /// Whether several ranks have a part in it.
    pub(crate) fn is_shared(&self) -> bool {
        self.gang.as_ref().is_some_and(|gang| gang.world > 1)
    }

    /// Whether some ranks of its gang have its gradient, and others not yet.
    pub(crate) fn is_partly_done(&self) -> bool {
        self.progress == ClaimProgress::Leased && !self.ranks_done.is_empty()
    }

    /// The claim as it was granted, for the next rank of its gang.
    pub(crate) fn record(&self, number: u64) -> ClaimRecord {
        ClaimRecord {
            claim: number,
            consumer: self.consumer as u32,
            table: self.table,
            rows: self.rows.clone(),
            owner: String::new(), // known by its number
            deadline: self.deadline.0,
            step: self.step,
            sequence_in_step: self.sequence_in_step,
            gang: self.gang.clone(),
        }
    }
}

/// A claim as it is shown to people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimInfo {
    /// Number of the claim; the second half of its epoch.
    pub claim: u64,
    /// Incarnation of the store; the first half of its epoch.
    pub incarnation: u64,
    /// The consumer that it belongs to.
    pub consumer: String,
    /// The table that its rows are in.
    pub table: String,
    /// Who holds or held it.
    pub owner: String,
    /// How far it has come.
    pub progress: ClaimProgress,
    /// How many rows it has.
    pub rows: u64,
    /// The step that it belongs to.
    pub step: Option<u64>,
    /// Its place among the step's claims of its consumer, from 0.
    pub sequence_in_step: u32,
    /// When its rows were handed out.
    pub granted_at: Timestamp,
    /// When its lease ends or would have ended.
    pub deadline: Timestamp,
    /// When its gradient was in the cache.
    pub accumulated_at: Option<Timestamp>,
    /// When it ended, however it did.
    pub ended_at: Option<Timestamp>,
}

/// All live claims, and the last ones that ended.
#[derive(Debug)]
pub(crate) struct ClaimBook {
    claims: BTreeMap<u64, ClaimState>,
    deadlines: BTreeSet<(Timestamp, u64)>,
    ended: VecDeque<u64>,
    kept: usize,
    next: u64,
}

impl ClaimBook {
    /// A book that remembers `kept` ended claims.
    pub(crate) fn new(kept: usize) -> Self {
        ClaimBook {
            claims: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            ended: VecDeque::new(),
            kept,
            next: 1,
        }
    }

    /// Bytes of memory.
    pub(crate) fn heap_bytes(&self) -> usize {
        let rows = self.claims.values().map(|claim| claim.rows.heap_bytes() + claim.ranks_done.heap_bytes());
        let own = self.claims.heap_bytes() + self.deadlines.heap_bytes() + self.ended.heap_bytes();
        own + rows.sum::<usize>()
    }

    /// The stored form's content: every claim with its number, the ended ones in the order in which they ended.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = (u64, &ClaimState)> {
        let live = self.iter().filter(|(_, claim)| claim.ended_at.is_none());
        let ended = self.ended.iter().filter_map(|number| Some((*number, self.claims.get(number)?)));
        live.chain(ended)
    }

    /// Takes in what was stored, in that order.
    pub(crate) fn restore(&mut self, claims: Vec<(u64, ClaimState)>, next: u64) {
        for (number, claim) in claims {
            if claim.progress == ClaimProgress::Leased {
                self.deadlines.insert((claim.deadline, number));
            }
            if claim.ended_at.is_some() {
                self.ended.push_back(number);
            }
            self.claims.insert(number, claim);
        }
        self.next = next;
    }

    /// The number that the next claim gets.
    pub(crate) fn next_number(&self) -> u64 {
        self.next
    }

    pub(crate) fn grant(&mut self, number: u64, claim: ClaimState) {
        self.deadlines.insert((claim.deadline, number));
        self.claims.insert(number, claim);
        self.next = self.next.max(number + 1);
    }

    pub(crate) fn get(&self, number: u64) -> Option<&ClaimState> {
        self.claims.get(&number)
    }

    /// A leased claim, to be changed.
    pub(crate) fn leased_mut(&mut self, number: u64) -> Option<&mut ClaimState> {
        self.claims.get_mut(&number).filter(|claim| claim.progress == ClaimProgress::Leased)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &ClaimState)> {
        self.claims.iter().map(|(number, claim)| (*number, claim))
    }

    /// The numbers of live claims, oldest first.
    pub(crate) fn live(&self) -> Vec<u64> {
        self.iter().filter(|(_, claim)| claim.progress.is_live()).map(|(number, _)| number).collect()
    }

    /// Leased claims whose deadline has come.
    pub(crate) fn due(&self, now: Timestamp) -> Vec<u64> {
        self.deadlines.range(..=(now, u64::MAX)).map(|(_, number)| *number).collect()
    }

    /// The nearest deadline of a leased claim.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Gives a leased claim another deadline.
    pub(crate) fn extend(&mut self, number: u64, deadline: Timestamp) {
        let Some(claim) = self.claims.get_mut(&number) else { return };
        if claim.progress == ClaimProgress::Leased {
            self.deadlines.remove(&(claim.deadline, number));
            claim.deadline = deadline;
            self.deadlines.insert((deadline, number));
        }
    }

    /// Marks a claim whose step is undone. Its rows are the caller's affair.
    pub(crate) fn rewind(&mut self, number: u64) {
        if let Some(claim) = self.claims.get_mut(&number) {
            claim.progress = ClaimProgress::Rewound;
        }
    }

    /// Moves a claim on. Its rows are the caller's affair.
    pub(crate) fn advance(&mut self, number: u64, to: ClaimProgress, now: Timestamp) {
        let Some(claim) = self.claims.get_mut(&number) else { return };
        self.deadlines.remove(&(claim.deadline, number));
        claim.progress = to;
        if to == ClaimProgress::Accumulated {
            claim.accumulated_at = Some(now);
            return;
        }
        claim.ended_at = Some(now);
        claim.rows = Vec::new(); // what became of a row is the row's to say
        self.ended.push_back(number);
        if self.ended.len() > self.kept
            && let Some(oldest) = self.ended.pop_front()
        {
            self.claims.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A state that is not told here does not compile; one that is not in the list is told.
    #[test]
    fn every_state_stands_at_its_number() {
        use ClaimProgress::*;
        for progress in [Leased, Accumulated, Consumed, Finished, Released, Expired, Returned, Lost, Rewound]
        {
            match progress {
                Leased | Accumulated | Consumed | Finished | Released | Expired | Returned | Lost
                | Rewound => {}
            }
            assert_eq!(ClaimProgress::ALL.get(progress as usize), Some(&progress));
        }
    }
}
