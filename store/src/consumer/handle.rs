//! What callers hold of a consumer.

use std::sync::Arc;
use std::time::Duration;

use super::declaration::ConsumerKind;
use super::future::ClaimFuture;
use super::limiter::RateLimiterInfo;
use super::micro_batch::MicroBatch;
use super::select::Shortage;
use super::signal::{InLine, Signal};
use crate::claim::Claim;
use crate::clock::Timestamp;
use crate::error::{Cause, Result};
use crate::log::record::{ClaimRecord, Event};
use crate::state::Ask;
use crate::step::{Begun, ReliedCaches};
use crate::store::Store;
use crate::sync::EventListener;
use crate::table::Table;

/// How long a call waits for something to become ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    No,
    /// At most this long, on the store's clock.
    For(Duration),
    /// As long as it takes.
    Forever,
}

/// A declared consumer. Handles are cheap to clone and may be used from any thread.
#[derive(Clone, Debug)]
pub struct ConsumerHandle {
    store: Store,
    index: usize,
    name: String,
    kind: ConsumerKind,
    signal: Arc<Signal>,
}

/// What one look at the ready queue led to.
#[derive(Debug)]
pub(crate) enum Attempt {
    /// Rows were claimed.
    Claimed(Claim),
    /// Nothing now; ask again when woken.
    NotReady,
    /// Nothing any more.
    Complete,
}

impl Attempt {
    /// The same, of a trainer's claim: its gradient goes to these caches.
    pub(crate) fn relying_on(self, caches: &Arc<ReliedCaches>) -> Self {
        match self {
            Attempt::Claimed(claim) => Attempt::Claimed(claim.relying_on(caches.clone())),
            other => other,
        }
    }
}

impl ConsumerHandle {
    pub(crate) fn new(store: Store, index: usize, name: String, kind: ConsumerKind) -> Self {
        let signal = store.0.signals.of(index);
        ConsumerHandle { store, index, name, kind, signal }
    }

    /// What it does with its claims.
    pub fn kind(&self) -> ConsumerKind {
        self.kind
    }

    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// Refuses a store that the consumer is not of.
    pub(crate) fn check_store(&self, store: &Store) -> Result<()> {
        if Arc::ptr_eq(&self.store.0, &store.0) {
            return Ok(());
        }
        let reason = format!("{:?} is a consumer of another store", self.name);
        Err(Cause::Argument { what: "consumer", reason }.into())
    }

    /// Says that a group has exactly so many members (rows or trajectories, as it was declared), whether any of them has
    /// come or not. Asking for the same again is success.
    ///
    /// ```
    /// # use forebay_store::*;
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path().join("store"), Options::default())?;
    /// let solver = store.create_table("solver", Schema::new().data("reward", DataType::Float32))?;
    /// let judge = store.create_consumer("judge", Consumer::task(["solver"]).ready(["reward"]).group(GroupBy::Input, 8))?;
    /// judge.expect_group(&solver, 0, "q17", 2)?; // this one is smaller
    /// solver.insert(0, "q17_0_0", [("reward", 1.0.into())])?;
    /// assert!(judge.claim(MicroBatch::up_to(8), "me", Wait::No)?.is_none());
    /// solver.insert(0, "q17_0_1", [("reward", 0.0.into())])?;
    /// assert_eq!(judge.claim(MicroBatch::up_to(8), "me", Wait::No)?.unwrap().len(), 2);
    /// # Ok::<(), forebay_store::Error>(())
    /// ```
    ///
    /// # Errors
    /// `input` when `key` is none of its keys; `state` when the consumer takes single rows, the group has more members
    /// already, was closed or handed out, or its version is over.
    pub fn expect_group(&self, table: &Table, policy_version: u64, key: &str, members: u32) -> Result<()> {
        let mut batch = self.store.batch();
        batch.expect_group(self, table, policy_version, key, members)?;
        batch.commit().map(drop)
    }

    /// Says that nobody more will come to a group: a member that has not come, or is not ready, is late, and the
    /// declared [`GroupRule`](crate::GroupRule) says what becomes of the group. Late rows are left out: by a trainer for
    /// good, with the reason `late`, by a task for that task only. Closing a closed group is success.
    ///
    /// # Errors
    /// `input` when `key` is none of its keys; `state` when the consumer takes single rows, or the version is over.
    pub fn close_group(&self, table: &Table, policy_version: u64, key: &str) -> Result<()> {
        let mut batch = self.store.batch();
        batch.close_group(self, table, policy_version, key)?;
        batch.commit().map(drop)
    }

    /// Says that a trajectory of a group has all its rows, for a consumer that counts
    /// [trajectories](crate::Consumer::trajectories). One that has none is a member all the same: its agent took no turn.
    /// A row that comes later is surplus. To close it with its last cell, use
    /// [`WriteBatch::close_trajectory`](crate::WriteBatch::close_trajectory).
    ///
    /// # Errors
    /// `input` as for [`expect_group`](ConsumerHandle::expect_group), or when the consumer counts rows; `state` when the
    /// group has all its trajectories, or its version is over.
    pub fn close_trajectory(
        &self,
        table: &Table,
        policy_version: u64,
        key: &str,
        trajectory: u32,
    ) -> Result<()> {
        let mut batch = self.store.batch();
        batch.close_trajectory(self, table, policy_version, key, trajectory)?;
        batch.commit().map(drop)
    }

    /// The consumer's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The store that the consumer reads from.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Claims rows for a task. `None` when nothing became ready in time.
    ///
    /// # Errors
    /// `state` for a trainer: its rows are claimed through [`Step::next`](crate::Step::next). `input` for a micro-batch of
    /// 0 rows. `closed` when the store is.
    pub fn claim(&self, rule: MicroBatch, owner: &str, wait: Wait) -> Result<Option<Claim>> {
        self.check_task()?;
        let ask = Ask { rule, step: None };
        self.claim_when_ready(ask, wait, || self.attempt(ask, owner))
    }

    /// The same without blocking a thread.
    ///
    /// # Errors
    /// `state` for a trainer. The future's errors are those of [`claim`](ConsumerHandle::claim).
    pub fn claim_async(&self, rule: MicroBatch, owner: &str) -> Result<ClaimFuture> {
        self.check_task()?;
        Ok(ClaimFuture::new(self.clone(), Ask { rule, step: None }, owner.to_owned()))
    }

    fn check_task(&self) -> Result<()> {
        if self.kind == ConsumerKind::Task {
            return Ok(());
        }
        let (consumer, found) = (self.name.clone(), self.kind.as_str());
        let hint = "begin a step and take its micro-batches";
        Err(Cause::ConsumerKind { consumer, found, hint }.into())
    }

    /// A listener for the next change that may make something ready. Ask first, listen, ask again, then wait: for
    /// threads, and as a future for any async runtime. Everyone who listens is woken by every such change; who wants a
    /// claim waits better with [`claim`](ConsumerHandle::claim) or [`claim_async`](ConsumerHandle::claim_async).
    pub fn listen(&self) -> EventListener {
        self.signal.listen()
    }

    /// Wakes everyone who waits on this consumer, so that they look again: at the queue, or at whether they are to stop.
    pub fn wake(&self) {
        self.signal.wake_all();
    }

    pub(crate) fn signal(&self) -> &Arc<Signal> {
        &self.signal
    }

    /// Repeats `attempt` until it succeeds, nothing more can come, or the wait is over.
    pub(crate) fn claim_when_ready(
        &self,
        ask: Ask,
        wait: Wait,
        mut attempt: impl FnMut() -> Result<Attempt>,
    ) -> Result<Option<Claim>> {
        let clock = self.store.clock();
        let until = match wait {
            Wait::For(time) => Some(clock.now().after(time)),
            Wait::No | Wait::Forever => None,
        };
        let mut place: Option<InLine> = None;
        let outcome = loop {
            match attempt() {
                Ok(Attempt::Claimed(claim)) => {
                    place.into_iter().for_each(InLine::leave);
                    return Ok(Some(claim));
                }
                Ok(Attempt::Complete) => break Ok(None),
                Ok(Attempt::NotReady) if wait == Wait::No => break Ok(None),
                Ok(Attempt::NotReady) if until.is_some_and(|until| clock.now() >= until) => break Ok(None),
                Ok(Attempt::NotReady) => {}
                Err(error) => break Err(error),
            }
            let Some(place) = &mut place else {
                place = Some(self.signal.stand_in_line_for(ask));
                continue; // in line first, then another look
            };
            if let Some(listener) = place.listener().take() {
                clock.wait(listener, earliest(until, self.store.0.next_look()));
            }
            place.listener();
        };
        if place.take().is_some() {
            self.signal.announce(); // a wake-up that was used for nothing is somebody else's
        }
        outcome
    }

    /// The keys of the groups that there are and that have not been handed out, complete or not: of the versions that the
    /// consumer may take now, and of peers where it takes those. In alphabetical order, each once; empty for a consumer that
    /// takes single rows. What a step takes that is to take all that was begun:
    ///
    /// ```
    /// # use forebay_store::*;
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path().join("store"), Options::default())?;
    /// let solver = store.create_table("solver", Schema::new().data("reward", DataType::Float32))?;
    /// let train = store.create_consumer("train", Consumer::trainer(["solver"]).ready(["reward"]).group(GroupBy::Input, 2))?;
    /// solver.insert(0, "q17_0_0", [])?; // of a group of two, one has come
    /// assert_eq!(train.open_groups(), ["q17"]);
    /// let step = store.begin_step(StepPlan::new().groups(&train, train.open_groups()))?;
    /// # drop(step);
    /// # Ok::<(), forebay_store::Error>(())
    /// ```
    pub fn open_groups(&self) -> Vec<String> {
        self.store.0.state.lock().open_groups(self.index)
    }

    /// How the consumer's rate limiter stands; `None` where it has none.
    pub fn rate_limiter(&self) -> Option<RateLimiterInfo> {
        let state = self.store.0.state.lock();
        state.consumers[self.index].limiter.map(|limiter| limiter.info(state.tally(self.index)))
    }

    /// Tells those who wait to insert what became of a look at the ready queue.
    pub(crate) fn tell(&self, ask: Ask, outcome: &Result<Attempt>) {
        match outcome {
            Ok(Attempt::NotReady) => self.signal.throttle().asked_in_vain(ask),
            Ok(Attempt::Claimed(_)) => self.signal.throttle().got(ask),
            Ok(Attempt::Complete) | Err(_) => {}
        }
    }

    /// One look at the ready queue.
    pub(crate) fn attempt(&self, ask: Ask, owner: &str) -> Result<Attempt> {
        let outcome = self.look(ask, owner);
        self.tell(ask, &outcome);
        outcome
    }

    fn look(&self, Ask { rule, step: begun }: Ask, owner: &str) -> Result<Attempt> {
        rule.check()?;
        let shared = &self.store.0;
        if rule.open_groups() > 0 {
            shared.state.lock().check_rule(self.index, &rule)?; // or who asks for what never comes would wait for it
        }
        let now = shared.options.clock.now();
        shared.expire_at(now)?;
        if rule.budget.is_none() && !self.signal.is_worth_a_look(rule.need(), begun.map_or(0, Begun::word)) {
            return Ok(Attempt::NotReady);
        }
        let deadline = now.after(shared.options.lease);
        shared.submit_lease(|state| {
            begun.map_or(Ok(()), |step| state.check_begun(step))?;
            let step = begun.map(|step| step.number);
            state.check_rule(self.index, &rule)?;
            let (selection, sequence_in_step) = match state.decide_claim(self.index, rule, step) {
                Ok(decided) => decided,
                Err(Shortage::NotReady) => return Ok((None, Attempt::NotReady)),
                Err(Shortage::Complete) => return Ok((None, Attempt::Complete)),
            };
            let number = state.claims.next_number();
            let record = ClaimRecord {
                claim: number,
                consumer: self.index as u32,
                table: selection.table,
                rows: selection.rows,
                owner: owner.to_owned(),
                deadline: deadline.0,
                step: step.unwrap_or(0),
                sequence_in_step,
                gang: None,
            };
            let claim = Claim::new(self.store.clone(), state, &record, self.kind);
            Ok((Some(Event::Claimed(record)), Attempt::Claimed(claim)))
        })
    }
}

fn earliest(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    a.into_iter().chain(b).min()
}
