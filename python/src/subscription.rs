//! The loop of a task that has subscribed: claim after claim, as they become ready.

use std::sync::Arc;
use std::time::Duration;

use forebay::client::{self, SubscribeOptions, Waited};
use forebay::store::MicroBatch;
use pyo3::prelude::*;

use crate::batch::Batch;
use crate::consumer::timed_out;
use crate::failure::Result;
use crate::handle::{Handle, Open};
use crate::lacking;
use crate::pending::{Coming, Outcome, Pending, Waiter};
use crate::slot::Slot;
use crate::wait::block_on;

/// An iterator over the claims of one subscription. It lies in a slot of its store, so that closing either ends it; its waits end then,
/// too.
#[pyclass(frozen, module = "forebay")]
#[derive(Debug)]
pub(crate) struct Subscription {
    handle: Arc<Handle>,
    claims: Arc<Slot<client::Subscription>>,
    consumer: Arc<str>,
    timeout: Option<Duration>,
}

/// The cause of an error that says that the subscription is over because it was closed here.
const OVER: &str = "SubscriptionOver";

impl Subscription {
    pub(crate) fn begin(
        handle: &Arc<Handle>,
        open: &Open,
        consumer: &Arc<str>,
        rule: MicroBatch,
        options: &SubscribeOptions,
        timeout: Option<Duration>,
    ) -> Result<Self> {
        let claims = open.hold(open.client.consumer(consumer)?.subscribe(rule, options)?);
        Ok(Subscription { handle: handle.clone(), claims, consumer: consumer.clone(), timeout })
    }

    /// The next claim to come: complete where the subscription was closed.
    fn coming(&self) -> Option<Coming> {
        let claim = self.claims.lock().as_ref()?.next_async();
        Some(Box::pin(async {
            match claim.await {
                Ok(claim) => Ok(Outcome::Waited(Waited::Claimed(claim))),
                Err(error) if error.cause() == OVER => Ok(Outcome::Waited(Waited::Complete)),
                Err(error) => Err(error.into()),
            }
        }))
    }

    fn next(&self, open: &Open) -> Result<Option<Batch>> {
        let Some(coming) = self.coming() else { return Ok(None) };
        match block_on(coming, self.timeout)?.transpose()? {
            Some(Outcome::Waited(Waited::Claimed(claim))) => {
                Ok(Some(Batch::new(&self.handle, open, &self.consumer, claim)))
            }
            Some(_) => Ok(None),
            None => {
                let timeout = self.timeout.unwrap_or_default();
                Err(timed_out(&self.consumer, timeout, &lacking::reason(open, &self.consumer)))
            }
        }
    }
}

#[pymethods]
impl Subscription {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> Result<Option<Batch>> {
        self.handle.run(py, |open| self.next(open))
    }

    fn __aiter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __anext__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        let waiter = Waiter::Subscriber(self.consumer.clone(), self.timeout);
        let over = || -> Coming { Box::pin(std::future::ready(Ok(Outcome::Waited(Waited::Complete)))) };
        let pending = self.handle.run(py, |open| {
            let coming = self.coming().unwrap_or_else(over);
            Ok(Pending::new(&self.handle, open, coming, waiter, self.timeout))
        })?;
        pending.awaited(py, "next_batch")
    }

    /// Ends it. What nobody has taken goes back.
    fn close(&self, py: Python<'_>) {
        let claims = &self.claims;
        py.detach(|| drop(claims.lock().take()));
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, pyo3::types::PyTuple>) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        format!("<subscription to {:?} of {}>", self.consumer, self.handle.place())
    }
}
