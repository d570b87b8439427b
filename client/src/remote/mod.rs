//! A store behind a server.
//!
//! # Threads
//! A caller's thread makes its own call: it drives the runtime of the [`Remote`] while it waits ([`driver`]). The session
//! ([`session`]), and claims that come to futures, are driven by a thread of their own. Calls may come from any thread, also
//! from within another runtime.
//!
//! # Calls that are cut off
//! Every call has a name, and is sent again under it while the server cannot be reached, for as long as
//! [`ConnectOptions::outage_time_max`] says: the server answers a name once. Inserts carry a token besides, made of the
//! name, so that they are safe to repeat even where the server was restarted in between. What is not (an append to a cell that
//! grows) is sent again within its session only: where that was lost meanwhile, the caller hears that nobody can tell.
//!
//! Small changes go one after the other in one call as long as there is one ([`flow`]), and are calls of their own otherwise.
//!
//! Subscriptions are named, too. One whose stream broke is asked for again under its name, with what is here of its claims
//! ([`pushed`]).
//!
//! # Closing
//! [`closed`](Link::closed) turns true once, and every call that is under way ends then with `closed`. A forked child is
//! refused: it has no thread that could answer.

mod address;
mod admin;
mod along;
mod bulk;
mod calls;
mod channel;
mod driver;
mod flow;
mod history;
mod inbox;
mod line;
mod objects;
mod options;
mod pieces;
mod pushed;
mod session;
mod snapshots;
mod told;
mod waits;
mod writing;

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use forebay_store::Kind;
use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;
use tonic::metadata::MetadataValue;
use tonic::{Code, Request, Response, Status};

pub use address::Address;
pub use options::ConnectOptions;

use crate::error::{Error, Result};
use crate::frames::{Buffers, Packing};
use crate::neighbour::Neighbour;
use crate::slabs::Slabs;
use crate::wire::proto::{CloseRequest, Opened};
use crate::wire::{self, CALL, SESSION, failure_of, new_call};
use along::Alongside;
use driver::{Driver, Spawner};
use flow::Flow;
use inbox::Inboxes;
use line::{Encoded, Line, Unary};
use objects::RemoteObjects;
use session::{PAUSE_MAX, PAUSE_MIN, Standing};
use waits::WAITS_AT_ONCE;

/// One part in so many of a call's time is left for what is asked last: it is not asked again for so little that no answer can come.
const LAST_PART: u32 = 8;
/// How long the server has to hear that this client goes.
const FAREWELL: Duration = Duration::from_secs(1);

/// A store behind a server.
#[derive(Debug)]
pub struct Remote {
    driver: Option<Arc<Driver>>,
    link: Link,
    along: Alongside,
    /// What its subscriptions were pushed.
    inboxes: Inboxes,
    /// For a client that may use the store's files.
    neighbour: Option<Arc<Neighbour>>,
    /// For one that may not, and is on the server's machine.
    slabs: Option<Arc<Slabs>>,
    objects: RemoteObjects,
    closed: watch::Sender<bool>,
    /// For writes that nobody waits for.
    writes: Arc<Semaphore>,
    /// The task that holds the session.
    presence: AbortHandle,
    /// The process that it works in.
    process: u32,
}

/// What a call needs; cheap to clone.
#[derive(Clone, Debug)]
struct Link {
    address: Arc<Address>,
    line: Line,
    options: ConnectOptions,
    standing: watch::Receiver<Standing>,
    closed: watch::Receiver<bool>,
    waits: Arc<Semaphore>,
    /// Of one at a time: values that were placed for another session.
    resending: Arc<Semaphore>,
    tasks: Spawner,
    flow: Arc<Flow>,
    /// The largest message that the server takes.
    message_bytes_max: u64,
    /// How much it takes in frames; 0 where it takes none.
    bulk_bytes_max: u64,
    /// What frames are made in, and whether they are packed.
    buffers: Buffers,
    packing: Packing,
}

impl Remote {
    /// Connects, and begins a session.
    ///
    /// # Errors
    /// `input` for an address that is none, or a token that is not let in; `retry` when nobody answers in time.
    pub fn connect(address: &str, options: &ConnectOptions) -> Result<Self> {
        let address: Address = address.parse()?;
        let driver = Driver::new().map_err(|error| {
            Error::new(Kind::Capacity, "Threads", "no thread for the connection; raise the limit")
                .because(error)
        })?;
        let tasks = driver.spawner().ok_or_else(gone)?;
        let line = {
            let _inside = tasks.inside();
            channel::open(&address, options)?
        };
        let address = Arc::new(address);
        let (opening, with, at) = (line.clone(), options.clone(), address.clone());
        let opening = async move { session::open(&at, opening, &with, None).await };
        let presence = driver.wait(opening).ok_or_else(gone)??;
        let Opened { message_bytes_max, bulk_bytes_max, session, .. } = presence.opened.clone();
        let Opened { store_id, neighbourhood, slab_bytes, .. } = presence.opened.clone();
        let neighbour = neighbourhood.and_then(|found| Neighbour::begin(store_id, &found)).map(Arc::new);
        let slabs = match &*address {
            Address::Unix(socket) if neighbour.is_none() && options.slabs && slab_bytes > 0 => {
                Some(Arc::new(Slabs::new(socket, slab_bytes)))
            }
            _ => None,
        };
        let (says, standing) = watch::channel(Standing::Open(session));
        let held =
            session::hold(address.clone(), line.clone(), options.clone(), presence, says, tasks.clone());
        let presence = tasks.spawn_idle(held);
        let (closed, is_closed) = watch::channel(false);
        let packing = Packing::new(options.compress || address.is_far());
        let link = Link {
            address,
            line,
            options: options.clone(),
            standing,
            closed: is_closed,
            waits: Arc::new(Semaphore::new(WAITS_AT_ONCE)),
            resending: Arc::new(Semaphore::new(1)),
            tasks,
            flow: Arc::default(),
            message_bytes_max,
            bulk_bytes_max,
            buffers: Buffers::default(),
            packing,
        };
        let (along, inboxes, process) = (Alongside::default(), Inboxes::default(), std::process::id());
        let (driver, writes) = (Some(Arc::new(driver)), writing::room());
        let objects = RemoteObjects::default();
        Ok(Remote {
            driver,
            link,
            along,
            inboxes,
            neighbour,
            slabs,
            objects,
            closed,
            writes,
            presence,
            process,
        })
    }

    /// Waits for what a future gives, on the caller's thread.
    fn wait<T: Send + 'static>(&self, future: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
        self.driver()?.wait(future).ok_or_else(gone)?
    }

    fn driver(&self) -> Result<&Arc<Driver>> {
        self.check_process()?;
        self.driver.as_ref().ok_or_else(gone) // taken by the drop alone
    }

    /// Makes a call that may be made twice: a message and an answer.
    fn call<Q: Unary>(&self, message: &Q) -> Result<Q::Reply> {
        self.call_again(message, Again::Always)
    }

    /// The same, sent again as may be.
    fn call_again<Q: Unary>(&self, message: &Q, again: Again) -> Result<Q::Reply> {
        let (link, message, time) =
            (self.link.clone(), Encoded::new(message), self.link.options.call_time_max);
        self.wait(async move { link.unary(new_call(), message, time, again).await })
    }
}

fn gone() -> Error {
    Error::new(Kind::Closed, "Closed", "the client is closed; connect again")
}

impl Link {
    /// Sends a call with one answer until it is answered, the server was away for too long, or the client is closed. `time` is
    /// how long the answer may take.
    async fn unary<Q: Unary>(
        &self,
        name: u128,
        message: Encoded<Q>,
        time: Duration,
        again: Again,
    ) -> Result<Q::Reply> {
        self.call(name, message, time, again, &Line::unary::<Q>).await
    }

    /// The same for any call.
    async fn call<Q, A, F>(
        &self,
        name: u128,
        message: Q,
        time: Duration,
        again: Again,
        call: &(impl Fn(Line, Request<Q>) -> F + Sync),
    ) -> Result<A>
    where
        Q: Clone,
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let mut closed = self.closed.clone();
        tokio::select! {
            answer = self.send(name, message, time, again, call) => answer,
            _ = closed.wait_for(|is_closed| *is_closed) => Err(gone()),
        }
    }

    /// Does something that nobody waits for.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    async fn send<Q, A, F>(
        &self,
        name: u128,
        message: Q,
        time: Duration,
        again: Again,
        call: &(impl Fn(Line, Request<Q>) -> F + Sync),
    ) -> Result<A>
    where
        Q: Clone,
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let (begun, mut left, mut away_since, mut pause) = (Instant::now(), time, None, PAUSE_MIN);
        let mut maybe_done = None; // in which session
        loop {
            let session = self.session();
            if again != Again::Always && maybe_done.as_ref().is_some_and(|in_one| *in_one != session) {
                return Err(uncertain());
            }
            let request = self.request(name, message.clone(), &session, left)?;
            let late = |_| Status::deadline_exceeded("no answer");
            let answer = tokio::time::timeout(left, call(self.line.clone(), request)).await;
            let status = match answer.map_err(late).and_then(|answer| answer) {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) => status,
            };
            let hitch = hitch(&status);
            if matches!(hitch, Some(Hitch::Away)) || wire::is_late(&status) {
                maybe_done = Some(session.clone());
            }
            let answered = hitch.is_none() && failure_of(&status).is_some();
            let over = || match (again, &maybe_done) {
                (Again::WithinASession, Some(_)) if !answered => uncertain(),
                _ => told::call_error(&self.address, time, status.clone()),
            };
            match hitch {
                None => return Err(over()),
                Some(Hitch::NoRoom(pause)) if begun.elapsed() + pause + time / LAST_PART < time => {
                    tokio::time::sleep(pause).await;
                    left = time.saturating_sub(begun.elapsed()); // it waits for room within its time
                    continue;
                }
                Some(Hitch::NoRoom(_)) => return Err(over()),
                Some(Hitch::Away) => {}
                Some(Hitch::SessionLost) => self.until_another_session(&session).await,
            }
            left = time; // an outage has a time of its own
            let since = *away_since.get_or_insert_with(Instant::now);
            if since.elapsed() + pause > self.options.outage_time_max {
                return Err(over());
            }
            tokio::time::sleep(pause).await;
            pause = PAUSE_MAX.min(pause * 2);
        }
    }

    /// The session that this client has, or had last.
    fn session(&self) -> Bytes {
        self.standing.borrow().session().clone()
    }

    /// Waits until the session is another than that one, for a moment at most.
    async fn until_another_session(&self, session: &Bytes) {
        let mut standing = self.standing.clone();
        let another =
            standing.wait_for(|standing| matches!(standing, Standing::Open(open) if open != session));
        let _ = tokio::time::timeout(PAUSE_MAX, another).await; // asked again either way
    }

    /// A request with all that goes along.
    fn request<Q>(&self, name: u128, message: Q, session: &Bytes, time: Duration) -> Result<Request<Q>> {
        let mut request = self.lasting_request(name, message, session)?;
        request.set_timeout(time);
        Ok(request)
    }

    /// The same for an answer that has no end of its own.
    fn lasting_request<Q>(&self, name: u128, message: Q, session: &Bytes) -> Result<Request<Q>> {
        let mut request = Request::new(message);
        session::authorize(&mut request, &self.options)?;
        let metadata = request.metadata_mut();
        metadata.insert_bin(SESSION, MetadataValue::from_bytes(session));
        metadata.insert_bin(CALL, MetadataValue::from_bytes(&name.to_le_bytes()));
        Ok(request)
    }
}

/// Whether a call may be sent again where its session was lost after it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Again {
    Always,
    WithinASession,
    /// The same of what changes nothing: whether it was done matters to nobody.
    ReadWithinASession,
}

fn uncertain() -> Error {
    let message = "the session was lost while this was under way, and nobody can tell whether it was done; look at the cell \
                   before you go on";
    Error::new(Kind::State, "Uncertain", message)
}

/// Why a call has to be sent again.
enum Hitch {
    Away,
    SessionLost,
    /// The server had no room for its message, and says when to send it again.
    NoRoom(Duration),
}

/// Whether a call never reached the store, so that it is sent again; none for an answer.
fn hitch(status: &Status) -> Option<Hitch> {
    match failure_of(status) {
        Some(failure) if failure.cause() == "SessionLost" => Some(Hitch::SessionLost),
        Some(failure) if failure.cause() == "Busy" => failure.wait_before_retry().map(Hitch::NoRoom),
        Some(_) => None,
        None if wire::is_late(status) => None,
        // The connection broke under the call, whatever code the library has for that.
        None if std::error::Error::source(status)
            .is_some_and(<dyn std::error::Error>::is::<tonic::transport::Error>) =>
        {
            Some(Hitch::Away)
        }
        None => matches!(status.code(), Code::Unavailable | Code::Cancelled | Code::Unknown)
            .then_some(Hitch::Away),
    }
}

/// Refuses a forked child, which has what a process made but not its threads.
pub(crate) fn check_process(made_by: u32) -> Result<()> {
    let this = std::process::id();
    if this == made_by {
        return Ok(());
    }
    let message = format!(
        "the connection was made by process {made_by} and this is process {this}, its child; connect in the child itself"
    );
    Err(Error::new(Kind::State, "Forked", message))
}

impl Remote {
    fn check_process(&self) -> Result<()> {
        check_process(self.process)
    }

    /// Refuses whoever comes after the end, or in a forked child.
    fn check_open(&self) -> Result<()> {
        self.check_process()?;
        if *self.link.closed.borrow() { Err(gone()) } else { Ok(()) }
    }

    /// Waits for a moment until no write is under way that nobody waits for.
    fn settle_writes(&self) {
        let all = self.writes.clone().acquire_many_owned(writing::PERMITS);
        let settled = async move { Ok(tokio::time::timeout(FAREWELL, all).await.is_ok()) };
        if !self.wait(settled).unwrap_or(false) {
            tracing::warn!(
                "the client goes while writes are under way; nobody will hear whether they were made"
            );
        }
    }

    /// Ends the session, and every call that is under way. The second time nothing happens.
    fn end(&self) {
        if !*self.link.closed.borrow() && self.writes.available_permits() < writing::PERMITS as usize {
            self.settle_writes();
        }
        if self.closed.send_replace(true) {
            return;
        }
        self.presence.abort(); // else it would begin another session
        let link = self.link.clone();
        let farewell = async move {
            let session = link.session();
            let request = link.request(new_call(), Encoded::new(&CloseRequest {}), &session, FAREWELL)?;
            let _ = tokio::time::timeout(FAREWELL, link.line.clone().unary(request)).await; // or the server notices
            Ok(())
        };
        if let Err(error) = self.wait(farewell) {
            tracing::debug!(%error, "a session was not ended; the server ends it when its grace is over");
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        if self.check_process().is_err() {
            std::mem::forget((self.driver.take(), self.neighbour.take())); // the parent's threads, and its place at the files
            return;
        }
        self.end();
    }
}
