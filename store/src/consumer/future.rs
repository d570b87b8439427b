//! Waiting for a claim without blocking a thread.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::handle::{Attempt, ConsumerHandle};
use super::signal::InLine;
use crate::claim::Claim;
use crate::error::Result;
use crate::state::Ask;
use crate::step::{GangMember, ReliedCaches};

/// A claim to come: ready when enough is, on any async runtime. `None` when nothing more can come, as at the end of a
/// step's plan.
///
/// Dropping it costs nobody anything: no row is taken before the future is ready, and a wake-up that was meant for it goes
/// to the next who waits. There is no time-out in it; race it against a timer of the runtime. A lease that ends while
/// nobody else calls the store is noticed by [`Store::run_once`](crate::Store::run_once).
#[derive(Debug)]
#[must_use = "a future does nothing until it is awaited"]
pub struct ClaimFuture {
    consumer: ConsumerHandle,
    ask: Ask,
    by: Asker,
    place: Option<InLine>,
}

/// In whose name rows are claimed.
#[derive(Debug)]
enum Asker {
    Owner(String),
    Step(String, Arc<ReliedCaches>),
    Rank(Arc<GangMember>),
}

impl ClaimFuture {
    pub(crate) fn new(consumer: ConsumerHandle, ask: Ask, owner: String) -> Self {
        ClaimFuture { consumer, ask, by: Asker::Owner(owner), place: None }
    }

    /// The next micro-batch of a step, whose gradient goes to these caches.
    pub(crate) fn of_step(
        consumer: ConsumerHandle,
        ask: Ask,
        owner: String,
        caches: Arc<ReliedCaches>,
    ) -> Self {
        ClaimFuture { consumer, ask, by: Asker::Step(owner, caches), place: None }
    }

    /// The next micro-batch of a gang for one of its ranks.
    pub(crate) fn of_rank(member: Arc<GangMember>, ask: Ask) -> Self {
        ClaimFuture { consumer: member.consumer().clone(), ask, by: Asker::Rank(member), place: None }
    }

    fn attempt(&self) -> Result<Attempt> {
        match &self.by {
            Asker::Owner(owner) => self.consumer.attempt(self.ask, owner),
            Asker::Step(owner, caches) => Ok(self.consumer.attempt(self.ask, owner)?.relying_on(caches)),
            Asker::Rank(member) => member.attempt_next(self.ask),
        }
    }

    fn end(&mut self, outcome: Result<Option<Claim>>) -> Poll<Result<Option<Claim>>> {
        let claimed = matches!(outcome, Ok(Some(_)));
        match self.place.take() {
            Some(place) if claimed => place.leave(),
            Some(place) => {
                drop(place);
                self.consumer.signal().announce(); // a wake-up that was used for nothing is somebody else's
            }
            None => {}
        }
        Poll::Ready(outcome)
    }
}

impl Future for ClaimFuture {
    type Output = Result<Option<Claim>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match self.attempt() {
                Ok(Attempt::Claimed(claim)) => return self.end(Ok(Some(claim))),
                Ok(Attempt::Complete) => return self.end(Ok(None)),
                Ok(Attempt::NotReady) => {}
                Err(error) => return self.end(Err(error)),
            }
            let ask = self.ask;
            let signal = self.consumer.signal().clone();
            let Some(place) = &mut self.place else {
                self.place = Some(signal.stand_in_line_for(ask));
                continue; // in line first, then another look
            };
            if let Some(listener) = place.listener() {
                if Pin::new(listener).poll(context).is_pending() {
                    return Poll::Pending;
                }
                *place.listener() = None;
                place.listener();
            }
        }
    }
}
