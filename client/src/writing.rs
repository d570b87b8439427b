//! Writes whose answers are waited for later.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use forebay_store::Row;

use crate::error::{Error, Result};

/// A write on its way: see [`Client::write_async`](crate::Client::write_async).
///
/// It is a future of the rows that were inserted, in the order of their insertion, on any async runtime; a thread has them by
/// [`wait`](Writing::wait). Who drops it does not hear how it went; the write is made all the same. A client that is closed, or dropped,
/// waits for a second until none is under way.
#[must_use = "whether the write was made is only known once this was waited for"]
pub struct Writing(Pin<Box<dyn Answer>>);

/// The answer of a write.
pub(crate) trait Answer: Future<Output = Result<Vec<Row>>> + Send {
    /// Waits for it on a thread.
    fn wait(self: Pin<Box<Self>>) -> Result<Vec<Row>>;
}

impl Writing {
    /// A write that is over.
    pub fn done(outcome: Result<Vec<Row>>) -> Self {
        Writing::of(Done(Some(outcome)))
    }

    pub(crate) fn of(answer: impl Answer + 'static) -> Self {
        Writing(Box::pin(answer))
    }

    /// Waits for the answer on this thread.
    ///
    /// # Errors
    /// As [`Client::write`](crate::Client::write).
    pub fn wait(self) -> Result<Vec<Row>> {
        self.0.wait()
    }
}

impl Future for Writing {
    type Output = Result<Vec<Row>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

impl fmt::Debug for Writing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writing").finish_non_exhaustive()
    }
}

/// An answer that is there, until it is taken.
struct Done(Option<Result<Vec<Row>>>);

impl Done {
    fn take(&mut self) -> Result<Vec<Row>> {
        self.0
            .take()
            .unwrap_or_else(|| Err(Error::input("Taken", "the answer of this write was taken before")))
    }
}

impl Future for Done {
    type Output = Result<Vec<Row>>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(self.take())
    }
}

impl Answer for Done {
    fn wait(mut self: Pin<Box<Self>>) -> Result<Vec<Row>> {
        self.take()
    }
}
