//! Whether a batch may go on, or waits: for memory ([`memory`](crate::memory)), or for a consumer.
//!
//! A batch is held back by the rate limiters of the consumers that are to take its rows (the rules, and why nobody
//! waits for ever, are told at [`RateLimiter`](crate::RateLimiter) and in its module). Its values are in their extents
//! by then and held there, so nothing is lost by waiting, and nothing of it is visible. What a limiter says is asked
//! with the state locked, in the same breath as the batch is decided on, so no two batches take the same room.

use crate::aside::Aside;
use crate::batch::Decided;
use crate::clock::Timestamp;
use crate::consumer::{Inserting, Wait};
use crate::durability::Durability;
use crate::error::Result;
use crate::extent::{Compared, NewContents};
use crate::log::record::Event;
use crate::shared::Shared;
use crate::state::{Request, State};
use crate::table::Row;

impl Shared {
    /// When somebody who begins to wait now gives up; `None` for never.
    pub(crate) fn waits_until(&self, wait: Wait) -> Option<Timestamp> {
        let now = self.options.clock.now();
        match wait {
            Wait::No => Some(now),
            Wait::For(time) => Some(now.after(time)),
            Wait::Forever => None,
        }
    }

    /// Makes all changes of a batch at once, as soon as nothing holds it back.
    ///
    /// # Errors
    /// `capacity` when there was no memory for it in time; `retry` when it was held back for too long; the first change
    /// that cannot be made at once.
    pub(crate) fn write(
        &self,
        level: Durability,
        (wait, aside): (Wait, Aside),
        mut requests: Vec<Request>,
        contents: &NewContents,
    ) -> Result<Vec<Row>> {
        let until = self.waits_until(wait);
        let mut place: Option<Inserting> = None;
        loop {
            self.admit_growth(&requests, until, false, aside)?;
            let mut holder = None;
            let outcome = self.submit_if_at(level, |state| {
                let (operations, rows) = self.decide_admitted(state, &mut requests, contents, &mut holder)?;
                Ok(((!operations.is_empty()).then_some(Event::Written { operations }), rows))
            });
            if contents.compared().go_on() {
                continue; // decided again, now that it is known
            }
            let Some(consumer) = holder else { return outcome };
            if until.is_some_and(|until| self.options.clock.now() >= until) {
                return outcome;
            }
            match place.as_mut().filter(|place| place.consumer() == consumer) {
                Some(place) => aside.run(|| place.wait(&*self.options.clock, until)),
                None => place = Some(Inserting::begin(self.signals.of(consumer), consumer)), // then another look
            }
        }
    }

    /// Decides on a batch. One that is held back keeps its requests and says by whom.
    fn decide_admitted(
        &self,
        state: &State,
        requests: &mut Vec<Request>,
        contents: &NewContents,
        holder: &mut Option<usize>,
    ) -> Result<Decided> {
        if !state.may_hold_back(requests) && !Compared::may_stop(requests) {
            return self.decide(state, std::mem::take(requests), contents);
        }
        let decided = self.decide(state, requests.clone(), contents)?;
        let wanting = |consumer: usize| self.signals.of(consumer).throttle().is_wanting(state, consumer);
        *holder = state.holding_back(&decided.0).find(|consumer| !wanting(*consumer));
        holder.map_or(Ok(decided), |consumer| Err(state.held_back(consumer)))
    }
}
