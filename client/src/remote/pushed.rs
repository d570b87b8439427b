//! Claims that a server pushes.
//!
//! A task of the client's runtime reads the stream of a subscription into its [`Inbox`]. Where the stream breaks the task asks again
//! under the same name, and says which claims are here: what was lost on the way comes again. Whoever takes no more leaves, and the
//! task tells the server so, which gives back what nobody took; the stream is read to its end meanwhile, for a server takes many
//! that are cut off for an attack.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_store::Wait;
use futures_util::future::join;
use tonic::{Request, Response, Status};

use super::along::{Alongside, AskedAlong};
use super::inbox::Inbox;
use super::line::Line;
use super::session::{PAUSE_MAX, PAUSE_MIN};
use super::{Again, Hitch, Link, Remote, gone, hitch, told};
use crate::connection::{Ask, Granted, NextGranted, Pushing};
use crate::error::{Error, Result};
use crate::wire::{self, failure_of, new_call, proto};

/// A subscription, as it is listened to.
#[derive(Clone, Debug)]
struct Subscribed {
    link: Link,
    along: Alongside,
    inbox: Arc<Inbox>,
    /// Without columns where those are asked for that are read as a rule.
    request: proto::SubscribeRequest,
    name: u128,
    /// Values are read where they lie, so none come along.
    is_neighbour: bool,
}

/// How one stream ended.
struct Ended {
    /// The server has answered.
    was_open: bool,
    /// It has pushed something.
    was_pushed: bool,
    why: Result<(), Status>,
}

/// What the caller has of it.
#[derive(Debug)]
struct Taking {
    of: Subscribed,
    driver: Arc<super::driver::Driver>,
    process: u32,
}

/// Whether another stream goes on with the subscription: one that was sent before, and came after.
fn is_superseded(status: &Status) -> bool {
    failure_of(status).is_some_and(|failure| failure.cause() == "Superseded")
}

impl Subscribed {
    /// The task.
    async fn run(self) {
        let mut closed = self.link.closed.clone();
        tokio::select! {
            () = self.serve() => {}
            _ = closed.wait_for(|is_closed| *is_closed) => self.inbox.end(gone()),
        }
    }

    /// Listens until it is over or nobody takes anything any more.
    async fn serve(&self) {
        let mut listen = pin!(self.listen());
        tokio::select! {
            why = &mut listen => match self.inbox.is_left() {
                true => self.give_up().await,
                false => self.inbox.end(why),
            },
            () = self.inbox.left() => {
                let last = tokio::time::timeout(self.link.options.call_time_max, &mut listen);
                _ = join(self.give_up(), last).await;
            }
        }
    }

    /// Listens to one stream after the other. Why it is over.
    async fn listen(&self) -> Error {
        let (mut away_since, mut pause) = (None, PAUSE_MIN);
        for attempt in 0.. {
            let session = self.link.session();
            self.inbox.go_on_in(&session);
            let begun = Instant::now();
            let Ended { was_open, was_pushed, why } = self.listen_once(attempt, &session).await;
            if self.inbox.is_left() {
                break;
            }
            let status =
                why.err().unwrap_or_else(|| Status::unavailable("the server has ended the subscription"));
            let over = told::call_error(&self.link.address, self.link.options.call_time_max, status.clone());
            match hitch(&status) {
                None if is_superseded(&status) || wire::is_late(&status) => {}
                None => return over,
                Some(Hitch::Away | Hitch::NoRoom(_)) => {}
                Some(Hitch::SessionLost) => self.link.until_another_session(&session).await,
            }
            if was_open {
                away_since = None;
            }
            if was_pushed || (was_open && begun.elapsed() >= PAUSE_MAX) {
                pause = PAUSE_MIN;
            }
            let since = *away_since.get_or_insert_with(Instant::now);
            if since.elapsed() + pause > self.link.options.outage_time_max {
                return over;
            }
            tokio::time::sleep(pause).await;
            pause = PAUSE_MAX.min(pause * 2);
        }
        gone()
    }

    /// Listens to a stream until it ends.
    async fn listen_once(&self, attempt: u32, session: &bytes::Bytes) -> Ended {
        let asked = self.asked_along();
        let request = proto::SubscribeRequest {
            attempt,
            held: self.inbox.held(),
            columns: asked.columns.clone(),
            cells: asked.cells,
            ..self.request.clone()
        };
        let mut ended = Ended { was_open: false, was_pushed: false, why: Ok(()) };
        ended.why = self.read(request, session, &asked, &mut ended).await;
        ended
    }

    /// What comes along with the claims.
    fn asked_along(&self) -> AskedAlong {
        match (self.is_neighbour, &self.request.columns) {
            (true, _) => AskedAlong::default(),
            (false, named) => AskedAlong::of(&self.along, &self.request.consumer, named),
        }
    }

    async fn read(
        &self,
        request: proto::SubscribeRequest,
        session: &bytes::Bytes,
        asked: &AskedAlong,
        so_far: &mut Ended,
    ) -> Result<(), Status> {
        let request = self.link.lasting_request(self.name, request, session);
        let request = request.map_err(|error| wire::from_error(&error))?;
        let mut line = self.link.line.clone();
        let opening = tokio::time::timeout(self.link.options.call_time_max, line.streams.subscribe(request));
        let late = |_| Status::deadline_exceeded("no answer");
        let mut stream = opening.await.map_err(late)??.into_inner();
        so_far.was_open = true;
        while let Some(mut granted) = stream.message().await? {
            let columns = std::mem::take(&mut granted.columns);
            let granted = wire::to_granted(granted).map_err(|error| wire::from_error(&error))?;
            self.along.came(&self.request.consumer, granted.epoch, asked, columns, None);
            self.inbox.push(granted, session);
            so_far.was_pushed = true;
        }
        Ok(())
    }

    /// Tells the server that nobody takes anything more.
    async fn give_up(&self) {
        let held = self.inbox.held();
        let request = proto::SubscribeRequest { give_up: true, held, ..self.request.clone() };
        let end = |mut line: Line, request: Request<proto::SubscribeRequest>| async move {
            let mut none = line.streams.subscribe(request).await?.into_inner();
            while none.message().await?.is_some() {}
            Ok(Response::new(()))
        };
        let time = self.link.options.call_time_max;
        if let Err(error) = self.link.call(self.name, request, time, Again::Always, &end).await {
            tracing::debug!(%error, "a subscription was not given up; what it was pushed goes back with its lease or the session");
        }
    }
}

impl Remote {
    /// A subscription. What is wrong with it, its first claim says.
    pub(super) fn subscribed(&self, ask: &Ask<'_>, outstanding: usize) -> Result<Box<dyn Pushing>> {
        self.check_open()?;
        let driver = self.driver()?.clone();
        let (link, along) = (self.link.clone(), self.along.clone());
        let inbox = Arc::new(Inbox::new(outstanding, along.clone(), link.standing.clone()));
        self.inboxes.add(&inbox)?;
        let request = proto::SubscribeRequest {
            consumer: ask.consumer.to_owned(),
            rule: Some(wire::from_micro_batch(&ask.rule)),
            outstanding: u32::try_from(outstanding).unwrap_or(u32::MAX),
            columns: ask.columns.iter().map(|name| (*name).to_owned()).collect(),
            owner: ask.owner.map(str::to_owned),
            ..proto::SubscribeRequest::default()
        };
        let is_neighbour = self.neighbour.is_some();
        let of = Subscribed { link, along, inbox, request, name: new_call(), is_neighbour };
        self.link.spawn(of.clone().run());
        Ok(Box::new(Taking { of, driver, process: self.process }))
    }
}

impl Pushing for Taking {
    fn next(&self, wait: Wait) -> Result<Option<Granted>> {
        super::check_process(self.process)?;
        let inbox = self.of.inbox.clone();
        let time = match wait {
            Wait::No => return inbox.take().transpose(),
            Wait::For(time) => time,
            Wait::Forever => Duration::MAX,
        };
        if let Some(outcome) = inbox.take() {
            return outcome.map(Some);
        }
        let next = async move { tokio::time::timeout(time, inbox.next()).await.ok().transpose() };
        self.driver.wait(next).ok_or_else(gone)?
    }

    fn next_async(&self) -> NextGranted {
        let (inbox, process) = (self.of.inbox.clone(), self.process);
        Box::pin(async move {
            super::check_process(process)?;
            inbox.next().await
        })
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        if super::check_process(self.process).is_err() {
            return; // the parent's
        }
        if self.of.inbox.leave() {
            let of = self.of.clone();
            self.of.link.spawn(async move { of.give_up().await });
        }
    }
}
