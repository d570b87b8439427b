//! A wait of an event loop. `forebay/_async.py` asks it whenever its bell has rung.
//!
//! Rows are claimed inside of [`Pending::poll`], which the loop's own thread calls, and what it gives goes to the awaiting task
//! without another pause. So a task that is cancelled has claimed nothing; its place in line goes to the next who waits.
//!
//! Of a server's rows that is true of what the task gets to see: what was claimed for it and came too late goes back.
//!
//! The wait lies in a slot of its store. Closing the store empties it, which rings the bell, and the next look finds that the
//! store is closed.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use forebay::client::{self, Ask, Waited};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::answer::Answer;
use crate::batch::Batch;
use crate::bell::Bell;
use crate::failure::{Failure, Result};
use crate::handle::{Handle, Open};
use crate::lacking;
use crate::micro_batches::MicroBatches;
use crate::objects::{Held, HeldObject, Wanted};
use crate::slot::Slot;

/// What a wait comes to.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Of a wait for rows.
    Waited(Waited<client::Claim>),
    /// A question was answered.
    Answered(client::Answer),
    /// A version of an object has come.
    Held(Box<Held>),
}

/// What is waited for.
pub(crate) type Coming = Pin<Box<dyn Future<Output = Result<Outcome>> + Send>>;

/// A claim to come, and how long its loop waits for it.
pub(crate) fn claiming(
    open: &Open,
    ask: &Ask<'_>,
    timeout: Option<Duration>,
) -> Result<(Coming, Option<Duration>)> {
    let (wait, timeout) = open.clocks(timeout);
    let claim = open.client.claim_async(ask, wait)?;
    Ok((Box::pin(async { Ok(Outcome::Waited(claim.await?)) }), timeout))
}

/// Who waits, and so what becomes of the outcome.
#[derive(Debug)]
pub(crate) enum Waiter {
    /// A task of that consumer, for so long.
    Task(Arc<str>, Option<Duration>),
    /// The same of one that has subscribed.
    Subscriber(Arc<str>, Option<Duration>),
    /// A trainer, in a step.
    Trainer(Py<MicroBatches>),
    /// Somebody with a question.
    Reader,
    /// Somebody who wants an object of that key.
    Holder(Arc<str>, Wanted),
}

/// A wait that an event loop has begun.
#[pyclass(frozen, module = "forebay")]
#[derive(Debug)]
pub(crate) struct Pending {
    handle: Arc<Handle>,
    wait: Arc<Slot<Wait>>,
    waiter: Waiter,
    timeout: Option<Duration>,
}

/// The wait itself. Whoever lets it end otherwise than by its outcome rings the bell.
struct Wait {
    coming: Coming,
    rings: Option<Waker>,
}

impl std::fmt::Debug for Wait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wait").field("rings", &self.rings).finish_non_exhaustive()
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let Some(bell) = self.rings.take() {
            bell.wake();
        }
    }
}

impl Pending {
    pub(crate) fn new(
        handle: &Arc<Handle>,
        open: &Open,
        coming: Coming,
        waiter: Waiter,
        timeout: Option<Duration>,
    ) -> Self {
        let wait = open.hold(Wait { coming, rings: None });
        Pending { handle: handle.clone(), wait, waiter, timeout }
    }

    /// The coroutine that `forebay/_async.py` makes of it.
    pub(crate) fn awaited<'py>(self, py: Python<'py>, by: &str) -> Result<Bound<'py, PyAny>> {
        Ok(py.import("forebay._async")?.getattr(by)?.call1((self,))?)
    }

    /// One look, with the store open.
    fn look(&self, waker: Waker) -> Result<Option<Outcome>> {
        let mut slot = self.wait.lock();
        let wait = slot.as_mut().ok_or_else(|| self.handle.closed())?;
        let Poll::Ready(outcome) = wait.coming.as_mut().poll(&mut Context::from_waker(&waker)) else {
            wait.rings = Some(waker);
            return Ok(None);
        };
        wait.rings = None;
        let over = slot.take();
        drop(slot);
        drop(over);
        outcome.map(Some)
    }

    fn timed_out(&self, open: &Open) -> Failure {
        let timeout = self.timeout.unwrap_or_default();
        // A loop waits for no server to hear why.
        let reason = |name: &str| if open.is_here() { lacking::reason(open, name) } else { String::new() };
        match &self.waiter {
            Waiter::Trainer(batches) => batches.get().timed_out(&reason(batches.get().consumer())),
            Waiter::Task(name, timeout) | Waiter::Subscriber(name, timeout) => {
                crate::consumer::timed_out(name, timeout.unwrap_or_default(), &reason(name))
            }
            Waiter::Holder(key, wanted) => crate::objects::timed_out(key, *wanted, timeout),
            Waiter::Reader => crate::failure::timeout(format!("no answer in {} s", timeout.as_secs_f64())),
        }
    }

    fn end(&self) {
        let wait = self.wait.lock().take();
        if let Some(mut wait) = wait {
            wait.rings = None;
        }
    }
}

/// What Python gets of an outcome.
enum Given {
    Batch(Box<Batch>),
    Answer(Answer),
    Held(HeldObject),
    Nothing,
}

#[pymethods]
impl Pending {
    /// How long the loop waits, in seconds; `None` where the server does.
    #[getter]
    fn timeout(&self) -> Option<f64> {
        self.timeout.map(|timeout| timeout.as_secs_f64())
    }

    /// Looks whether it is over: a tuple of what it came to, or `None`; then the bell rings with that number when another
    /// look is worth it.
    fn poll<'py>(&self, py: Python<'py>, bell: &Bell, number: u64) -> Result<Option<Bound<'py, PyTuple>>> {
        let waker = bell.waker(number);
        let given = self.handle.run(py, |open| {
            let Some(outcome) = self.look(waker)? else { return Ok(None) };
            Ok(Some(match (outcome, &self.waiter) {
                (
                    Outcome::Waited(Waited::Claimed(claim)),
                    Waiter::Task(name, _) | Waiter::Subscriber(name, _),
                ) => Given::Batch(Box::new(Batch::new(&self.handle, open, name, claim))),
                (Outcome::Waited(Waited::Claimed(claim)), Waiter::Trainer(batches)) => {
                    Given::Batch(Box::new(batches.get().handed_out(open, claim)?))
                }
                (Outcome::Held(held), _) => Given::Held(HeldObject::new(&self.handle, open, *held)),
                (Outcome::Answered(answer), _) => Given::Answer(Answer::new(answer)),
                (Outcome::Waited(Waited::Complete), Waiter::Trainer(_) | Waiter::Subscriber(..)) => {
                    Given::Nothing
                }
                (Outcome::Waited(Waited::TimedOut), _) => return Err(self.timed_out(open)),
                (Outcome::Waited(_), _) => return Err(self.handle.closed()),
            }))
        })?;
        let Some(given) = given else { return Ok(None) };
        let given = match given {
            Given::Batch(batch) => Bound::new(py, *batch)?.into_any(),
            Given::Answer(answer) => Bound::new(py, answer)?.into_any(),
            Given::Held(held) => Bound::new(py, held)?.into_any(),
            Given::Nothing => py.None().into_bound(py),
        };
        Ok(Some(PyTuple::new(py, [given])?))
    }

    /// Gives the wait up, if it is not over.
    fn cancel(&self, py: Python<'_>) {
        py.detach(|| self.end());
    }

    /// Gives the wait up and raises that nothing came in time.
    fn expire(&self, py: Python<'_>) -> Result<()> {
        self.cancel(py);
        self.handle.run(py, |open| Err(self.timed_out(open)))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        // Giving a place in line up takes locks of the store, which nobody waits for with the interpreter's.
        Python::try_attach(|py| py.detach(|| self.end())).unwrap_or_else(|| self.end());
    }
}

/// The coroutine that an `async with` begins with whose beginning waits for nothing: it gives the object.
pub(crate) fn entered<'py>(object: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    Ok(object.py().import("forebay._async")?.getattr("entered")?.call1((object,))?)
}

/// The coroutine of a call that may block, on one of the package's few threads for such calls.
pub(crate) fn in_thread<'py>(
    object: &Bound<'py, PyAny>,
    method: &str,
    arguments: &Bound<'py, PyTuple>,
    keywords: Option<&Bound<'py, pyo3::types::PyDict>>,
) -> Result<Bound<'py, PyAny>> {
    let run = object.py().import("forebay._async")?.getattr("in_thread")?;
    Ok(run.call1((object.getattr(method)?, arguments, keywords))?)
}
