//! The answers that a session was given, so that a call that is repeated under its name is made once.
//!
//! One lock, for a look-up. Answers are small: what is large is asked for again by another call. An answer that somebody is
//! still finding is never forgotten, or its call would be made twice, and neither is one that is there at once while the work that
//! it tells of goes on; a session that has too many of them is refused more.
//!
//! # What is forgotten
//! Of the answers that were found the latest [`KEPT`] stay, however old, and all that are younger than [`YOUNG`], however many: a
//! client whose line broke asks again within that time. There are two ends to that, so that memory has a bound: [`YOUNG_MAX`] answers, of about
//! 400 bytes each, and [`ROWS_KEPT`] rows that they name, as which the words of failures count too.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use forebay_client::Error;
use forebay_client::wire::from_error;
use forebay_store::Kind;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use tokio::sync::oneshot;
use tonic::Status;

/// How many answers are remembered that were found, however old; and how many may be being found.
const KEPT: usize = 1024;
/// How long others are remembered, too: a client sees after 20 s at most that its line is dead, and asks again within a second.
const YOUNG: Duration = Duration::from_secs(30);
/// How many are remembered with those.
const YOUNG_MAX: usize = 64 << 10;
/// How many rows they may name in all, before the oldest are forgotten sooner.
const ROWS_KEPT: usize = 1 << 20;
/// As many bytes of what a failure says count as a row.
const ROW_BYTES: usize = 64;

type Reply<T> = Result<T, Status>;
type Pending<T> = Shared<BoxFuture<'static, Reply<T>>>;
/// An answer, and where it is to be given if nobody has begun to find it.
type Begun<T> = (Pending<T>, Option<Giver<T>>);

/// Where an answer is given that is being found.
struct Giver<T> {
    give: oneshot::Sender<Reply<T>>,
    found: Found,
}

impl<T> Giver<T> {
    fn give(self, reply: Reply<T>) {
        let Giver { give, mut found } = self;
        if let Err(status) = &reply {
            found.rows += (status.message().len() + status.details().len()) / ROW_BYTES;
        }
        drop(found); // so that whoever has the answer finds it counted
        let _ = give.send(reply); // the other end is with the answers, unless the session is gone
    }
}

/// Says that an answer is found, or that nobody looks for it any more, when it is dropped; until then it is not forgotten.
#[derive(Debug)]
pub(super) struct Found {
    of: Arc<Mutex<Inner>>,
    name: u128,
    rows: usize,
}

impl Drop for Found {
    fn drop(&mut self) {
        let mut inner = lock(&self.of);
        inner.pending -= 1;
        inner.keep(self.name, self.rows);
    }
}

/// An answer of the past.
#[derive(Clone, Copy, Debug)]
struct Kept {
    name: u128,
    /// How many rows it may name.
    rows: usize,
    /// When it was found.
    since: Instant,
}

/// The answers of one session, by the names of the calls.
#[derive(Debug, Default)]
pub(super) struct Replies(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    by_name: HashMap<u128, Box<dyn Any + Send>>,
    /// How many are being found.
    pending: usize,
    /// Those that were found, the oldest first.
    found: VecDeque<Kept>,
    /// Of all that were found.
    rows: usize,
}

fn lock(inner: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    inner.lock().unwrap_or_else(PoisonError::into_inner) // entries are whole
}

impl Replies {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        lock(&self.0)
    }

    /// The answer to the call of that name: what `work` gives, begun now if it was not before. It goes on also when nobody
    /// waits for it any more, and is there for whoever asks again. It names `rows` rows at most. Fails where too many are being
    /// found.
    pub(super) fn once<T, F>(
        &self,
        name: u128,
        rows: usize,
        work: impl FnOnce() -> F,
    ) -> Result<Pending<T>, Status>
    where
        T: Clone + Send + Sync + 'static,
        F: Future<Output = Reply<T>> + Send + 'static,
    {
        let (pending, is_new) = self.begin(name, rows)?;
        if let Some(give) = is_new {
            let work = work();
            tokio::spawn(async move { give.give(work.await) });
        }
        Ok(pending)
    }

    /// The same for what is done here and now.
    pub(super) fn once_here<T>(
        &self,
        name: u128,
        rows: usize,
        work: impl FnOnce() -> Reply<T>,
    ) -> Result<Pending<T>, Status>
    where
        T: Clone + Send + Sync + 'static,
    {
        let (pending, is_new) = self.begin(name, rows)?;
        if let Some(give) = is_new {
            give.give(work());
        }
        Ok(pending)
    }

    /// The same for an answer that is there at once of work that goes on: it is not forgotten before `work` drops what it is
    /// given.
    pub(super) fn once_begun<T>(
        &self,
        name: u128,
        rows: usize,
        work: impl FnOnce(Found) -> Reply<T>,
    ) -> Result<Pending<T>, Status>
    where
        T: Clone + Send + Sync + 'static,
    {
        let (pending, is_new) = self.begin(name, rows)?;
        if let Some(Giver { give, found }) = is_new {
            let _ = give.send(work(found)); // the other end is with the answers, unless the session is gone
        }
        Ok(pending)
    }

    /// The answer to the call of that name, and where it is to be given if nobody has begun to find it.
    fn begin<T: Clone + Send + Sync + 'static>(&self, name: u128, rows: usize) -> Result<Begun<T>, Status> {
        let mut inner = self.inner();
        if let Some(known) = inner.known(name)? {
            return Ok((known, None));
        }
        inner.check_room()?;
        let (give, given) = oneshot::channel();
        let ended =
            |reply: Result<Reply<T>, _>| reply.unwrap_or_else(|_| Err(Status::internal("the call panicked")));
        let pending: Pending<T> = given.map(ended).boxed().shared();
        inner.by_name.insert(name, Box::new(pending.clone()));
        inner.pending += 1;
        let found = Found { of: self.0.clone(), name, rows };
        Ok((pending, Some(Giver { give, found })))
    }

    /// The answer to the call of that name, if somebody has begun to find it.
    pub(super) fn known<T: Clone + Send + Sync + 'static>(
        &self,
        name: u128,
    ) -> Result<Option<Pending<T>>, Status> {
        self.inner().known(name)
    }

    /// Refuses a name under which something was answered here, or is being found: it is another call's.
    pub(super) fn check_unknown(&self, name: u128) -> Result<(), Status> {
        if self.inner().by_name.contains_key(&name) { Err(another_call()) } else { Ok(()) }
    }

    /// What was noted under that name before; else notes this.
    pub(super) fn note<T: Clone + Send + 'static>(&self, name: u128, reply: T) -> Option<T> {
        let mut inner = self.inner();
        if let Some(known) = inner.by_name.get(&name).and_then(|known| known.downcast_ref::<T>()) {
            return Some(known.clone());
        }
        inner.by_name.insert(name, Box::new(reply));
        inner.keep(name, 0);
        None
    }

    /// Forgets what need not be remembered any more at that instant, also where no more answers come.
    pub(super) fn forget(&self, now: Instant) {
        let mut inner = self.inner();
        inner.forget(now);
        let few = 2 * inner.found.len().max(KEPT);
        if inner.found.capacity() > 2 * few {
            inner.found.shrink_to(few);
            inner.by_name.shrink_to(few);
        }
    }

    /// What was noted under that name.
    pub(super) fn noted<T: Clone + 'static>(&self, name: u128) -> Option<T> {
        self.inner().by_name.get(&name)?.downcast_ref::<T>().cloned()
    }
}

impl Inner {
    fn known<T: Clone + Send + Sync + 'static>(&self, name: u128) -> Result<Option<Pending<T>>, Status> {
        let known = self.by_name.get(&name).map(|known| known.downcast_ref::<Pending<T>>());
        known.map(|known| known.cloned().ok_or_else(another_call)).transpose()
    }

    /// Refuses one answer more where too many are being found.
    fn check_room(&self) -> Result<(), Status> {
        if self.pending < KEPT {
            return Ok(());
        }
        let message = format!("{KEPT} calls of this session are under way already; wait for some of them");
        Err(from_error(&Error::new(Kind::Capacity, "Calls", message)))
    }

    /// Keeps an answer that was found.
    fn keep(&mut self, name: u128, rows: usize) {
        let since = Instant::now();
        self.rows += rows;
        self.found.push_back(Kept { name, rows, since });
        self.forget(since);
    }

    /// Forgets the oldest for as long as there are too many.
    fn forget(&mut self, now: Instant) {
        while self.has_too_many(now) {
            let Some(Kept { name, rows, .. }) = self.found.pop_front() else { return };
            self.by_name.remove(&name);
            self.rows -= rows;
        }
    }

    /// Whether the oldest has to go. The newest stays, however large.
    fn has_too_many(&self, now: Instant) -> bool {
        let is_old = |kept: &Kept| now.saturating_duration_since(kept.since) >= YOUNG;
        match self.found.len() {
            0 | 1 => false,
            ..=KEPT => self.rows > ROWS_KEPT,
            found => self.rows > ROWS_KEPT || found > YOUNG_MAX || self.found.front().is_some_and(is_old),
        }
    }
}

fn another_call() -> Status {
    Status::invalid_argument("another call of this session has that name; a name is for one call")
}

#[cfg(test)]
mod tests;
