//! Calls that change something: each is made once under its name, and runs to its end once it has begun, whoever is still there.
//!
//! What goes on when its call is over has the room of the call's message until it is done ([`Call::holding`]): it keeps what the message
//! brought. The answers of changes are kept apart from those of all other calls, which are few; a name is for one
//! call all the same.

use forebay_client::wire::from_error;
use forebay_client::{Error, Holder};
use forebay_store::Kind;
use tonic::{Response, Status};

use super::call::{Call, Reply, Service, blocking};
use super::changing::WAIT_MAX;
use super::replies::Replies;
use super::turns::{Turning, Turns};

/// How a change is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// On this thread, which costs no change of threads: it is done soon, and waits for nobody and for no disk.
    Here,
    /// On a thread for what may block.
    Aside,
    /// The same, once there is a turn: it may wait for room.
    InTurn(Turning),
}

impl Call {
    /// The answers of its session to calls that are no changes; refused where its name is that of a change.
    pub(super) fn answers(&self) -> Result<&Replies, Status> {
        self.session.changed.check_unknown(self.name)?;
        Ok(&self.session.replies)
    }

    /// Work that has the room of the call's message until it is done: it keeps what the message brought, and goes on also when the call
    /// is over.
    pub(super) fn holding<T, W>(&self, work: W) -> impl FnOnce() -> T + Send + use<T, W>
    where
        W: FnOnce() -> T + Send,
    {
        let occupied = self.occupied.clone();
        move || {
            let done = work();
            drop(occupied);
            done
        }
    }

    /// The same of what is done with the holder of its session.
    fn held_work<T, W>(&self, work: W) -> impl FnOnce() -> T + Send + use<T, W>
    where
        W: FnOnce(&Holder) -> T + Send,
    {
        let session = self.session.clone();
        self.holding(move || work(&session.holder))
    }
}

impl Service {
    /// Does something that may wait for a disk, once under the name of the call.
    pub(super) async fn once<T, F>(&self, call: Call, work: F) -> Reply<T>
    where
        T: Clone + Send + Sync + 'static,
        F: FnOnce(&Holder) -> Result<T, Error> + Send + 'static,
    {
        let work = call.held_work(work);
        let pending = call.answers()?.once(call.name, 1, move || blocking(work))?;
        pending.await.map(Response::new)
    }

    /// The same for what may wait for room, too.
    pub(super) async fn once_in_turn<T, F>(&self, call: Call, what: Turning, work: F) -> Reply<T>
    where
        T: Clone + Send + Sync + 'static,
        F: FnOnce(&Holder) -> Result<T, Error> + Send + 'static,
    {
        let (work, turns) = (call.held_work(work), (call.session.turns.clone(), self.writers.clone()));
        let pending = call.answers()?.once(call.name, 1, move || in_turn(turns, what, work))?;
        pending.await.map(Response::new)
    }

    /// Does something that changes rows, or ends a claim, in that manner, once under the name of the call. Its answer counts for so
    /// many rows, and pushes out none of other calls.
    pub(super) async fn once_changed<T, F>(
        &self,
        call: Call,
        manner: Manner,
        rows: usize,
        work: F,
    ) -> Reply<T>
    where
        T: Clone + Send + Sync + 'static,
        F: FnOnce(&Holder) -> Result<T, Error> + Send + 'static,
    {
        let (work, turns) = (call.held_work(work), (call.session.turns.clone(), self.writers.clone()));
        let (name, answers) = (call.name, &call.session.changed);
        call.session.replies.check_unknown(name)?;
        let pending = match manner {
            Manner::Here => answers.once_here(name, rows, || work().map_err(|error| from_error(&error))),
            Manner::Aside => answers.once(name, rows, move || blocking(work)),
            Manner::InTurn(what) => answers.once(name, rows, move || in_turn(turns, what, work)),
        };
        pending?.await.map(Response::new)
    }
}

/// Does what may wait for room, once its session and all of them together have a turn for it. It does not wait for that longer than it
/// may for room: it has that of its message meanwhile.
async fn in_turn<T: Send + 'static>(
    (own, all): (Turns, Turns),
    what: Turning,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Status> {
    let turns = async { (own.take(what).await, all.take(what).await) };
    let _turns = tokio::time::timeout(WAIT_MAX, turns).await.map_err(|_| from_error(&held_back()))?;
    blocking(work).await
}

fn held_back() -> Error {
    let message = format!(
        "as many calls as may have waited for room before this one for {} seconds; make room, and ask again",
        WAIT_MAX.as_secs()
    );
    Error::new(Kind::Retry, "HeldBack", message)
}
