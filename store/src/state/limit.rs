//! What the rate limiters of consumers let through: see [`RateLimiter`](crate::RateLimiter).

use super::decide::Request;
use super::{Operation, State};
use crate::consumer::{ConsumedTable, ConsumerState, MicroBatch, Shortage};
use crate::error::{Cause, Error};
use crate::step::Begun;
use crate::table::Tally;

/// What a claimer asked for and did not get: a micro-batch, in a step or outside of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) rule: MicroBatch,
    pub(crate) step: Option<Begun>,
}

impl State {
    /// The rows that a consumer's limiter goes by: those of versions that are not over.
    pub(crate) fn tally(&self, consumer: usize) -> Tally {
        let of_table = |consumed: &ConsumedTable| {
            self.tables[consumed.table as usize].tally_since(consumed.slot, consumed.floor)
        };
        self.consumers[consumer].tables.iter().map(of_table).fold(Tally::default(), Tally::plus)
    }

    /// How many more rows a consumer's limiter lets be handed out.
    pub(super) fn may_claim(&self, consumer: usize) -> usize {
        let limiter = self.consumers[consumer].limiter;
        limiter.map_or(usize::MAX, |limiter| limiter.may_claim(self.tally(consumer)) as usize)
    }

    /// How many more rows a consumer's limiter lets in.
    pub(crate) fn may_insert(&self, consumer: usize) -> u64 {
        let limiter = self.consumers[consumer].limiter;
        limiter.map_or(u64::MAX, |limiter| limiter.may_insert(self.tally(consumer)))
    }

    /// Whether what a claimer asked for still cannot be had.
    pub(crate) fn is_wanting(&self, consumer: usize, ask: &Ask) -> bool {
        ask.step.is_none_or(|step| self.open_begun() == Some(step))
            && self.decide_claim(consumer, ask.rule, ask.step.map(|step| step.number))
                == Err(Shortage::NotReady)
    }

    /// Whether a rate limiter was declared.
    pub(crate) fn has_limiters(&self) -> bool {
        self.consumers.iter().any(|consumer| consumer.limiter.is_some())
    }

    /// Whether a limiter may have something to say about a batch: it does nothing but begin rows, and some consumer of
    /// theirs lets nothing in.
    pub(crate) fn may_hold_back(&self, requests: &[Request]) -> bool {
        self.has_limiters()
            && requests.iter().all(Request::begins)
            && (0..self.consumers.len()).any(|consumer| self.may_insert(consumer) == 0)
    }

    /// The consumers that let nothing in, and that have a row to take among those that these operations begin.
    pub(crate) fn holding_back(&self, operations: &[Operation]) -> impl Iterator<Item = usize> {
        let left_out = |table: u32, row: u32| {
            let excluded = |o: &Operation| matches!(o, Operation::Exclude { table: t, row: r, .. } if (*t, *r) == (table, row));
            operations.iter().any(excluded)
        };
        let takes = |consumer: &ConsumerState| {
            operations.iter().any(|operation| match operation {
                Operation::Insert(new) => {
                    let first_attempt = new.supersedes == 0;
                    let takes = consumer.takes_new(new);
                    first_attempt && takes && !left_out(new.table, new.row)
                }
                _ => false,
            })
        };
        let holds = |&consumer: &usize| {
            let state = &self.consumers[consumer];
            state.limiter.is_some() && self.may_insert(consumer) == 0 && takes(state)
        };
        (0..self.consumers.len()).filter(holds).collect::<Vec<_>>().into_iter()
    }

    /// The error for a call that a consumer's limiter held back until its deadline.
    pub(crate) fn held_back(&self, consumer: usize) -> Error {
        let Tally { inserted, handed_out } = self.tally(consumer);
        let state = &self.consumers[consumer];
        let buffer = state.limiter.map_or(0.0, |limiter| limiter.error_buffer);
        Cause::HeldBack { consumer: state.name.to_string(), inserted, handed_out, buffer }.into()
    }
}
