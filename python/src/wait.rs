//! Waiting for rows: as long as the caller said, and never deaf to Ctrl-C.
//!
//! A waiter keeps its place in the consumer's line for the whole of its wait; only its thread wakes up now and then, to let
//! Python run the handlers of signals that have come. Their exceptions end the wait.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use forebay::client::{Ask, Claim, Waited};
use pyo3::prelude::*;

use crate::failure::Result;
use crate::handle::Open;

/// How long a thread sleeps before it asks for signals.
const SIGNALS_EVERY: Duration = Duration::from_millis(100);

/// When a wait ends; `None` for one that lasts as long as it takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// So long from now.
    pub(crate) fn after(timeout: Option<Duration>) -> Self {
        Deadline(timeout.and_then(|timeout| Instant::now().checked_add(timeout)))
    }

    /// How much of the wait is left, a nap at most; `None` when it is over.
    pub(crate) fn nap(self) -> Option<Duration> {
        let left = match self.0 {
            Some(end) => end.saturating_duration_since(Instant::now()),
            None => SIGNALS_EVERY,
        };
        (!left.is_zero()).then(|| left.min(SIGNALS_EVERY))
    }
}

/// Unparks the thread that waits.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Lets Python run the handlers of signals that have come.
///
/// # Errors
/// What a handler raised: `KeyboardInterrupt`, as a rule.
#[allow(clippy::redundant_closure_for_method_calls, reason = "the method alone is of one lifetime only")]
pub(crate) fn heed_signals() -> Result<()> {
    Ok(Python::attach(|py| py.check_signals())?)
}

/// Waits for a claim. To be called without the interpreter's lock.
pub(crate) fn wait_for(open: &Open, ask: &Ask<'_>, timeout: Option<Duration>) -> Result<Waited<Claim>> {
    let (wait, timeout) = open.clocks(timeout);
    Ok(match block_on(open.client.claim_async(ask, wait)?, timeout)? {
        Some(claimed) => claimed?,
        None => Waited::TimedOut,
    })
}

/// Waits for what a future comes to; `None` when the time is over. To be called without the interpreter's lock.
pub(crate) fn block_on<F: Future>(future: F, timeout: Option<Duration>) -> Result<Option<F::Output>> {
    let mut future = std::pin::pin!(future);
    let deadline = Deadline::after(timeout);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut heeded = Instant::now();
    loop {
        if let Poll::Ready(outcome) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Ok(Some(outcome));
        }
        let Some(nap) = deadline.nap() else { return Ok(None) };
        std::thread::park_timeout(nap);
        // Who is woken looks at the queue first: another thread may keep the interpreter's lock for long.
        if heeded.elapsed() >= SIGNALS_EVERY {
            heed_signals()?;
            heeded = Instant::now();
        }
    }
}
