//! The answers that a session was given, so that a call that is repeated under its name is made once.
//!
//! One lock, for a look-up. Answers are small: what is large is asked for again by another call. An answer that somebody is
//! still finding is never forgotten, or its call would be made twice, and neither is one that is there at once while the work that
//! it tells of goes on; a session that has too many of them is refused more.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_client::Error;
use forebay_client::wire::from_error;
use forebay_store::Kind;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use tokio::sync::oneshot;
use tonic::Status;

/// How many answers of a session are remembered that were found; and how many may be being found.
const KEPT: usize = 1024;
/// How many rows they may name in all, before the oldest are forgotten sooner.
const ROWS_KEPT: usize = 1 << 20;

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
        drop(self.found); // so that whoever has the answer finds it counted
        let _ = self.give.send(reply); // the other end is with the answers, unless the session is gone
    }
}

/// Says that an answer is found, or that nobody looks for it any more, when it is dropped; until then it is not forgotten.
#[derive(Debug)]
pub(super) struct Found {
    of: Arc<Mutex<Inner>>,
    kept: Kept,
}

impl Drop for Found {
    fn drop(&mut self) {
        let mut inner = lock(&self.of);
        inner.pending -= 1;
        inner.keep(self.kept);
    }
}

/// An answer of the past.
#[derive(Clone, Copy, Debug)]
struct Kept {
    name: u128,
    /// How many rows it may name.
    rows: usize,
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
        let found = Found { of: self.0.clone(), kept: Kept { name, rows } };
        Ok((pending, Some(Giver { give, found })))
    }

    /// The answer to the call of that name, if somebody has begun to find it.
    pub(super) fn known<T: Clone + Send + Sync + 'static>(
        &self,
        name: u128,
    ) -> Result<Option<Pending<T>>, Status> {
        self.inner().known(name)
    }

    /// What was noted under that name before; else notes this.
    pub(super) fn note<T: Clone + Send + 'static>(&self, name: u128, reply: T) -> Option<T> {
        let mut inner = self.inner();
        if let Some(known) = inner.by_name.get(&name).and_then(|known| known.downcast_ref::<T>()) {
            return Some(known.clone());
        }
        inner.by_name.insert(name, Box::new(reply));
        inner.keep(Kept { name, rows: 0 });
        None
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

    /// Keeps an answer that was found, and forgets the oldest of them.
    fn keep(&mut self, newest: Kept) {
        self.rows += newest.rows;
        self.found.push_back(newest);
        while (self.found.len() > KEPT || self.rows > ROWS_KEPT) && self.found.len() > 1 {
            let Some(Kept { name, rows }) = self.found.pop_front() else { return };
            self.by_name.remove(&name);
            self.rows -= rows;
        }
    }
}

fn another_call() -> Status {
    Status::invalid_argument("another call of this session has that name; a name is for one call")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_call_is_made_once_however_often_it_is_asked_for() {
        let (replies, made) = (Replies::default(), Arc::new(AtomicU32::new(0)));
        let ask = |name| {
            let made = made.clone();
            replies.once(name, 1, move || async move { Ok(made.fetch_add(1, Ordering::Relaxed)) })
        };
        drop(ask(7).unwrap()); // nobody waits; it is made all the same
        assert_eq!((ask(7).unwrap().await.unwrap(), ask(7).unwrap().await.unwrap()), (0, 0));
        assert_eq!(ask(8).unwrap().await.unwrap(), 1);
        assert_eq!(made.load(Ordering::Relaxed), 2);
        let other = replies.once(7, 1, || async { Ok("text") });
        assert_eq!(other.unwrap_err().code(), tonic::Code::InvalidArgument);
    }

    #[tokio::test]
    async fn failures_are_answers_too_and_the_oldest_answers_are_forgotten() {
        let replies = Replies::default();
        let fail = |name| replies.once::<u8, _>(name, 1, || async { Err(Status::not_found("none")) });
        assert_eq!(fail(0).unwrap().await.unwrap_err().code(), tonic::Code::NotFound);
        assert_eq!(replies.note(1, (1_u64, 2_u64)), None);
        assert_eq!(replies.note(1, (3_u64, 4_u64)), Some((1, 2)));
        for name in 2..=KEPT as u128 {
            replies.note(name, 0_u8);
        }
        assert_eq!(replies.noted::<(u64, u64)>(1), Some((1, 2)));
        replies.note(u128::MAX, 0_u8);
        assert_eq!(replies.noted::<(u64, u64)>(1), None);
    }

    #[tokio::test]
    async fn an_answer_that_is_being_found_is_never_forgotten_and_too_many_are_refused() {
        let (replies, made) = (Replies::default(), Arc::new(AtomicU32::new(0)));
        let (hold, held) = tokio::sync::watch::channel(true);
        let ask = |name| {
            let (made, mut held) = (made.clone(), held.clone());
            replies.once(name, 1, move || async move {
                let _ = held.wait_for(|held| !held).await;
                Ok(made.fetch_add(1, Ordering::Relaxed))
            })
        };
        let first = ask(0).unwrap();
        for name in 1..=2 * KEPT as u128 {
            replies.once(name, ROWS_KEPT / 8, || async { Ok(7_u32) }).unwrap().await.unwrap();
        }
        let again = ask(0).unwrap();
        let more: Vec<_> = (0..KEPT as u128 - 1).map(|name| ask(1 << 64 | name).unwrap()).collect();
        let refused = ask(1 << 65).unwrap_err();
        let failure = forebay_client::wire::failure_of(&refused).unwrap();
        assert_eq!((failure.kind(), failure.cause()), (Kind::Capacity, "Calls"));
        hold.send_replace(false);
        assert_eq!(
            (first.await.unwrap(), again.await.unwrap()),
            (again_of(&replies).await, again_of(&replies).await)
        );
        for answer in more {
            answer.await.unwrap();
        }
        assert_eq!(made.load(Ordering::Relaxed) as usize, KEPT, "each was made once");
        ask(1 << 65).unwrap().await.unwrap();
    }

    // A copy or a compaction whose client lost its line is asked for again under its name: it is the one that goes on.
    #[tokio::test]
    async fn an_answer_is_not_forgotten_while_the_work_goes_on_that_it_tells_of() {
        let (replies, begun, mut goes_on) = (Replies::default(), AtomicU32::new(0), Vec::new());
        let ask = |goes_on: &mut Vec<Found>| {
            let work = |found| {
                goes_on.push(found);
                Ok(begun.fetch_add(1, Ordering::Relaxed))
            };
            replies.once_begun(7, 1, work).unwrap()
        };
        let crowd = |from: u128| {
            (0..2 * KEPT as u128).for_each(|at| _ = replies.once_here(from + at, ROWS_KEPT / 8, || Ok(0_u8)));
        };
        assert_eq!(ask(&mut goes_on).await.unwrap(), 0);
        crowd(1 << 64);
        assert_eq!((ask(&mut goes_on).await.unwrap(), goes_on.len()), (0, 1), "it is begun once");
        goes_on.clear();
        assert_eq!(ask(&mut goes_on).await.unwrap(), 0, "what it came to is there for who asks again");
        crowd(1 << 65);
        assert_eq!(ask(&mut goes_on).await.unwrap(), 1, "and is forgotten as others are");
    }

    #[tokio::test]
    async fn answers_that_are_being_found_push_out_none_that_were_found() {
        let replies = Replies::default();
        for name in 0..KEPT as u128 {
            replies.once(name, 1, || async { Ok(7_u8) }).unwrap().await.unwrap();
        }
        let under_way: Vec<_> = (0..KEPT as u128)
            .map(|name| replies.once(1 << 64 | name, ROWS_KEPT, std::future::pending::<Reply<u8>>).unwrap())
            .collect();
        assert_eq!(under_way.len(), KEPT);
        for name in 0..KEPT as u128 {
            assert_eq!(replies.once(name, 1, || async { Ok(8_u8) }).unwrap().await.unwrap(), 7, "{name}");
        }
    }

    /// What the first call was answered with.
    async fn again_of(replies: &Replies) -> u32 {
        replies.once(0, 1, || async { Ok(u32::MAX) }).unwrap().await.unwrap()
    }

    #[tokio::test]
    async fn many_rows_are_forgotten_sooner_and_the_newest_answer_never() {
        let (replies, made) = (Replies::default(), Arc::new(AtomicU32::new(0)));
        let ask = |name, rows| {
            let made = made.clone();
            replies.once(name, rows, move || async move { Ok(made.fetch_add(1, Ordering::Relaxed)) })
        };
        for name in 0..3 {
            assert_eq!(ask(name, ROWS_KEPT / 2).unwrap().await.unwrap(), name as u32);
        }
        assert_eq!(ask(1, 1).unwrap().await.unwrap(), 1, "it is kept");
        assert_eq!(ask(0, ROWS_KEPT * 2).unwrap().await.unwrap(), 3, "it was forgotten");
        assert_eq!(ask(0, 1).unwrap().await.unwrap(), 3, "the newest is kept, however large");
    }
}
