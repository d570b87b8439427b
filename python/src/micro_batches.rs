//! The loop of a trainer: micro-batch after micro-batch, until the step has all that was planned.

use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay::client::{Ask, Claim, Role, Step as ClientStep, Waited};
use forebay::store::MicroBatch;
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::batch::Batch;
use crate::failure::{Failure, Result, state, timeout as timed_out};
use crate::handle::{Handle, Open};
use crate::lacking;
use crate::metrics::Tally;
use crate::pending::{Pending, Waiter, claiming};
use crate::slot::Slot;
use crate::wait::wait_for;

/// An iterator over the micro-batches of one trainer in one step; of one rank of it, where ranks share them.
///
/// Each has to be accumulated or released before the next is asked for. One that was forgotten would be given back, handed
/// out again, and so on for ever; so that is an error, with its place named.
#[pyclass(frozen, module = "forebay")]
#[derive(Debug)]
pub(crate) struct MicroBatches {
    handle: Arc<Handle>,
    step: Arc<Slot<ClientStep>>,
    number: u64,
    consumer: Arc<str>,
    rule: MicroBatch,
    timeout: Option<Duration>,
    role: Role,
    counted: Counted,
    asked: Mutex<Option<Instant>>,
    last: Mutex<Option<Last>>,
}

/// How the step's record counts them.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) tally: Arc<Tally>,
    /// The column whose lengths are tokens.
    pub(crate) tokens: Option<String>,
    /// Whether other ranks have the same rows.
    pub(crate) is_copy: bool,
}

/// The micro-batch that was handed out last.
#[derive(Debug)]
struct Last {
    claim: Arc<Slot<Claim>>,
    sequence: u32,
}

impl MicroBatches {
    #[allow(clippy::too_many_arguments, reason = "what a step says of them, once")]
    pub(crate) fn new(
        handle: &Arc<Handle>,
        step: &Arc<Slot<ClientStep>>,
        number: u64,
        consumer: Arc<str>,
        rule: MicroBatch,
        timeout: Option<Duration>,
        role: Role,
        counted: Counted,
    ) -> Self {
        let (handle, step) = (handle.clone(), step.clone());
        let (asked, last) = (Mutex::new(None), Mutex::new(None));
        MicroBatches { handle, step, number, consumer, rule, timeout, role, counted, asked, last }
    }

    fn check_last(&self) -> Result<()> {
        let last = self.last.lock();
        match &*last {
            Some(Last { claim, sequence }) if claim.is_full() => Err(state(format!(
                "micro-batch {sequence} of step {} for {:?} is still held; call accumulated() or release() on it, then go on",
                self.number, self.consumer
            ))),
            _ => Ok(()),
        }
    }

    /// The error of a trainer that waited for nothing.
    pub(crate) fn timed_out(&self, reason: &str) -> Failure {
        let seconds = self.timeout.unwrap_or_default().as_secs_f64();
        let (number, name) = (self.number, &self.consumer);
        timed_out(format!(
            "step {number} waited {seconds} s for the next micro-batch of {name:?}; rows that were planned are not ready yet{reason}"
        ))
    }

    /// Whose micro-batches they are.
    pub(crate) fn consumer(&self) -> &str {
        &self.consumer
    }

    /// A micro-batch that was claimed, as Python gets it.
    pub(crate) fn handed_out(&self, open: &Open, claim: Claim) -> Result<Batch> {
        if let Some(asked) = self.asked.lock().take() {
            self.counted.tally.waited(asked.elapsed());
        }
        let Counted { tally, tokens, is_copy } = &self.counted;
        let share = tally.share(&claim, tokens.as_deref(), *is_copy)?;
        let sequence = claim.sequence_in_step();
        let batch = Batch::new(&self.handle, open, &self.consumer, claim).counted_as(share);
        *self.last.lock() = Some(Last { claim: batch.claim().clone(), sequence });
        Ok(batch)
    }

    /// What is asked for next.
    fn asking(&self) -> Result<Ask<'_>> {
        self.check_last()?;
        if !self.step.is_full() {
            let number = self.number;
            return Err(state(format!(
                "step {number} was committed or given up; its micro-batches are over"
            )));
        }
        *self.asked.lock() = Some(Instant::now());
        Ok(Ask { consumer: &self.consumer, rule: self.rule, role: self.role, owner: None, columns: &[] })
    }

    fn next(&self, open: &Open) -> Result<Option<Batch>> {
        match wait_for(open, &self.asking()?, self.timeout)? {
            Waited::Complete => Ok(None),
            Waited::TimedOut => Err(self.timed_out(&lacking::reason(open, &self.consumer))),
            Waited::Claimed(claim) => self.handed_out(open, claim).map(Some),
        }
    }
}

#[pymethods]
impl MicroBatches {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> Result<Option<Batch>> {
        self.handle.run(py, |open| self.next(open))
    }

    fn __aiter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __anext__<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>> {
        let (py, batches) = (slf.py(), slf.get());
        let waiter = Waiter::Trainer(slf.clone().unbind());
        let pending = batches.handle.run(py, |open| {
            let (coming, alarm) = claiming(open, &batches.asking()?, batches.timeout)?;
            Ok(Pending::new(&batches.handle, open, coming, waiter, alarm))
        })?;
        pending.awaited(py, "next_batch")
    }

    fn __repr__(&self) -> String {
        format!("<micro-batches of step {} for {:?}>", self.number, self.consumer)
    }
}
