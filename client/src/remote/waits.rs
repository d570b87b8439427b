//! Waits that need no thread of the caller's: for rows, and for answers of queries.
//!
//! A task of the client's runtime asks, and the caller holds a future that hears what comes of it. A caller who drops the
//! future has given the wait up: the task tells the server so, under the name of the call, which gives back what it had
//! claimed for it or will not claim any more. Rows that came and that nobody took go back, too ([`Parcel`]).

use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_store::Wait;
use tokio::sync::{SemaphorePermit, oneshot};

use super::along::{Alongside, AskedAlong};
use super::calls::settle;
use super::line::Encoded;
use super::{Again, Link, Remote, gone};
use crate::connection::{Answering, Ask, Granted, Granting, Role, Waited};
use crate::error::Result;
use crate::neighbour::Neighbour;
use crate::wire::{self, Assembler, milliseconds, new_call, proto};

/// How long the server waits in one call, so that a connection that is dead without a word is noticed.
const WAIT_AT_ONCE: Duration = Duration::from_secs(20);

/// The same while space is held back meanwhile, for an answer that may name values in files.
const WAIT_HOLDING: Duration = Duration::from_secs(2);

/// How many waits ask at the same time over the one connection. Others stand in line here, so that writes and the calls that
/// end claims always have room beside them: the server takes 1,024 calls at a time. Each asks for [`WAIT_AT_ONCE`] at most, so
/// all have their turn.
pub(super) const WAITS_AT_ONCE: usize = 512;

/// A wait for rows, as it is asked for at the server.
pub(super) struct Waiting {
    link: Link,
    along: Alongside,
    neighbour: Option<Arc<Neighbour>>,
    request: proto::ClaimRequest,
    until: Option<Instant>,
}

impl Waiting {
    pub(super) fn new(remote: &Remote, ask: &Ask<'_>, wait: Wait) -> Self {
        let until = match wait {
            Wait::No => Some(Instant::now()),
            Wait::For(time) => Instant::now().checked_add(time),
            Wait::Forever => None,
        };
        let (step, member) = match ask.role {
            Role::Task => (None, None),
            Role::Step(step) => (Some(step), None),
            Role::Member(member) => (None, Some(member)),
        };
        let named = ask.columns.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let AskedAlong { columns, cells } = AskedAlong::of(&remote.along, ask.consumer, &named);
        let request = proto::ClaimRequest {
            consumer: ask.consumer.to_owned(),
            rule: Some(wire::from_micro_batch(&ask.rule)),
            wait_ms: None,
            step,
            member,
            columns,
            cells,
            owner: ask.owner.map(str::to_owned),
            placed: false,
            give_up: false,
        };
        let (along, neighbour) = (remote.along.clone(), remote.neighbour.clone());
        Waiting { link: remote.link.clone(), along, neighbour, request, until }
    }

    /// Asks until the wait is over.
    pub(super) async fn run(&self) -> Result<Waited<Granted>> {
        loop {
            let Some(_turn) = self.turn().await else { return Ok(Waited::TimedOut) };
            if let Some(outcome) = self.look(new_call()).await? {
                return Ok(outcome);
            }
        }
    }

    /// A turn to ask; none where the wait is over before there is one.
    async fn turn(&self) -> Option<Option<SemaphorePermit<'_>>> {
        let turn = self.link.waits.acquire();
        match self.until {
            Some(until) if until <= Instant::now() => Some(None), // answered at once: it keeps no room
            Some(until) => Some(tokio::time::timeout_at(until.into(), turn).await.ok()?.ok()),
            None => Some(turn.await.ok()), // never closed
        }
    }

    /// Asks once, under that name; none where another look is due.
    async fn look(&self, call: u128) -> Result<Option<Waited<Granted>>> {
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        let neighbour = self.neighbour.as_deref().filter(|_| !self.request.columns.is_empty());
        let hold = neighbour.and_then(Neighbour::hold);
        let at_once = if hold.is_some() { WAIT_HOLDING } else { WAIT_AT_ONCE };
        let (now, placed) = (left.unwrap_or(at_once).min(at_once), hold.is_some());
        let request =
            proto::ClaimRequest { wait_ms: Some(milliseconds(now)), placed, ..self.request.clone() };
        let time = self.link.options.call_time_max.saturating_add(now);
        let reply = self.link.unary(call, Encoded::new(&request), time, Again::Always).await?;
        if let Some(mut granted) = reply.granted {
            let (stream, consumer) = (std::mem::take(&mut granted.columns), &self.request.consumer);
            let granted = wire::to_granted(granted)?;
            let asked = AskedAlong { columns: self.request.columns.clone(), cells: self.request.cells };
            self.along.came(consumer, granted.epoch, &asked, stream, hold);
            return Ok(Some(Waited::Claimed(granted)));
        }
        let is_over = left.is_some_and(|left| left <= now);
        Ok(if reply.complete { Some(Waited::Complete) } else { is_over.then_some(Waited::TimedOut) })
    }

    /// Tells the server that nobody waits any more in the call of that name, which it then answers. The call is not cut off:
    /// a server takes many of those for an attack.
    async fn give_up(&self, call: u128) {
        let request = proto::ClaimRequest { give_up: true, ..self.request.clone() };
        let time = self.link.options.call_time_max;
        let told = self.link.unary(call, Encoded::new(&request), time, Again::Always).await;
        if let Err(error) = told {
            tracing::debug!(%error, "a wait was not given up; what it may claim goes back with its lease or the session");
        }
    }

    /// The task: waits for whoever holds the other end.
    async fn deliver(self, mut give: oneshot::Sender<Result<Parcel>>) {
        let (link, along) = (self.link.clone(), self.along.clone());
        let parcel = |outcome| Parcel { outcome: Some(outcome), link: link.clone(), along: along.clone() };
        loop {
            let turn = tokio::select! {
                turn = self.turn() => turn,
                () = give.closed() => return,
            };
            let Some(_turn) = turn else {
                let _ = give.send(Ok(parcel(Waited::TimedOut)));
                return;
            };
            let call = new_call();
            let mut look = std::pin::pin!(self.look(call));
            let outcome = tokio::select! {
                outcome = &mut look => outcome,
                () = give.closed() => tokio::join!(look, self.give_up(call)).0,
            };
            let Some(outcome) = outcome.transpose() else {
                if give.is_closed() {
                    return;
                }
                continue;
            };
            let _ = give.send(outcome.map(parcel)); // a parcel that nobody takes goes back
            return;
        }
    }
}

/// What a wait came to, on its way to whoever waits. Dropped on the way, its rows go back.
struct Parcel {
    outcome: Option<Waited<Granted>>,
    link: Link,
    along: Alongside,
}

impl Parcel {
    fn taken(mut self) -> Waited<Granted> {
        self.outcome.take().unwrap_or(Waited::TimedOut) // there until it is taken, here or by the drop
    }
}

impl Drop for Parcel {
    fn drop(&mut self) {
        let Some(Waited::Claimed(granted)) = self.outcome.take() else { return };
        let (link, epoch) = (self.link.clone(), granted.epoch);
        self.along.drop(epoch);
        self.link.spawn(async move {
            let release = Encoded::new(&settle(epoch, proto::settle_request::How::Release(true)));
            let time = link.options.call_time_max;
            if let Err(error) = link.unary(new_call(), release, time, Again::Always).await {
                tracing::debug!(%error, "rows that nobody took were not given back; their lease or the session ends it");
            }
        });
    }
}

impl Remote {
    /// A claim to come.
    pub(super) fn granting(&self, ask: &Ask<'_>, wait: Wait) -> Result<Granting> {
        self.check_process()?;
        let (give, given) = oneshot::channel();
        self.link.spawn(Waiting::new(self, ask, wait).deliver(give));
        Ok(Box::pin(async move { given.await.unwrap_or_else(|_| Err(gone())).map(Parcel::taken) }))
    }

    /// An answer to come. Its call ends with the future.
    pub(super) fn answering(&self, statement: &str) -> Result<Answering> {
        self.check_process()?;
        let request = proto::QueryRequest { statement: statement.to_owned() };
        let answer = self.assembling(request);
        let (mut give, given) = oneshot::channel();
        self.link.spawn(async move {
            let answer = tokio::select! {
                answer = answer => answer.and_then(Assembler::into_batches),
                () = give.closed() => return,
            };
            let _ = give.send(answer); // nobody may be there to read it
        });
        Ok(Box::pin(async move { given.await.unwrap_or_else(|_| Err(gone())) }))
    }
}
