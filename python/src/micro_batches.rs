//! The loop of a trainer: micro-batch after micro-batch, until the step has all that was planned.

use std::sync::Arc;
use std::time::Duration;

use forebay::store::{Claim, ConsumerHandle, GangMember, MicroBatch, Step as StoreStep, Wait};
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::batch::Batch;
use crate::failure::{Result, state, timeout as timed_out};
use crate::handle::{Handle, Open};
use crate::slot::Slot;
use crate::wait::{Deadline, Waited, heed_signals, wait_for};

/// An iterator over the micro-batches of one trainer in one step; of one rank of it, where ranks share them.
///
/// Each has to be accumulated or released before the next is asked for. One that was forgotten would be given back, handed
/// out again, and so on for ever; so that is an error, with its place named.
#[pyclass(frozen, module = "forebay")]
#[derive(Debug)]
pub(crate) struct MicroBatches {
    handle: Arc<Handle>,
    step: Arc<Slot<Arc<StoreStep>>>,
    number: u64,
    consumer: Arc<str>,
    rule: MicroBatch,
    timeout: Option<Duration>,
    member: Option<Arc<Slot<Arc<GangMember>>>>,
    last: Mutex<Option<Last>>,
}

/// The micro-batch that was handed out last.
#[derive(Debug)]
struct Last {
    claim: Arc<Slot<Claim>>,
    sequence: u32,
}

impl MicroBatches {
    pub(crate) fn new(
        handle: &Arc<Handle>,
        step: &Arc<Slot<Arc<StoreStep>>>,
        number: u64,
        consumer: Arc<str>,
        rule: MicroBatch,
        timeout: Option<Duration>,
        member: Option<Arc<Slot<Arc<GangMember>>>>,
    ) -> Self {
        let (handle, step, last) = (handle.clone(), step.clone(), Mutex::new(None));
        MicroBatches { handle, step, number, consumer, rule, timeout, member, last }
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

    fn next(&self, open: &Open) -> Result<Option<Batch>> {
        self.check_last()?;
        let step = self.step.lock().clone();
        let step = step.ok_or_else(|| {
            state(format!("step {} was committed or given up; its micro-batches are over", self.number))
        })?;
        let consumer = open.consumer(&self.consumer)?;
        let waited = match &self.member {
            None => wait_for(step.next_async(&consumer, self.rule)?, self.timeout)?,
            Some(member) => {
                let member = member.lock().clone();
                let member = member.ok_or_else(|| state(format!("step {} is over", self.number)))?;
                self.next_of_rank(&step, &consumer, &member)?
            }
        };
        match waited {
            Waited::Complete => Ok(None),
            Waited::TimedOut => {
                let seconds = self.timeout.unwrap_or_default().as_secs_f64();
                let (number, name) = (self.number, &self.consumer);
                Err(timed_out(format!(
                    "step {number} waited {seconds} s for the next micro-batch of {name:?}; rows that were planned are not \
                     ready yet"
                )))
            }
            Waited::Claimed(claim) => {
                let sequence = claim.sequence_in_step();
                let batch = Batch::new(&self.handle, open, &self.consumer, claim);
                *self.last.lock() = Some(Last { claim: batch.claim().clone(), sequence });
                Ok(Some(batch))
            }
        }
    }

    /// Waits as [`wait_for`] does, in naps: ranks are woken by each other.
    fn next_of_rank(
        &self,
        step: &StoreStep,
        consumer: &ConsumerHandle,
        member: &GangMember,
    ) -> Result<Waited> {
        let deadline = Deadline::after(self.timeout);
        loop {
            let nap = deadline.nap();
            if let Some(claim) = member.next(self.rule, nap.map_or(Wait::No, Wait::For))? {
                return Ok(Waited::Claimed(claim));
            }
            // Another rank may have taken the last one since, and this rank has its part of it still to get.
            if step.is_complete(consumer) {
                let claim = member.next(self.rule, Wait::No)?;
                return Ok(claim.map_or(Waited::Complete, Waited::Claimed));
            }
            if nap.is_none() {
                return Ok(Waited::TimedOut);
            }
            heed_signals()?;
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

    fn __repr__(&self) -> String {
        format!("<micro-batches of step {} for {:?}>", self.number, self.consumer)
    }
}
