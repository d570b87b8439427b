//! The answers that a session was given, so that a call that is repeated under its name is made once.
//!
//! One lock, for a look-up. Answers are small: what is large is asked for again by another call.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use tokio::sync::oneshot;
use tonic::Status;

/// How many answers of a session are remembered: more than it can have calls under way.
const KEPT: usize = 1024;
/// How many rows they may name in all, before the oldest are forgotten sooner.
const ROWS_KEPT: usize = 1 << 20;

type Reply<T> = Result<T, Status>;
type Pending<T> = Shared<BoxFuture<'static, Reply<T>>>;
/// An answer, and where it is to be given if nobody has begun to find it.
type Begun<T> = (Pending<T>, Option<oneshot::Sender<Reply<T>>>);

/// The answers of one session, by the names of the calls.
#[derive(Debug, Default)]
pub(super) struct Replies(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    by_name: HashMap<u128, Box<dyn Any + Send>>,
    /// With the number of rows that each may name.
    order: VecDeque<(u128, usize)>,
    rows: usize,
}

impl Replies {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner) // entries are whole
    }

    /// The answer to the call of that name: what `work` gives, begun now if it was not before. It goes on also when nobody
    /// waits for it any more, and is there for whoever asks again. It names `rows` rows at most.
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
            tokio::spawn(async move { give.send(work.await) });
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
            let _ = give.send(work()); // the other end is `pending`
        }
        Ok(pending)
    }

    /// The answer to the call of that name, and where it is to be given if nobody has begun to find it.
    fn begin<T: Clone + Send + Sync + 'static>(&self, name: u128, rows: usize) -> Result<Begun<T>, Status> {
        let mut inner = self.inner();
        if let Some(known) = inner.by_name.get(&name) {
            let known = known.downcast_ref::<Pending<T>>().cloned().ok_or_else(another_call)?;
            return Ok((known, None));
        }
        let (give, given) = oneshot::channel();
        let ended =
            |reply: Result<Reply<T>, _>| reply.unwrap_or_else(|_| Err(Status::internal("the call panicked")));
        let pending: Pending<T> = given.map(ended).boxed().shared();
        inner.add(name, rows, Box::new(pending.clone()));
        Ok((pending, Some(give)))
    }

    /// What was noted under that name before; else notes this.
    pub(super) fn note<T: Clone + Send + 'static>(&self, name: u128, reply: T) -> Option<T> {
        let mut inner = self.inner();
        if let Some(known) = inner.by_name.get(&name).and_then(|known| known.downcast_ref::<T>()) {
            return Some(known.clone());
        }
        inner.add(name, 0, Box::new(reply));
        None
    }

    /// What was noted under that name.
    pub(super) fn noted<T: Clone + 'static>(&self, name: u128) -> Option<T> {
        self.inner().by_name.get(&name)?.downcast_ref::<T>().cloned()
    }
}

impl Inner {
    fn add(&mut self, name: u128, rows: usize, reply: Box<dyn Any + Send>) {
        self.by_name.insert(name, reply);
        self.order.push_back((name, rows));
        self.rows += rows;
        while self.order.len() > KEPT || self.rows > ROWS_KEPT && self.order.len() > 1 {
            let Some((oldest, rows)) = self.order.pop_front() else { return };
            self.by_name.remove(&oldest);
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
