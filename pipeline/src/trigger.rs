//! The trigger: a stream that yields a claim the moment enough is ready.
//!
//! Nothing polls. The write that completes a micro-batch wakes whoever waits on it, be it a thread (the iterator) or a
//! task of any async runtime (the stream).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use event_listener::EventListener;
use forebay_store::{Claim, ConsumerHandle, MicroBatch, Step, Wait};
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
    listener: Option<EventListener>,
}

impl Trigger {
    /// Subscribes to a consumer's micro-batches in a step.
    pub fn new(step: Arc<Step>, consumer: &ConsumerHandle, rule: MicroBatch) -> Self {
        Trigger { step, consumer: consumer.clone(), rule, listener: None }
    }

    fn now(&self) -> Result<Option<Claim>> {
        self.step.next(&self.consumer, self.rule, Wait::No).map_err(Error::from)
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
        loop {
            // Listening before looking: a change in between wakes the task.
            let mut listener = self.listener.take().unwrap_or_else(|| self.consumer.listen());
            match self.now() {
                Ok(None) if self.step.is_complete(&self.consumer) => return Poll::Ready(None),
                Ok(None) => {}
                Ok(Some(claim)) => return Poll::Ready(Some(Ok(claim))),
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
            if Pin::new(&mut listener).poll(context).is_pending() {
                self.listener = Some(listener);
                return Poll::Pending;
            }
        }
    }
}
