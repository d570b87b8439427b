//! Gangs: data-parallel ranks that take the micro-batches of one trainer as one.
//!
//! Each micro-batch of a step has a sequence number. The first rank that asks for a number that nobody has asked for
//! claims the rows, in the name of all; every other rank that asks for it gets the same micro-batch, or its share of it,
//! and asking again gives the same again. The micro-batch is accumulated when the last rank has said so.
//!
//! All ranks finish a micro-batch or none. One that is lost by one rank (released, expired) is lost for all. If another
//! rank had its gradient already, that rank's cache holds something that is trained on again: so the policy's cache is
//! dropped as a whole, everything accumulated comes back, and no rank is served before it has joined again, which says
//! that its part of the cache is gone. Whoever has gradients in that cache and is no rank is told by [`relied`](super::relied).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::Begun;
use super::handle::Step;
use crate::claim::{Claim, ClaimProgress, ClaimState};
use crate::consumer::{Attempt, ClaimFuture, ConsumerHandle, MicroBatch, Selection, Shortage, Wait, length};
use crate::error::{Cause, Result};
use crate::log::record::{ClaimRecord, Event, GangRecord, ReturnReason};
use crate::state::{Ask, State};
use crate::sync::atomic::{AtomicU32, Ordering};

/// The most ranks of a gang. Rows are dealt out to them with the state locked.
const RANKS_MAX: u32 = 1 << 16;

/// What each rank of a gang gets of a micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Split {
    /// All of it: tensor- or pipeline-parallel ranks.
    Same,
    /// Its share: rows are dealt out so that the lengths of the column that the micro-batch rule counts
    /// ([`MicroBatch::tokens`]) are even; without one, their numbers are. A share may be empty.
    Balanced,
}

/// A rank of a gang.
///
/// ```
/// use forebay_store::{Gang, Split};
/// let second_of_four = Gang::new("actors", 1, 4).split(Split::Balanced);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gang {
    /// What its ranks call themselves.
    pub name: String,
    /// Which of them this is, from 0.
    pub rank: u32,
    /// How many there are.
    pub world: u32,
    /// What each of them gets.
    pub split: Split,
}

impl Gang {
    /// Rank `rank`, from 0, of `world` ranks that call themselves `name`. Every rank gets all of each micro-batch.
    pub fn new(name: &str, rank: u32, world: u32) -> Self {
        Gang { name: name.to_owned(), rank, world, split: Split::Same }
    }

    /// What each rank gets. The same for all ranks. Default: [`Split::Same`].
    pub fn split(mut self, split: Split) -> Self {
        self.split = split;
        self
    }
}

/// A rank's place in its gang, for one trainer in one step.
#[derive(Debug)]
pub struct GangMember {
    consumer: ConsumerHandle,
    gang: Gang,
    step: Begun,
    owner: String,
    epoch: u32,
    next: AtomicU32,
}

/// A rank's part in a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) rank: u32,
    pub(crate) epoch: u32,
    pub(crate) rows: u64,
    pub(crate) tokens: u64,
}

/// Which micro-batch a rank asks for.
#[derive(Clone, Copy, Debug)]
enum Wanted {
    /// The one with this sequence number.
    Exactly(u32),
    /// The first that is not lost, from this sequence number on.
    From(u32),
}

impl Step {
    /// Takes a rank's place in its gang. After the gang's cache was dropped, joining again says that this rank's part of
    /// it is gone.
    ///
    /// # Errors
    /// `input` when the rank is not below the number of ranks, when that is greater than 65,536, or the consumer is of another store.
    pub fn join(&self, consumer: &ConsumerHandle, gang: Gang) -> Result<GangMember> {
        consumer.check_store(self.store())?;
        if gang.rank >= gang.world || gang.name.is_empty() {
            let Gang { name, rank, world, .. } = gang;
            let reason =
                format!("{name:?} has ranks 0 to {}, not {rank}, and a name", world.saturating_sub(1));
            return Err(Cause::Argument { what: "gang", reason }.into());
        }
        if gang.world > RANKS_MAX {
            let reason = format!("{:?} has {} ranks, and {RANKS_MAX} are the most", gang.name, gang.world);
            return Err(Cause::Argument { what: "gang", reason }.into());
        }
        let (step, owner) = (self.begun(), format!("{} of {}", self.owner(), gang.name));
        let epoch = consumer.store().0.state.lock().gang_epoch(step.number, consumer.index());
        Ok(GangMember { consumer: consumer.clone(), gang, step, owner, epoch, next: AtomicU32::new(0) })
    }
}

impl GangMember {
    /// The next micro-batch of the gang that this rank has not had: see [`Step::next`]. The claim is this rank's part.
    ///
    /// # Errors
    /// `state` when the gang's cache was dropped: drop this rank's part and [`join`](Step::join) again; otherwise as for
    /// [`Step::next`].
    pub fn next(&self, rule: MicroBatch, wait: Wait) -> Result<Option<Claim>> {
        let ask = Ask { rule, step: Some(self.step) };
        self.consumer.claim_when_ready(ask, wait, || self.attempt_next(ask))
    }

    /// The same without blocking a thread.
    pub fn next_async(self: &Arc<Self>, rule: MicroBatch) -> ClaimFuture {
        ClaimFuture::of_rank(self.clone(), Ask { rule, step: Some(self.step) })
    }

    /// Whether both have their places in one step, whose number may be that of one that was given up before.
    pub fn shares_step(&self, other: &GangMember) -> bool {
        self.step == other.step
    }

    pub(crate) fn consumer(&self) -> &ConsumerHandle {
        &self.consumer
    }

    /// One look for the first micro-batch that this rank has not had.
    pub(crate) fn attempt_next(&self, ask: Ask) -> Result<Attempt> {
        let outcome = self.attempt(None, ask.rule);
        self.consumer.tell(ask, &outcome);
        outcome
    }

    /// The micro-batch with this sequence number. Asking again gives the same again.
    ///
    /// # Errors
    /// `state` when it was lost, or as for [`next`](GangMember::next); `input` when it is neither the gang's nor the next
    /// one.
    pub fn fetch(&self, sequence: u32, rule: MicroBatch, wait: Wait) -> Result<Option<Claim>> {
        let ask = Ask { rule, step: Some(self.step) };
        self.consumer.claim_when_ready(ask, wait, || {
            let outcome = self.attempt(Some(sequence), rule);
            self.consumer.tell(ask, &outcome);
            outcome
        })
    }

    /// One look for the micro-batch with a sequence number, or for the next one.
    fn attempt(&self, exactly: Option<u32>, rule: MicroBatch) -> Result<Attempt> {
        rule.check()?;
        let shared = &self.consumer.store().0;
        let now = shared.options.clock.now();
        shared.expire_at(now)?;
        let deadline = now.after(shared.options.lease);
        shared.submit_lease(|state| {
            let (consumer, step) = (self.consumer.index(), self.step.number);
            state.check_begun(self.step)?;
            state.check_gang_epoch(step, consumer, &self.gang.name, self.epoch)?;
            // Which one is next is read and moved on with the state locked: several threads of a rank may ask.
            let wanted =
                exactly.map_or_else(|| Wanted::From(self.next.load(Ordering::Relaxed)), Wanted::Exactly);
            let moves_on = |sequence: u32| {
                if exactly.is_none() {
                    self.next.store(sequence + 1, Ordering::Relaxed);
                }
            };
            if let Some(record) = state.find_gang_claim(step, consumer, &self.gang, wanted)? {
                moves_on(record.sequence_in_step);
                return Ok((None, Attempt::Claimed(self.claim(state, &record))));
            }
            state.check_rule(consumer, &rule)?;
            let (selection, sequence_in_step) = match state.decide_claim(consumer, rule, Some(step)) {
                Ok(decided) => decided,
                Err(Shortage::NotReady) => return Ok((None, Attempt::NotReady)),
                Err(Shortage::Complete) => return Ok((None, Attempt::Complete)),
            };
            let record = ClaimRecord {
                claim: state.claims.next_number(),
                consumer: consumer as u32,
                table: selection.table,
                gang: Some(self.gang.deal(state, &selection, rule)),
                rows: selection.rows,
                owner: self.owner.clone(),
                deadline: deadline.0,
                step,
                sequence_in_step,
            };
            moves_on(sequence_in_step);
            let claim = self.claim(state, &record);
            Ok((Some(Event::Claimed(record)), Attempt::Claimed(claim)))
        })
    }

    /// This rank's part of a claim.
    fn claim(&self, state: &State, record: &ClaimRecord) -> Claim {
        let gang = record.gang.as_ref();
        let share = Share {
            rank: self.gang.rank,
            epoch: self.epoch,
            rows: record.rows.len() as u64,
            tokens: gang.map_or(0, |gang| gang.tokens),
        };
        let mut part = record.clone();
        let ranks = gang.map_or(&[][..], |gang| &gang.ranks);
        if !ranks.is_empty() {
            let mine = record.rows.iter().zip(ranks).filter(|(_, rank)| **rank == self.gang.rank);
            part.rows = mine.map(|(row, _)| *row).collect();
        }
        Claim::new(self.consumer.store().clone(), state, &part, self.consumer.kind()).with_share(share)
    }
}

impl Gang {
    /// Deals rows out to ranks: the longest first, each to the rank that has least.
    fn deal(&self, state: &State, selection: &Selection, rule: MicroBatch) -> GangRecord {
        let table = &state.tables[selection.table as usize];
        let column = rule.budget.and_then(|budget| table.schema.index_of(budget.column.as_str()).ok());
        let counted: Vec<u64> =
            selection.rows.iter().map(|&row| column.map_or(0, |column| length(table, column, row))).collect();
        let mut ranks = Vec::new();
        if self.split == Split::Balanced {
            let mut order: Vec<usize> = (0..counted.len()).collect();
            order.sort_by_key(|&at| (Reverse(counted[at]), at));
            ranks = vec![0; counted.len()];
            let mut loads: BinaryHeap<_> =
                (0..self.world).map(|rank| Reverse((0_u64, 0_u32, rank))).collect();
            for at in order {
                if let Some(mut least) = loads.peek_mut() {
                    let Reverse((length, rows, rank)) = &mut *least;
                    ranks[at] = *rank;
                    (*length, *rows) = (*length + counted[at], *rows + 1);
                }
            }
        }
        let tokens = counted.iter().sum();
        GangRecord { name: self.name.clone(), world: self.world, ranks, tokens }
    }
}

impl State {
    /// How often caches that a trainer's gradients go to had been dropped in a step.
    fn gang_epoch(&self, step: u64, consumer: usize) -> u32 {
        let Some(step) = self.steps.get(&step) else { return 0 };
        let tables = self.consumers[consumer].tables.iter();
        let mut policies: Vec<usize> = tables.map(|t| self.tables[t.table as usize].policy).collect();
        policies.sort_unstable();
        policies.dedup();
        policies.into_iter().map(|policy| step.membership().cache_epoch(policy)).sum()
    }

    fn check_gang_epoch(&self, step: u64, consumer: usize, gang: &str, joined: u32) -> Result<()> {
        let epoch = self.gang_epoch(step, consumer);
        if epoch == joined {
            return Ok(());
        }
        Err(Cause::CacheDropped { gradient: format!("of gang {gang:?}"), epoch }.into())
    }

    /// The claim that a rank asks for, if it is there.
    fn find_gang_claim(
        &self,
        step: u64,
        consumer: usize,
        gang: &Gang,
        wanted: Wanted,
    ) -> Result<Option<ClaimRecord>> {
        let (first, exactly) = match wanted {
            Wanted::Exactly(sequence) => (sequence, true),
            Wanted::From(sequence) => (sequence, false),
        };
        let refuse = |reason: String| Err(Cause::Argument { what: "gang", reason }.into());
        let of_consumer =
            self.membership(step).batches.iter().rev().filter(|batch| batch.consumer == consumer);
        let asked: Vec<_> = of_consumer.take_while(|batch| batch.sequence >= first).collect();
        for batch in asked.iter().rev() {
            let claim = self.claims.get(batch.claim);
            let live = claim.filter(|claim| claim.progress.is_live());
            let theirs = live.and_then(|claim| Some((claim, claim.gang.as_ref()?)));
            match theirs.filter(|(_, there)| there.name == gang.name) {
                Some((_, there)) if there.world != gang.world || there.is_split() != gang.is_split() => {
                    return refuse(format!("{:?} has {} ranks that split otherwise", gang.name, there.world));
                }
                Some((claim, _)) => return Ok(Some(claim.record(batch.claim))),
                None if !exactly => {}
                None if live.is_some() => {
                    return refuse(format!("micro-batch {first} is not one of {:?}", gang.name));
                }
                None => {
                    let found = claim.map_or("ended", |claim| claim.progress.as_str());
                    return Err(Cause::ClaimFenced { claim: batch.claim, found, expected: "leased" }.into());
                }
            }
        }
        let planned = &self.membership(step).planned;
        let next = planned.iter().filter(|p| p.consumer == consumer).map(|p| p.claims).next().unwrap_or(0);
        if exactly && first != next {
            return refuse(format!("the next micro-batch is {next}, not {first}"));
        }
        Ok(None)
    }

    /// A rank has the gradient of its part. `None` when it has said so before.
    pub(crate) fn decide_rank_done(&self, number: u64, step: u64, share: &Share) -> Result<Option<Event>> {
        if self.open_step() != Some(step) {
            return Err(Cause::StepClosed { step }.into());
        }
        let claim = self.claims.get(number).and_then(|claim| Some((claim, claim.gang.as_ref()?)));
        if let Some((claim, gang)) = claim {
            self.check_gang_epoch(step, claim.consumer, &gang.name, share.epoch)?;
            let said = claim.progress == ClaimProgress::Accumulated || claim.ranks_done.contains(&share.rank);
            if claim.progress.is_live() && said {
                return Ok(None);
            }
        }
        let claim = self.check_claim(number, &["leased"])?;
        self.check_granted_in(step, number)?;
        let world = claim.gang.as_ref().map_or(1, |gang| gang.world as usize);
        let is_last = claim.ranks_done.len() + 1 >= world;
        Ok(Some(if is_last {
            Event::Accumulated { claim: number }
        } else {
            Event::RankAccumulated { claim: number, rank: share.rank }
        }))
    }

    /// The record by which claims go back. Where a rank's cache holds a gradient of one of them, the whole cache goes.
    pub(crate) fn returning(&self, mut claims: Vec<u64>, why: ReturnReason) -> Event {
        let policy_of = |claim: &ClaimState| self.tables[claim.table as usize].policy;
        let partly =
            claims.iter().filter_map(|number| self.claims.get(*number)).filter(|c| c.is_partly_done());
        let caches: Vec<(u64, usize)> = partly.map(|claim| (claim.step, policy_of(claim))).collect();
        if caches.is_empty() {
            return Event::Returned { claims, why };
        }
        let in_cache =
            |claim: &ClaimState| claim.progress == ClaimProgress::Accumulated || claim.is_partly_done();
        let steps = caches.iter().filter_map(|(step, _)| self.steps.get(step));
        for number in steps.flat_map(|step| step.membership().claims.iter().copied()) {
            let gone = self
                .claims
                .get(number)
                .is_some_and(|claim| in_cache(claim) && caches.contains(&(claim.step, policy_of(claim))));
            if gone && !claims.contains(&number) {
                claims.push(number);
            }
        }
        Event::Returned { claims, why: ReturnReason::CacheDropped }
    }

    /// Applies that a rank has the gradient of its part.
    pub(crate) fn rank_accumulated(&mut self, claim: u64, rank: u32) -> std::result::Result<(), String> {
        let state = self.claims.leased_mut(claim).filter(|claim| claim.gang.is_some());
        let state = state.ok_or_else(|| format!("claim {claim} is not leased to a gang"))?;
        state.ranks_done.push(rank);
        Ok(())
    }
}

impl Gang {
    fn is_split(&self) -> bool {
        self.split == Split::Balanced
    }
}

impl GangRecord {
    fn is_split(&self) -> bool {
        !self.ranks.is_empty()
    }
}
