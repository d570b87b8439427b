//! Writes, as calls: with larger values in the store's files or in slabs where that can be, else sent.
//!
//! A write that is not waited for is a task of the client's runtime. Whoever brings it drives the runtime until the write is
//! with the kernel, and hears of answers when the next one is brought or waited for; a write that is too long for that is
//! driven by the client's thread.

use std::future::Future;
use std::mem::take;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use forebay_store::{Loan, Row};
use futures_util::future::BoxFuture;
use tokio::sync::{Semaphore, oneshot};

use super::driver::{Driver, Spawner, Wanted};
use super::line::{Encoded, Unary};
use super::{Again, Link, Remote, check_process, gone};
use crate::changes::Changes;
use crate::error::{Error, Result};
use crate::neighbour::{Filling, Layout, Lender};
use crate::slabs::Stowed;
use crate::wire::proto::change_reply::Outcome;
use crate::wire::{self, FLOW_ROWS_MAX, new_call, proto};
use crate::writing::{Answer, Writing};

/// How many writes may be under way that nobody waits for, and how many bytes of them.
const WRITES_AT_ONCE: usize = 64;
const BYTES_AT_ONCE: usize = 64 << 20;
/// How long the server has to tell how a table is laid out, without which a write goes as well.
const TOLD_WITHIN: Duration = Duration::from_secs(1);
/// What a write counts for at least.
const LEAST_BYTES: usize = BYTES_AT_ONCE / WRITES_AT_ONCE;
/// A permit stands for so many bytes: what is around values does not count, so four writes of a quarter are under way at once.
const PERMIT_BYTES: usize = 64 << 10;
/// How many there are.
pub(super) const PERMITS: u32 = (BYTES_AT_ONCE / PERMIT_BYTES) as u32;
/// The longest message that is with the kernel at once: a socket takes so much whoever reads it.
pub(super) const SHORT_BYTES: usize = 64 << 10;

/// A call that makes changes.
pub(super) trait Changing: Unary {
    /// What it is in a [flow](super::flow): the number of its field there.
    const FIELD: u32;

    /// What it changes; nothing in a call of the same type that makes none.
    fn changes(&mut self) -> Option<&mut proto::Changes>;

    /// The answer that an outcome is; none where it is another call's.
    fn reply(outcome: Outcome) -> Option<Self::Reply>;
}

impl Changing for proto::WriteRequest {
    const FIELD: u32 = 2;

    fn reply(outcome: Outcome) -> Option<proto::WriteReply> {
        match outcome {
            Outcome::Write(reply) => Some(reply),
            Outcome::Settle(_) | Outcome::Failed(_) => None,
        }
    }

    fn changes(&mut self) -> Option<&mut proto::Changes> {
        self.changes.as_mut()
    }
}

impl Changing for proto::SettleRequest {
    const FIELD: u32 = 3;

    fn reply(outcome: Outcome) -> Option<proto::SettleReply> {
        match outcome {
            Outcome::Settle(reply) => Some(reply),
            Outcome::Write(_) | Outcome::Failed(_) => None,
        }
    }

    fn changes(&mut self) -> Option<&mut proto::Changes> {
        match self.how.as_mut() {
            Some(proto::settle_request::How::Finish(changes)) => Some(changes),
            _ => None,
        }
    }
}

/// Changes that are to be sent.
struct Parcel<Q> {
    link: Link,
    message: Encoded<Q>,
    /// It is little, and so is its answer.
    is_short: bool,
    /// With values in extents or slabs: what fills these, and what is sent anew where the server does not know them.
    placed: Option<(Placing, Q)>,
}

/// Where the larger values of a call are put.
enum Placing {
    InExtents(Filling),
    InSlabs(Stowed),
}

impl Placing {
    fn unplaced(&self, message: proto::Changes) -> Result<proto::Changes> {
        match self {
            Placing::InExtents(filling) => filling.unplaced(message),
            Placing::InSlabs(stowed) => stowed.unplaced(message),
        }
    }
}

impl<Q: Changing> Parcel<Q> {
    async fn send(self) -> Result<Q::Reply> {
        let Parcel { link, message, is_short, placed } = self;
        let time = link.options.call_time_max;
        let answer = match is_short {
            true => link.change(new_call(), message, time).await,
            false => link.unary(new_call(), message, time, Again::Always).await,
        };
        match (answer, placed) {
            // The session was lost on the way, and with it what it was lent.
            (Err(error), Some((placing, mut request))) if error.cause() == wire::NOT_LENT => {
                // Values were counted as places: one message with all its values at a time.
                let (_turn, _wanted) = (link.resending.acquire().await, link.tasks.wanted());
                if let Some(changes) = request.changes() {
                    check_size(wire::placed_bytes(changes), link.message_bytes_max)?; // before they are read
                    *changes = sized(placing.unplaced(take(changes))?, link.message_bytes_max)?;
                }
                link.unary(new_call(), Encoded::new(&request), time, Again::Always).await
            }
            (answer, _) => answer,
        }
    }
}

/// A message that is no larger than the server takes.
pub(super) fn sized(message: proto::Changes, most: u64) -> Result<proto::Changes> {
    check_size(prost::Message::encoded_len(&message) as u64, most)?;
    Ok(message)
}

fn check_size(bytes: u64, most: u64) -> Result<()> {
    if bytes <= most {
        return Ok(());
    }
    let message = format!(
        "the changes take {bytes} bytes and the server takes messages of {most}; make fewer of them at once"
    );
    Err(Error::input("TooLarge", message))
}

fn rows(reply: proto::WriteReply) -> Result<Vec<Row>> {
    wire::to_rows(&reply.rows)
}

impl Remote {
    /// A call as it is sent, made of its changes by `of`. All inserts have names, however often they are sent.
    fn parcel<Q: Changing>(
        &self,
        changes: &Changes<'_>,
        of: impl FnOnce(proto::Changes) -> Q,
    ) -> Result<Parcel<Q>> {
        self.check_open()?; // before anything is put anywhere: a forked child has its parent's extents
        let (name, link) = (new_call(), self.link.clone());
        let named = |mut message| {
            wire::name_inserts(&mut message, name);
            sized(message, link.message_bytes_max)
        };
        let (message, placing) = match (&self.neighbour, &self.slabs) {
            (Some(neighbour), _) => {
                let mut filling = Filling::begin(neighbour.clone(), link.session());
                (filling.message(changes, self), Some(Placing::InExtents(filling)))
            }
            (None, Some(slabs)) => {
                let mut stowed = Stowed::begin(slabs.clone(), link.session());
                (stowed.message(changes), Some(Placing::InSlabs(stowed)))
            }
            (None, None) => (wire::from_changes(changes), None),
        };
        let message = named(message)?;
        // What is copied out of slabs is better copied beside what comes behind it than before.
        let is_copied = self.neighbour.is_none() && wire::placed_bytes(&message) > 0;
        let is_little = wire::flow_rows_of(&message) <= FLOW_ROWS_MAX && !is_copied;
        let request = of(message);
        let message = Encoded::new(&request);
        let is_short = is_little && message.length() <= SHORT_BYTES;
        Ok(Parcel { link, message, is_short, placed: placing.map(|placing| (placing, request)) })
    }

    /// Makes changes by a call.
    pub(super) fn change<Q: Changing>(
        &self,
        changes: &Changes<'_>,
        of: impl FnOnce(proto::Changes) -> Q,
    ) -> Result<Q::Reply> {
        let parcel = self.parcel(changes, of)?;
        self.wait(parcel.send())
    }

    pub(super) fn write_now(&self, changes: &Changes<'_>) -> Result<Vec<Row>> {
        rows(match self.bulk(changes)? {
            Some(bulk) => self.wait(bulk.send())?,
            None => self.change(changes, write_of)?,
        })
    }

    /// A write as it goes, and how long it is.
    fn sending(
        &self,
        changes: &Changes<'_>,
    ) -> Result<(BoxFuture<'static, Result<proto::WriteReply>>, usize)> {
        if let Some(bulk) = self.bulk(changes)? {
            let bytes = bulk.length();
            return Ok((Box::pin(bulk.send()), bytes));
        }
        let parcel = self.parcel(changes, write_of)?;
        let bytes = parcel.message.length();
        Ok((Box::pin(parcel.send()), bytes))
    }

    pub(super) fn write_later(&self, changes: &Changes<'_>) -> Result<Writing> {
        let (sending, bytes) = self.sending(changes)?;
        let permits = (bytes.clamp(LEAST_BYTES, BYTES_AT_ONCE) / PERMIT_BYTES) as u32;
        let room = self.writes.clone().acquire_many_owned(permits);
        let room = self.wait(async move { room.await.map_err(|_| gone()) })?;
        let (says, answer) = oneshot::channel();
        let task = async move {
            let outcome = sending.await;
            drop(room);
            let _ = says.send(outcome); // or nobody waits for it
        };
        let driver = self.driver()?;
        driver.send_off(task, bytes <= SHORT_BYTES).ok_or_else(gone)?;
        let (driver, tasks) = (Arc::downgrade(driver), self.link.tasks.clone());
        Ok(Writing::of(UnderWay { answer, driver, tasks, wanted: None, process: self.process }))
    }
}

impl Lender for Remote {
    fn lend(&self, policy_version: u64, bytes: u64, back: Vec<Loan>) -> Result<Loan> {
        let back = back.into_iter().map(wire::from_loan).collect();
        let request = proto::LendRequest { policy_version, bytes, back };
        Ok(wire::to_loan(&self.call(&request)?))
    }

    fn layout(&self, table: &str) -> Result<Option<Layout>> {
        let what = Some(proto::describe_request::What::Table(table.to_owned()));
        let (link, message) = (self.link.clone(), Encoded::new(&proto::DescribeRequest { what }));
        let asked = async move { link.unary(new_call(), message, TOLD_WITHIN, Again::Always).await };
        let told =
            self.wait(async move { tokio::time::timeout(TOLD_WITHIN, asked).await.ok().transpose() })?;
        let Some((number, schema)) = told.and_then(|told| told.number.zip(told.schema)) else {
            return Ok(None);
        };
        Ok(Some(Layout { number, schema: wire::to_schema(schema)? }))
    }
}

pub(super) fn write_of(changes: proto::Changes) -> proto::WriteRequest {
    proto::WriteRequest { changes: Some(changes) }
}

/// How much may be under way that nobody waits for.
pub(super) fn room() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(PERMITS as usize))
}

/// A write that is under way.
struct UnderWay {
    answer: oneshot::Receiver<Result<proto::WriteReply>>,
    driver: Weak<Driver>,
    tasks: Spawner,
    /// Held by a future that waits: then the client's thread drives.
    wanted: Option<Wanted>,
    process: u32,
}

impl UnderWay {
    fn outcome(answer: Result<Result<proto::WriteReply>, oneshot::error::RecvError>) -> Result<Vec<Row>> {
        rows(answer.unwrap_or_else(|_| Err(gone()))?)
    }
}

impl Future for UnderWay {
    type Output = Result<Vec<Row>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        check_process(self.process)?;
        if self.wanted.is_none() {
            self.wanted = Some(self.tasks.wanted());
        }
        let answer = ready!(Pin::new(&mut self.answer).poll(context));
        self.wanted = None;
        Poll::Ready(UnderWay::outcome(answer))
    }
}

impl Answer for UnderWay {
    fn wait(self: Pin<Box<Self>>) -> Result<Vec<Row>> {
        let UnderWay { mut answer, driver, process, .. } = *Pin::into_inner(self);
        check_process(process)?;
        if let Ok(answer) = answer.try_recv() {
            return rows(answer?);
        }
        let driver = driver.upgrade().ok_or_else(gone)?;
        driver.wait(async move { UnderWay::outcome(answer.await) }).ok_or_else(gone)?
    }
}
