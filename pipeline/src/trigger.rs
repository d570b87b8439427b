//! The trigger: a stream that yields a claim the moment enough is ready.
//!
//! Nothing polls. The write that completes a micro-batch wakes whoever waits on it, be it a thread (the iterator) or a
//! task of any async runtime (the stream).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use forebay_store::{Claim, ClaimFuture, ConsumerHandle, MicroBatch, Step, Wait};
use futures_core::Stream;

use crate::error::{Error, Result};

/// The micro-batches of one consumer in one step, in the order in which they become ready, until everything planned for
/// it has been handed out.
///
/// As an iterator it blocks its thread; as a stream it does not.
#[derive(Debug)]
pub struct Trigger {
    step: Arc<Step>,
    consumer: ConsumerHandle,
    rule: MicroBatch,
    waiting: Option<ClaimFuture>,
}

impl Trigger {
    /// Subscribes to a consumer's micro-batches in a step.
    pub fn new(step: Arc<Step>, consumer: &ConsumerHandle, rule: MicroBatch) -> Self {
        Trigger { step, consumer: consumer.clone(), rule, waiting: None }
    }
}

impl Iterator for Trigger {
    type Item = Result<Claim>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step.next(&self.consumer, self.rule, Wait::Forever).map_err(Error::from).transpose()
    }
}

impl Stream for Trigger {
    type Item = Result<Claim>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut waiting = match self.waiting.take() {
            Some(waiting) => waiting,
            None => match self.step.next_async(&self.consumer, self.rule) {
                Ok(waiting) => waiting,
                Err(error) => return Poll::Ready(Some(Err(error.into()))),
            },
        };
        match Pin::new(&mut waiting).poll(context) {
            Poll::Ready(outcome) => Poll::Ready(outcome.map_err(Error::from).transpose()),
            Poll::Pending => {
                self.waiting = Some(waiting);
                Poll::Pending
            }
        }
    }
}
