//! How sessions end, and how clients come in meanwhile.
//!
//! A client that has lost its session is back at once, and says in its next one what it has let go of. That ends a loan which
//! nobody looks after any more, and no other. So what an ended session held of objects goes back before anybody is let in: who
//! finds a session gone finds its loans in quarantine. All else goes back after that, as it may wait for a disk.
//!
//! Nobody is let in meanwhile, so the objects go back on a thread of their own: those for what may wait may all be taken, by what waits for
//! long. There is one such thread at a time. What is left goes to a thread for what may wait, with nothing locked.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use forebay_client::Error;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tonic::Status;

use super::{Ended, Local, Present, Session, SessionId, Sessions, lock};
use crate::grpc::call::panicked;

/// How often is looked for sessions that are over.
const SWEEP_EVERY: Duration = Duration::from_millis(500);
/// How long it takes at most, as a rule, from the last stream of a process that ends to its end; the next sweep finds the others.
const ENDS_WITHIN: Duration = Duration::from_millis(20);

impl Sessions {
    /// [`enter`](Sessions::enter), once no session is between its end and its objects' return.
    pub(in crate::grpc) async fn let_in(
        &self,
        caller: &str,
        owner: &str,
        resume: Option<SessionId>,
        local: Local,
    ) -> Result<(SessionId, Present, bool), Error> {
        let _none_ends = self.ending.read().await;
        self.enter(caller, owner, resume, local)
    }

    /// Ends a session, and gives everything back that it holds.
    pub(in crate::grpc) async fn end(&self, id: &[u8]) -> Result<(), Status> {
        self.end_those(Ended::Closed, |sessions| sessions.close(id).into_iter().collect()).await
    }

    /// The same of those whose clients' processes have ended, or that have been gone for too long.
    async fn end_gone(&self) -> Result<(), Status> {
        let take = |sessions: &Sessions| {
            let gone = sessions.sweep();
            if !gone.is_empty() {
                tracing::info!(sessions = gone.len(), "sessions ended whose clients are gone");
            }
            gone
        };
        self.end_those(Ended::Gone, take).await
    }

    async fn end_those(
        &self,
        why: Ended,
        take: impl FnOnce(&Self) -> Vec<Arc<Session>>,
    ) -> Result<(), Status> {
        let ending = self.ending.clone().write_owned().await;
        let ended = take(self);
        if ended.is_empty() {
            return Ok(());
        }
        let (tally, runtime, (tell, told)) = (self.tally.clone(), Handle::current(), oneshot::channel());
        let then = runtime.clone();
        // Nothing is waited for before this is on its way: whoever asked for the end may be gone by then.
        on_its_own(&runtime, move || {
            ended.iter().for_each(|session| session.objects.give_back());
            let rest = then.spawn_blocking(move || {
                ended.iter().for_each(|session| session.give_back());
                tally.sessions_ended(why, ended.len());
            });
            drop(ending); // this thread has nothing of the store any more
            let _ = tell.send(rest); // whoever asked may be gone
        });
        let rest = told.await.map_err(|error| panicked(&error))?;
        rest.await.map_err(|error| panicked(&error))
    }

    /// Until no session is between its end and its objects' return.
    pub(in crate::grpc) async fn none_ends(&self) {
        drop(self.ending.read().await);
    }
}

/// Does something on a thread of its own; where the machine has none, on one for what may wait.
fn on_its_own(runtime: &Handle, work: impl FnOnce() + Send + 'static) {
    let work = Arc::new(Mutex::new(Some(work))); // what a thread was not made for is gone with it
    let mine = work.clone();
    let thread = std::thread::Builder::new().name("forebay-grpc-ending".to_owned());
    if let Err(error) = thread.spawn(move || done(&mine)) {
        tracing::warn!(%error, "no thread for the end of a session: nobody is let in before one of the others is free");
        runtime.spawn_blocking(move || done(&work));
    }
}

fn done(work: &Mutex<Option<impl FnOnce()>>) {
    let work = lock(work).take();
    work.into_iter().for_each(|work| work());
}

/// Ends sessions whose clients are gone, for as long as the server runs.
pub(in crate::grpc) async fn sweep(sessions: Sessions) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(SWEEP_EVERY) => {}
            // A process that ends closes its sockets first.
            () = sessions.left.notified() => tokio::time::sleep(ENDS_WITHIN).await,
        }
        let _ = sessions.end_gone().await; // a panic, which is in the log
        sessions.expire(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::mpsc;

    use forebay_store::{Dtype, Get, Options, Owner, ProcessHandle, Store, TensorBytes, Which};
    use futures_util::FutureExt;
    use tokio::runtime;

    use super::*;
    use crate::grpc::Limits;
    use crate::grpc::tally::Tally;

    fn sessions(store: &Store, tally: &Tally) -> Sessions {
        let limits = Limits { grace: Duration::ZERO, ..Limits::default() };
        Sessions::new(store.clone(), &limits, tally)
    }

    /// Lends a version to this process, as to a neighbour of that session. Gives where it lies.
    fn lend(store: &Store, session: &Session, me: &ProcessHandle) -> Vec<(u32, u64)> {
        let objects = store.objects().unwrap();
        let tensor =
            TensorBytes { class: "weights", name: "w", dtype: Dtype::F32, shape: &[3], bytes: &[1; 12] };
        objects.set("solver", &[tensor]).unwrap();
        let get = Get::default().owner(Owner::Process(me.clone()));
        let held = objects.get_with("solver", Which::Latest, &get).unwrap();
        let places = held.places().into_iter().map(Option::unwrap).collect();
        session.objects.keep_all(vec![held]).unwrap();
        places
    }

    // The one thread for what may wait is taken, as by reads of a slow disk: nobody who comes in has to wait for it.
    #[test]
    fn a_client_that_is_back_while_its_session_ends_comes_in_and_can_let_go_of_what_that_had_lent() {
        let runtime = runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("store"), Options::default()).unwrap();
        let me = ProcessHandle::of(std::process::id()).unwrap();
        for is_closed in [false, true] {
            let tally = Tally::default();
            let sessions = sessions(&store, &tally);
            let enter = |resume| sessions.let_in("a", "rank 0", resume, Local::default());
            runtime.block_on(async {
                let (id, present, _) = enter(None).await.unwrap();
                let places = lend(&store, &sessions.find("a", &id).unwrap(), &me);
                drop(present);
                let (free, taken) = mpsc::channel::<()>();
                tokio::task::spawn_blocking(move || taken.recv());
                let end = async {
                    match is_closed {
                        true => sessions.end(&id).await,
                        false => sessions.end_gone().await,
                    }
                };
                let (mut end, mut back) = (pin!(end), pin!(enter(Some(id))));
                assert!(end.as_mut().now_or_never().is_none());
                assert_eq!(sessions.find("a", &id).unwrap_err().cause(), "SessionLost");
                let (next, _present, resumed) = back.as_mut().await.unwrap();
                assert!(!resumed && next != id);
                assert!(store.objects().unwrap().let_go_of(&me, &places), "the loan is in quarantine");
                assert!(end.as_mut().now_or_never().is_none() && tally.counts().sessions_ended.is_empty());
                drop(free);
                end.await.unwrap();
                assert_eq!(tally.counts().sessions_ended.values().sum::<u64>(), 1);
            });
        }
    }
}
