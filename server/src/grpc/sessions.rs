//! Who is there, and what each of them holds.
//!
//! A session lives for as long as one of its client's streams is open, and for `grace` after the last broke: then it ends,
//! and what it held goes back (`ending`). That of a client of this machine that shares memory with the server ends with the client's
//! process, which is looked at as soon as its last stream broke, and from time to time; one that is stopped lives. A call keeps
//! its session until it is over.
//!
//! Any number of sessions work on one store, which is made for that. So there is nothing that would have to say that it bears more
//! than one before the server starts, and no second place to say how many: AW-B07 is about servers of environments, which this is not.

mod ending;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use forebay_client::wire::Lent;
use forebay_client::wire::proto::Changes;
use forebay_client::{Error, Granted, Holder, KeptObjects, KeptSnapshots, Role};
use forebay_store::{Claim, Kind, ProcessHandle, Store};
use tokio::sync::{Notify, RwLock, Semaphore, watch};

use super::Limits;
use super::flow::FLOWS_MAX;
use super::loans::Loans;
use super::reading;
use super::replies::Replies;
use super::room;
use super::slabs::{self, Slabs};
use super::subscriptions::Subscriptions;
use super::tally::{Ended, Tally};
use super::turns::Turns;
use super::waits::Waits;

pub(super) use ending::sweep;

/// A session's name, which is a secret of its client.
pub(super) type SessionId = [u8; 16];

/// The longest name of a holder of claims, and of a gang, in bytes: it is kept for as long as its session or its claim is, and is shown to people.
const NAME_BYTES_MAX: usize = 256;

/// How many waits for objects one client may have under way.
pub(super) const OBJECT_WAITS_MAX: usize = 1024;

/// One client.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) holder: Holder,
    pub(super) objects: KeptObjects,
    pub(super) snapshots: KeptSnapshots,
    /// Of a neighbour: what maps the memory of objects, where it is known.
    pub(super) process: Option<ProcessHandle>,
    /// What it ends with, where that is known: of a neighbour and of who has slabs.
    ends_with: Option<ProcessHandle>,
    /// Told when its client may have ended.
    left: Arc<Notify>,
    pub(super) replies: Replies,
    /// The same of changes and of ends of claims, of which there are very many, by whatever call they come.
    pub(super) changed: Replies,
    /// The same of parts of objects, of which there are many.
    pub(super) parts: Replies,
    /// The same of what is told of snapshots, which may be long.
    pub(super) taken: Replies,
    pub(super) waits: Waits,
    pub(super) subscriptions: Subscriptions,
    /// Held while a wait looks for rows and notes what it found, and for nothing else.
    finding: Mutex<()>,
    /// How many more waits for objects there may be.
    pub(super) object_waits: Arc<Semaphore>,
    /// How many more calls of changes that follow each other there may be.
    pub(super) flows: Arc<Semaphore>,
    /// What it may hold of the room for writes in frames.
    pub(super) room: Arc<Semaphore>,
    /// What it may have of the turns of those who may wait.
    pub(super) turns: Turns,
    /// What it may have of the turns of readers and queries.
    pub(super) reading: reading::OfSession,
    /// Told whenever a claim was ended.
    pub(super) settled: Notify,
    /// The extents that a neighbour was lent; none for anybody else.
    pub(super) loans: Option<Loans>,
    /// What a client of this machine fills that is no neighbour; none for anybody else.
    pub(super) slabs: Option<Slabs>,
    /// Whose token began it: nobody else goes on with it.
    caller: String,
    presence: Mutex<Presence>,
    /// Whether it was taken off: nobody finds it any more.
    is_over: watch::Sender<bool>,
}

#[derive(Debug)]
struct Presence {
    streams: usize,
    gone_since: Instant,
}

/// All clients.
#[derive(Clone, Debug)]
pub(super) struct Sessions {
    store: Store,
    pub(super) grace: Duration,
    most: usize,
    limits: Limits,
    tally: Tally,
    /// How many slabs there may be yet.
    slabs: Arc<Semaphore>,
    open: Arc<Mutex<HashMap<SessionId, Arc<Session>>>>,
    /// Told when a client of this machine has left, for its process may have ended.
    left: Arc<Notify>,
    /// Had by who ends sessions until their objects have gone back, and by clients that come in.
    ending: Arc<RwLock<()>>,
}

/// What a client of this machine shares with the server; nothing where all is sent.
#[derive(Clone, Debug, Default)]
pub(super) struct Local {
    /// The store's files.
    pub(super) neighbour: bool,
    /// Its process, by which is known when memory is mapped no more.
    pub(super) process: Option<ProcessHandle>,
    /// Slabs, which it fills where it cannot open those.
    pub(super) slabs: bool,
}

/// Says that a client is there, until it is dropped.
#[derive(Debug)]
pub(super) struct Present(Arc<Session>);

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner) // whoever panicked left whole entries
}

fn lost() -> Error {
    let message = "the session is not there (any more), and what it held was given back; begin another";
    Error::new(Kind::State, "SessionLost", message)
}

/// Refuses the name of a holder of claims that is too long to be kept.
pub(super) fn check_owner(owner: &str) -> Result<(), Error> {
    check_length("owner", owner)
}

/// The same of the name of a gang, which is in the record of each of its claims.
pub(super) fn check_gang(gang: &str) -> Result<(), Error> {
    check_length("gang", gang)
}

fn check_length(whose: &str, name: &str) -> Result<(), Error> {
    if name.len() <= NAME_BYTES_MAX {
        return Ok(());
    }
    let message = format!(
        "the {whose}'s name has {} bytes, and {NAME_BYTES_MAX} are the most; give a shorter one",
        name.len()
    );
    Err(Error::new(Kind::Input, "TooLarge", message))
}

impl Sessions {
    /// As many as may be at the same time, each kept for a grace after its client was there last.
    pub(super) fn new(store: Store, limits: &Limits, tally: &Tally) -> Self {
        let open = Arc::default();
        tally.watch(&open);
        let (grace, most) = (limits.grace, limits.sessions_max);
        let (slabs, limits) = (slabs::room(limits.slab_bytes_max), limits.clone());
        let (tally, left, ending) = (tally.clone(), Arc::default(), Arc::default());
        Sessions { store, grace, most, limits, tally, slabs, open, left, ending }
    }

    /// The session of that name, whoever asks.
    pub(super) fn named(&self, id: &SessionId) -> Option<Arc<Session>> {
        lock(&self.open).get(id).cloned()
    }

    /// Goes on with a session that is there and the caller's, or begins one. Gives its name and whether it went on.
    fn enter(
        &self,
        caller: &str,
        owner: &str,
        resume: Option<SessionId>,
        local: Local,
    ) -> Result<(SessionId, Present, bool), Error> {
        let mut open = lock(&self.open);
        if let Some(id) = resume
            && let Some(session) = open.get(&id).filter(|session| session.caller == caller)
        {
            self.tally.session_resumed();
            return Ok((id, Present::new(session.clone()), true));
        }
        if open.len() >= self.most {
            let message = format!(
                "{} clients of at most {} are connected already; close some, or try later",
                open.len(),
                self.most
            );
            return Err(Error::new(Kind::Capacity, "Sessions", message));
        }
        let mut id = SessionId::default();
        getrandom::fill(&mut id).map_err(|error| {
            Error::new(
                Kind::Retry,
                "Random",
                format!("the system gives no random bytes for a session: {error}"),
            )
        })?;
        let session = Session {
            holder: Holder::new(self.store.clone(), owner),
            objects: KeptObjects::new(self.store.clone()),
            snapshots: KeptSnapshots::new(self.store.clone(), owner),
            process: local.process.clone().filter(|_| local.neighbour),
            ends_with: local.process,
            left: self.left.clone(),
            replies: Replies::default(),
            changed: Replies::default(),
            parts: Replies::default(),
            taken: Replies::default(),
            object_waits: Arc::new(Semaphore::new(OBJECT_WAITS_MAX)),
            flows: Arc::new(Semaphore::new(FLOWS_MAX)),
            room: room::of_session(&self.limits),
            turns: Turns::of_session(),
            reading: reading::OfSession::new(),
            waits: Waits::default(),
            subscriptions: Subscriptions::default(),
            finding: Mutex::default(),
            settled: Notify::new(),
            loans: local.neighbour.then(Loans::default),
            slabs: local.slabs.then(|| Slabs::new(&self.slabs)),
            caller: caller.to_owned(),
            presence: Mutex::new(Presence { streams: 0, gone_since: Instant::now() }),
            is_over: watch::Sender::new(false),
        };
        let session = Arc::new(session);
        open.insert(id, session.clone());
        self.tally.session_begun();
        Ok((id, Present::new(session), false))
    }

    /// The session of that name, if it is the caller's.
    pub(super) fn find(&self, caller: &str, id: &[u8]) -> Result<Arc<Session>, Error> {
        let id: Option<SessionId> = id.try_into().ok();
        let found = id.and_then(|id| lock(&self.open).get(&id).cloned());
        found.filter(|session| session.caller == caller).ok_or_else(lost)
    }

    /// Takes a session off; what it holds is the caller's to give back.
    fn close(&self, id: &[u8]) -> Option<Arc<Session>> {
        let id = SessionId::try_from(id).ok()?;
        let closed = lock(&self.open).remove(&id);
        closed.inspect(|session| session.say_over())
    }

    /// Ends all sessions: the server does.
    pub(super) fn close_all(&self) {
        let all: Vec<Arc<Session>> = lock(&self.open).drain().map(|(_, session)| session).collect();
        all.iter().for_each(|session| session.say_over());
        all.iter().for_each(|session| session.give_back()); // with nothing locked
        self.tally.sessions_ended(Ended::Stopped, all.len());
    }

    /// Ends the snapshots whose deadline has come, and forgets answers that are old.
    fn expire(&self, now: Instant) {
        let all: Vec<Arc<Session>> = lock(&self.open).values().cloned().collect();
        for session in all {
            session.snapshots.expire();
            session.answers().into_iter().for_each(|answers| answers.forget(now));
        }
    }

    /// Takes the sessions off whose clients' processes have ended, or that have been gone for too long; what they hold is the
    /// caller's to give back.
    fn sweep(&self) -> Vec<Arc<Session>> {
        let mut open = lock(&self.open);
        let has_ended = |session: &Session| session.ends_with.as_ref().is_some_and(ProcessHandle::has_ended);
        let late = |session: &Session| {
            let presence = lock(&session.presence);
            presence.streams == 0 && presence.gone_since.elapsed() >= self.grace
        };
        let gone: Vec<SessionId> =
            open.iter().filter(|(_, of)| has_ended(of) || late(of)).map(|(id, _)| *id).collect();
        let over: Vec<Arc<Session>> = gone.iter().filter_map(|id| open.remove(id)).collect();
        drop(open);
        over.iter().for_each(|session| session.say_over());
        over
    }

    #[cfg(test)]
    fn count(&self) -> usize {
        lock(&self.open).len()
    }
}

impl Session {
    /// To be held while a wait looks for rows and notes what it found.
    pub(super) fn finding(&self) -> MutexGuard<'_, ()> {
        self.finding.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that it was answered.
    fn answers(&self) -> [&Replies; 4] {
        [&self.replies, &self.changed, &self.parts, &self.taken]
    }

    /// Tells those who wait in its name that it was taken off.
    fn say_over(&self) {
        self.is_over.send_replace(true);
    }

    /// Refuses who goes on in the name of a session that was taken off.
    pub(super) fn check_there(&self) -> Result<(), Error> {
        if *self.is_over.borrow() { Err(lost()) } else { Ok(()) }
    }

    /// Until it is taken off.
    pub(super) async fn over(&self) {
        let _ = self.is_over.subscribe().wait_for(|is_over| *is_over).await; // never closed: this has the other end
    }

    /// Keeps a claim that its client waited for. Where it has ended meanwhile, the rows go back.
    pub(super) fn keep(&self, claim: Claim, role: Role) -> Result<Granted, Error> {
        self.holder.keep_unless_closed(claim, role).map_err(|_| lost())
    }

    /// Gives everything back that its client has: objects, snapshots, claims, steps, places in gangs, extents. Claims that come later go back,
    /// too.
    fn give_back(&self) {
        self.objects.give_back();
        self.snapshots.give_back();
        self.holder.close();
        self.loans.iter().for_each(Loans::take_back);
        self.slabs.iter().for_each(Slabs::let_go);
    }

    /// What its client was lent: extents, and what changes name of slabs.
    pub(super) fn lent(&self, changes: &Changes) -> Result<Lent, Error> {
        let extents = self.loans.as_ref().map(Loans::all).unwrap_or_default();
        let slabs = self.slabs.as_ref().map(|slabs| slabs.copy(changes)).transpose()?.unwrap_or_default();
        Ok(Lent { extents, slabs, frames: Vec::new() })
    }
}

impl Present {
    fn new(session: Arc<Session>) -> Self {
        lock(&session.presence).streams += 1;
        Present(session)
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        let mut presence = lock(&self.0.presence);
        presence.streams -= 1;
        presence.gone_since = Instant::now();
        if presence.streams == 0 && self.0.ends_with.is_some() {
            self.0.left.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_store::Options;

    use super::*;

    fn sessions(grace: Duration) -> (tempfile::TempDir, Sessions) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("store"), Options::default()).unwrap();
        let limits = Limits { grace, sessions_max: 2, ..Limits::default() };
        (dir, Sessions::new(store, &limits, &Tally::default()))
    }

    #[test]
    fn a_session_is_there_while_its_client_is_and_for_a_grace_after() {
        let (_dir, sessions) = sessions(Duration::ZERO);
        let (id, present, resumed) = sessions.enter("a", "rank 0", None, Local::default()).unwrap();
        assert!(!resumed && sessions.sweep().is_empty());
        let (again, second, resumed) = sessions.enter("a", "rank 0", Some(id), Local::default()).unwrap();
        assert!(resumed && again == id);
        drop(present);
        assert!(sessions.sweep().is_empty(), "another stream is open");
        drop(second);
        assert_eq!((sessions.sweep().len(), sessions.count()), (1, 0));
        assert_eq!(sessions.find("a", &id).unwrap_err().cause(), "SessionLost");
        let (_, _present, resumed) = sessions.enter("a", "rank 0", Some(id), Local::default()).unwrap();
        assert!(!resumed, "it is gone for good");
    }

    #[test]
    fn nobody_goes_on_with_a_session_of_another() {
        let (_dir, sessions) = sessions(Duration::from_secs(3600));
        let (id, present, _) = sessions.enter("a", "rank 0", None, Local::default()).unwrap();
        let (other, _other, resumed) = sessions.enter("b", "thief", Some(id), Local::default()).unwrap();
        assert!(!resumed && other != id);
        for (caller, name) in [("b", &id[..]), ("a", &id[..15]), ("a", &[])] {
            assert_eq!(sessions.find(caller, name).unwrap_err().cause(), "SessionLost");
        }
        drop(present);
        assert!(sessions.sweep().is_empty(), "the grace is not over");
        assert!(sessions.close(&id).is_some() && sessions.find("a", &id).is_err());
    }

    // AW-05, AW-15, AW-B06: who is refused is told how many there are, and holds no place.
    #[test]
    fn a_place_that_is_given_back_is_there_for_the_next() {
        let (_dir, sessions) = sessions(Duration::ZERO);
        let enter = || sessions.enter("a", "rank 0", None, Local::default());
        let (first, kept) = (enter().unwrap(), enter().unwrap());
        for _ in 0..8 {
            let error = enter().unwrap_err();
            assert_eq!((error.kind(), error.cause()), (Kind::Capacity, "Sessions"));
            assert!(error.to_string().contains("2 clients of at most 2"), "{error}");
        }
        assert!(sessions.close(&first.0).is_some());
        drop(enter().unwrap()); // gone, and swept
        assert_eq!(sessions.sweep().len(), 1);
        let again = enter().unwrap();
        assert!(enter().is_err());
        drop((kept, again));
    }

    // AW-B08: whether a session is over is looked at again under the lock that a client comes back under.
    #[test]
    fn a_client_that_comes_back_while_sessions_are_swept_has_its_session_or_another() {
        let (_dir, sessions) = sessions(Duration::ZERO);
        let (mut id, mut present, _) = sessions.enter("a", "rank 0", None, Local::default()).unwrap();
        std::thread::scope(|scope| {
            let sweeps = scope.spawn(|| (0..2_000).map(|_| sessions.sweep().len()).sum::<usize>());
            let mut lost = 0;
            while !sweeps.is_finished() {
                drop(present);
                let (next, here, resumed) =
                    sessions.enter("a", "rank 0", Some(id), Local::default()).unwrap();
                assert!(resumed == (next == id) && sessions.find("a", &next).is_ok());
                lost += usize::from(!resumed);
                (id, present) = (next, here);
            }
            assert_eq!(sweeps.join().unwrap(), lost);
            drop(present);
        });
    }
}
