//! Claims that come by themselves, of a store in this process: each is made when it is asked for, for as long as fewer than so many
//! are unsettled.
//!
//! # Waiting
//! Who may have no more claims listens to the consumer. The holder of the claims wakes it when one of them is settled ([`Full`]), and
//! the store does when a lease has ended, since its rows become ready.
//!
//! # Locks
//! That of [`Full`] and that of a count, neither under the other, each for a look-up. With the second the holder's may be taken.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use forebay_store::{Claim, ConsumerHandle, MicroBatch, Timestamp, Wait};

use crate::connection::{Ask, Epoch, Granted, NextGranted, Pushing, Role};
use crate::error::Result;
use crate::holder::Holder;
use crate::subscription::dropped;

/// How often who may have no more claims looks whether leases have ended.
const EXPIRY_LOOK_EVERY: Duration = Duration::from_secs(1);

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner) // entries are whole
}

/// The consumers of those who wait for a claim to be settled.
#[derive(Debug, Default)]
pub(super) struct Full(Mutex<(u64, HashMap<u64, ConsumerHandle>)>);

impl Full {
    /// A claim was settled.
    pub(super) fn settled(&self) {
        let waiting: Vec<ConsumerHandle> = lock(&self.0).1.values().cloned().collect();
        waiting.iter().for_each(ConsumerHandle::wake); // with nothing locked
    }

    fn enter(self: &Arc<Self>, consumer: &ConsumerHandle) -> InFull {
        let mut waiting = lock(&self.0);
        waiting.0 += 1;
        let number = waiting.0;
        waiting.1.insert(number, consumer.clone());
        InFull { of: self.clone(), number }
    }
}

/// Somebody who waits for a claim to be settled, until it is dropped.
struct InFull {
    of: Arc<Full>,
    number: u64,
}

impl Drop for InFull {
    fn drop(&mut self) {
        lock(&self.of.0).1.remove(&self.number);
    }
}

/// A subscription, for whoever takes its claims.
#[derive(Debug)]
pub(super) struct Taking(Subscribed);

/// The same for those who wait.
#[derive(Clone, Debug)]
struct Subscribed(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    holder: Arc<Holder>,
    full: Arc<Full>,
    consumer: ConsumerHandle,
    rule: MicroBatch,
    owner: Option<String>,
    outstanding: usize,
    counted: Mutex<Counted>,
    /// Nobody takes anything more.
    is_left: AtomicBool,
}

/// What counts as unsettled.
#[derive(Debug, Default)]
struct Counted {
    claims: Vec<Epoch>,
    /// How many are about to be made.
    asked: usize,
}

/// Room for one claim, until it is dropped.
struct Room(Subscribed);

impl Room {
    fn keep(self, granted: Granted) -> Granted {
        lock(&self.0.0.counted).claims.push(granted.epoch);
        granted
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        lock(&self.0.0.counted).asked -= 1;
        self.0.0.full.settled(); // it may be another's
    }
}

impl Taking {
    pub(super) fn begin(
        holder: &Arc<Holder>,
        full: &Arc<Full>,
        ask: &Ask<'_>,
        outstanding: usize,
    ) -> Result<Self> {
        let inner = Inner {
            holder: holder.clone(),
            full: full.clone(),
            consumer: holder.store().consumer(ask.consumer)?,
            rule: ask.rule,
            owner: ask.owner.map(str::to_owned),
            outstanding,
            counted: Mutex::default(),
            is_left: AtomicBool::new(false),
        };
        Ok(Taking(Subscribed(Arc::new(inner))))
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        self.0.0.is_left.store(true, Ordering::SeqCst);
        self.0.0.consumer.wake(); // futures that wait on
    }
}

impl Subscribed {
    fn ask(&self) -> Ask<'_> {
        let Inner { consumer, rule, owner, .. } = &*self.0;
        Ask {
            consumer: consumer.name(),
            rule: *rule,
            role: Role::Task,
            owner: owner.as_deref(),
            columns: &[],
        }
    }

    fn check(&self) -> Result<()> {
        self.0.holder.check_open()?;
        if self.0.is_left.load(Ordering::SeqCst) { Err(dropped()) } else { Ok(()) }
    }

    /// Room for a claim, where there is some now.
    fn room(&self) -> Result<Option<Room>> {
        self.check()?;
        let holder = &self.0.holder;
        let mut counted = lock(&self.0.counted);
        counted.claims.retain(|epoch| holder.look(*epoch, Claim::is_live).unwrap_or(false));
        let is_room = counted.claims.len() + counted.asked < self.0.outstanding;
        counted.asked += usize::from(is_room);
        Ok(is_room.then(|| Room(self.clone())))
    }

    /// Room for a claim, as soon as there is some; none when the wait is over.
    fn room_within(&self, wait: Wait, until: Option<Timestamp>) -> Result<Option<Room>> {
        let Inner { holder, full, consumer, .. } = &*self.0;
        let clock = holder.store().clock();
        loop {
            let (listener, _in_full) = (consumer.listen(), full.enter(consumer)); // listen first, then look
            if let Some(room) = self.room()? {
                return Ok(Some(room));
            }
            let now = clock.now();
            if wait == Wait::No || until.is_some_and(|until| now >= until) {
                return Ok(None);
            }
            let look = now.after(EXPIRY_LOOK_EVERY);
            clock.wait(listener, Some(until.map_or(look, |until| until.min(look))));
        }
    }

    async fn room_async(&self) -> Result<Room> {
        let Inner { full, consumer, .. } = &*self.0;
        loop {
            let (listener, _in_full) = (consumer.listen(), full.enter(consumer)); // listen first, then look
            if let Some(room) = self.room()? {
                return Ok(room);
            }
            listener.await;
        }
    }

    async fn claim_async(self) -> Result<Granted> {
        let holder = &self.0.holder;
        loop {
            let room = self.room_async().await?;
            let mut rows = pin!(holder.claim_async(&self.ask())?);
            let claim = poll_fn(|context| match self.check() {
                Ok(()) => rows.as_mut().poll(context).map_err(|error| holder.closed_or(error.into())),
                Err(error) => Poll::Ready(Err(error)),
            });
            // A task's wait ends with a claim; whatever else it ends with is looked at above.
            if let Some(claim) = claim.await? {
                return Ok(room.keep(holder.keep_unless_closed(claim, Role::Task)?));
            }
        }
    }
}

impl Pushing for Taking {
    fn next(&self, wait: Wait) -> Result<Option<Granted>> {
        let Taking(of) = self;
        let clock = of.0.holder.store().clock();
        let until = match wait {
            Wait::For(time) => Some(clock.now().after(time)),
            Wait::No | Wait::Forever => None,
        };
        let Some(room) = of.room_within(wait, until)? else { return Ok(None) };
        let left = until.map_or(wait, |until| Wait::For(until.since(clock.now())));
        let granted = of.0.holder.claim(&of.ask(), left)?;
        Ok(granted.map(|granted| room.keep(granted)))
    }

    fn next_async(&self) -> NextGranted {
        Box::pin(self.0.clone().claim_async())
    }
}
