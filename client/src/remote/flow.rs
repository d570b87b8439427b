//! Small changes, one after the other in one call of `Flow`, while there is one: each costs a message then, and no call of its own.
//!
//! Nothing depends on a flow, and nothing waits for one. The first change of a session is a call of its own, and has the flow begun
//! beside it; others go over it once the server has answered it. Where it breaks, what was not answered becomes a call of its own
//! under the same name, which the server does once, and the next change has another flow begun. So all that is said of calls that are cut
//! off holds of changes, too. A change that is not answered in its time ends the flow: where the server has not read it yet, it is
//! not made when nobody expects it any more.
//!
//! A task of the client's runtime reads the answers, and gives each to whoever waits for it. One lock, held for a look-up.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{Stream, stream};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tonic::{Request, Status};

use super::line::{Encoded, Line};
use super::session::PAUSE_MAX;
use super::writing::Changing;
use super::{Again, LAST_PART, Link, gone, hitch, told};
use crate::error::Result;
use crate::wire::proto::ChangeReply;
use crate::wire::proto::change_reply::Outcome;
use crate::wire::{change_message, failure_of, new_call, to_status};

/// Where a client's changes go, if there is such a call.
#[derive(Debug, Default)]
pub(super) struct Flow(Mutex<Option<Arc<Current>>>);

/// One call of a session.
#[derive(Debug)]
struct Current {
    session: Bytes,
    begun: Instant,
    /// The server has let it in.
    is_open: AtomicBool,
    send: mpsc::UnboundedSender<Bytes>,
    /// Who waits for which answer; none once it is over.
    waiting: Mutex<Option<HashMap<u128, oneshot::Sender<Outcome>>>>,
    /// A change was given up: what the server has not read yet of the call is not to be done.
    given_up: Notify,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner) // entries are whole
}

/// A change that was sent, until its answer is there or nobody waits for it any more.
struct Sent {
    over: Arc<Current>,
    name: u128,
    answer: oneshot::Receiver<Outcome>,
}

impl Drop for Sent {
    fn drop(&mut self) {
        if let Some(waiting) = &mut *lock(&self.over.waiting) {
            waiting.remove(&self.name);
        }
    }
}

impl Current {
    fn new(session: Bytes) -> (Arc<Self>, impl Stream<Item = Bytes> + Send + 'static) {
        let (send, mut sent) = mpsc::unbounded_channel();
        let (begun, is_open, waiting) =
            (Instant::now(), AtomicBool::new(false), Mutex::new(Some(HashMap::new())));
        let current = Current { session, begun, is_open, send, waiting, given_up: Notify::new() };
        (Arc::new(current), stream::poll_fn(move |context| sent.poll_recv(context)))
    }

    fn is_over(&self) -> bool {
        lock(&self.waiting).is_none()
    }

    /// Reads answers until there are no more.
    async fn run(
        self: Arc<Self>,
        line: Line,
        request: Request<impl Stream<Item = Bytes> + Send + 'static>,
        mut closed: watch::Receiver<bool>,
    ) {
        let ended = tokio::select! {
            ended = self.read(line, request) => ended,
            () = self.given_up.notified() => Ok(()),
            _ = closed.wait_for(|is_closed| *is_closed) => Ok(()),
        };
        lock(&self.waiting).take();
        if let Err(status) = ended {
            tracing::debug!(%status, "a flow of changes has ended");
        }
    }

    async fn read(
        &self,
        line: Line,
        request: Request<impl Stream<Item = Bytes> + Send + 'static>,
    ) -> Result<(), Status> {
        let mut answers = line.flow(request).await?.into_inner();
        self.is_open.store(true, Ordering::Release);
        while let Some(ChangeReply { name, outcome }) = answers.message().await? {
            let name = <[u8; 16]>::try_from(&*name).map(u128::from_le_bytes);
            let waiting = |name| lock(&self.waiting).as_mut()?.remove(&name);
            if let (Some(answer), Some(outcome)) = (name.ok().and_then(waiting), outcome) {
                let _ = answer.send(outcome); // or nobody waits for it any more
            }
        }
        Ok(())
    }

    /// Sends a change; none where the call is over.
    fn send(self: Arc<Self>, name: u128, message: Bytes) -> Option<Sent> {
        let (tell, answer) = oneshot::channel();
        lock(&self.waiting).as_mut()?.insert(name, tell);
        let sent = Sent { over: self, name, answer };
        sent.over.send.send(message).ok().map(|()| sent)
    }
}

impl Flow {
    /// The call that there is for that session. Where there is none it is begun, and will be there for others.
    fn current(&self, link: &Link) -> Option<Arc<Current>> {
        let session = link.session();
        let mut current = lock(&self.0);
        match &*current {
            Some(there) if there.session != session => {}
            Some(there) if there.is_over() && there.begun.elapsed() >= PAUSE_MAX => {}
            Some(there) => return there.is_open.load(Ordering::Acquire).then(|| there.clone()),
            None => {}
        }
        let (begun, changes) = Current::new(session.clone());
        let request = link.lasting_request(new_call(), changes, &session).ok()?;
        *current = Some(begun.clone());
        drop(current);
        link.tasks.spawn_idle(begun.run(link.line.clone(), request, link.closed.clone()));
        None
    }
}

impl Link {
    /// Makes a small change under that name: in the flow where there is one, and otherwise, or where that ends, as a call of its own.
    pub(super) async fn change<Q: Changing>(
        &self,
        name: u128,
        message: Encoded<Q>,
        time: Duration,
    ) -> Result<Q::Reply> {
        let begun = Instant::now();
        match self.flowed(name, &message, time).await {
            Some(answer) => answer,
            None => {
                let left = time.saturating_sub(begun.elapsed()).max(time / LAST_PART);
                self.unary(name, message, left, Again::Always).await
            }
        }
    }

    /// The answer of a change that goes with the flow; none where it has to be asked for by a call.
    async fn flowed<Q: Changing>(
        &self,
        name: u128,
        message: &Encoded<Q>,
        time: Duration,
    ) -> Option<Result<Q::Reply>> {
        let current = self.flow.current(self)?;
        let mut sent = current.send(name, change_message(name, Q::FIELD, message.bytes()))?;
        let mut closed = self.closed.clone();
        let outcome = tokio::select! {
            outcome = tokio::time::timeout(time, &mut sent.answer) => outcome,
            _ = closed.wait_for(|is_closed| *is_closed) => return Some(Err(gone())),
        };
        let failed = |status| Some(Err(told::call_error(&self.address, time, status)));
        match outcome {
            Ok(Ok(Outcome::Failed(why))) => match to_status(why) {
                status if is_for_a_call(&status) => None,
                status => failed(status),
            },
            Ok(Ok(outcome)) => Q::reply(outcome).map(Ok),
            Ok(Err(_)) => None, // the flow has ended
            Err(_) => {
                sent.over.given_up.notify_one();
                failed(Status::deadline_exceeded("no answer"))
            }
        }
    }
}

/// Whether a change that failed so is made by a call of its own: the session is lost, or the flow has too many under way.
fn is_for_a_call(status: &Status) -> bool {
    hitch(status).is_some() || failure_of(status).is_some_and(|failure| failure.cause() == "Busy")
}
