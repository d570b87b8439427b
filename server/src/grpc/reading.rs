//! The turns of those who have something read, and of those who ask in SQL.
//!
//! A read may wait for a slow disk and keeps a thread meanwhile, and threads are few: so readers have a part of them, one caller a part
//! of that, and one of its sessions a part of that again. A session's own is taken before the caller's, and that before one of all, so
//! nobody keeps others out who waits for himself.
//!
//! Who asks for something waits for a turn as messages wait for room, and then hears when to ask again. An answer in pieces takes a turn
//! for each, so a client that takes nothing keeps none; it was let in with its first, and waits for the others for as long as its client does.

use std::sync::Arc;

use forebay_client::Error;
use forebay_client::wire::from_error;
use forebay_store::Kind;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

use super::call::blocking;
use super::room::{ASK_AGAIN_AFTER, Shares, Taken};
use super::{BLOCKING_MAX, Limits};
use crate::access::Caller;
use crate::gathered::Gathered;

/// How many turns there are: of all, of one caller, and of one of its sessions.
#[derive(Clone, Copy, Debug)]
struct Most {
    all: usize,
    of_caller: usize,
    of_session: usize,
}

const fn most(all: usize) -> Most {
    Most { all, of_caller: all * 3 / 4, of_session: all / 2 }
}

/// Reads, each of which keeps a thread.
const READS: Most = most(BLOCKING_MAX / 3);
/// Queries, each of which keeps what it has in memory.
const QUERIES: Most = most(16);

/// The turns of all callers. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Turns {
    reads: Shares,
    queries: Shares,
}

/// The turns that a session may have of these.
#[derive(Debug)]
pub(super) struct OfSession {
    reads: Arc<Semaphore>,
    queries: Arc<Semaphore>,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    _own: OwnedSemaphorePermit,
    _shared: Taken,
}

/// A session of a caller that has something read, and the memory of what is read. Cheap to clone.
#[derive(Clone)]
pub(super) struct Reader {
    own: Arc<Semaphore>,
    caller: Arc<Caller>,
    shares: Shares,
    pub(super) answers: Gathered,
}

impl Turns {
    pub(super) fn new(limits: &Limits) -> Self {
        let shares =
            |most: Most| Shares::of_all(most.of_caller as u32, most.all as u32, limits.room_time_max);
        Turns { reads: shares(READS), queries: shares(QUERIES) }
    }

    /// Who reads in the name of a session.
    pub(super) fn reader(&self, of: &OfSession, caller: &Arc<Caller>, answers: &Gathered) -> Reader {
        let (own, shares) = (of.reads.clone(), self.reads.clone());
        Reader { own, caller: caller.clone(), shares, answers: answers.clone() }
    }

    /// The turn of a query, first come, first served: who waits keeps no thread, and goes when his client does.
    ///
    /// # Errors
    /// None while there are turns, which are never closed.
    pub(super) async fn query(&self, of: &OfSession, caller: &Caller) -> Result<Turn, Status> {
        let turn = at_last(&of.queries, &self.queries, caller).await;
        turn.ok_or_else(|| Status::internal("there are no turns of queries any more"))
    }
}

impl OfSession {
    pub(super) fn new() -> Self {
        let own = |most: Most| Arc::new(Semaphore::new(most.of_session));
        OfSession { reads: own(READS), queries: own(QUERIES) }
    }
}

/// The next turn; none where there was none for too long.
async fn in_time(own: &Arc<Semaphore>, shares: &Shares, caller: &Caller) -> Option<Turn> {
    tokio::time::timeout(shares.wait_max(), at_last(own, shares, caller)).await.ok().flatten()
}

/// The same, however long that takes.
async fn at_last(own: &Arc<Semaphore>, shares: &Shares, caller: &Caller) -> Option<Turn> {
    let own = own.clone().acquire_owned().await.ok()?; // never closed
    Some(Turn { _own: own, _shared: shares.turn_at_last(&caller.name).await? })
}

fn busy(what: &str, most: Most, shares: &Shares) -> Error {
    let Most { all, of_caller, of_session } = most;
    let message = format!(
        "as many {what} are under way as may be, {of_session} of one client, {of_caller} of one caller and {all} of all, and none of them \
         ended in {:?}; ask again, for less at a time",
        shares.wait_max()
    );
    Error::new(Kind::Retry, "Busy", message).retry_after(Some(ASK_AGAIN_AFTER))
}

/// Does it on a thread for that, with a turn until it is done: whoever asked may be gone by then, and the thread is taken all the same.
async fn read_with<T: Send + 'static>(
    turn: Turn,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Status> {
    blocking(move || {
        let _until_it_is_done = turn;
        work()
    })
    .await
}

impl Reader {
    /// Has something read, once there is a turn for it. One whose client has gone before its turn is not done.
    ///
    /// # Errors
    /// `retry` where there was no turn for too long, or as the work.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Status> {
        let turn = in_time(&self.own, &self.shares, &self.caller).await;
        read_with(turn.ok_or_else(|| from_error(&busy("reads", READS, &self.shares)))?, work).await
    }

    /// Has what goes on read, however long it takes until there is a turn for it.
    ///
    /// # Errors
    /// As the work.
    pub(super) async fn read_on<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Status> {
        match at_last(&self.own, &self.shares, &self.caller).await {
            Some(turn) => read_with(turn, work).await,
            None => Err(Status::internal("the turns of readers are over")), // never
        }
    }

    /// Has something read that can be done without, if there is a turn for it now.
    pub(super) async fn read_now<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Option<T> {
        let own = self.own.clone().try_acquire_owned().ok()?;
        let turn = Turn { _own: own, _shared: self.shares.turn_now(&self.caller.name)? };
        read_with(turn, work).await.ok()
    }

    /// All turns that it can have now.
    #[cfg(test)]
    pub(super) fn take_all(&self) -> Vec<Turn> {
        use futures_util::FutureExt;
        let next = || at_last(&self.own, &self.shares, &self.caller).now_or_never().flatten();
        std::iter::from_fn(next).collect()
    }

    /// One of a session of its own, with that memory.
    #[cfg(test)]
    pub(super) fn alone(answers: &Gathered) -> Self {
        let caller = Arc::new(Caller::trusted());
        Turns::new(&Limits::default()).reader(&OfSession::new(), &caller, answers)
    }
}

#[cfg(test)]
mod tests;
