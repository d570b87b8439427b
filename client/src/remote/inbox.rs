//! What a subscription was pushed, until somebody takes it, and which of its claims this client has, until they are settled.
//!
//! One lock, for a look-up.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use forebay_store::Kind;
use tokio::sync::{Notify, watch};

use super::along::Alongside;
use super::session::Standing;
use crate::connection::{Epoch, Granted};
use crate::error::{Error, Result};
use crate::subscription::dropped;
use crate::wire::proto::ClaimName;

/// How many subscriptions a client may have. Each takes one of the 1,024 calls that a server takes of a connection at a time.
const SUBSCRIPTIONS_MAX: usize = 256;

/// The claims of one subscription.
#[derive(Debug)]
pub(super) struct Inbox {
    state: Mutex<State>,
    /// How many claims may be unsettled.
    outstanding: usize,
    along: Alongside,
    /// Whose session it is: what came of another has gone back.
    standing: watch::Receiver<Standing>,
    /// Told when there is something to take, and at the end.
    changed: Notify,
    /// Told when nobody takes anything any more.
    left: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// That all of it came of.
    session: Bytes,
    /// What nobody has taken.
    came: VecDeque<Granted>,
    /// What came and was not settled, as far as the server has answered.
    held: HashSet<Epoch>,
    /// Why nothing more comes.
    over: Option<Error>,
    is_left: bool,
}

impl Inbox {
    pub(super) fn new(outstanding: usize, along: Alongside, standing: watch::Receiver<Standing>) -> Self {
        let (changed, left) = (Notify::new(), Notify::new());
        Inbox { state: Mutex::default(), outstanding, along, standing, changed, left }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner) // entries are whole
    }

    /// Goes on in a session: what came of another is forgotten.
    pub(super) fn go_on_in(&self, session: &Bytes) {
        let mut state = self.lock();
        if state.session == *session {
            return;
        }
        state.session.clone_from(session);
        self.forget(state);
    }

    /// A claim came of that session.
    pub(super) fn push(&self, granted: Granted, session: &Bytes) {
        let mut state = self.lock();
        if state.is_left || state.session != *session || !state.held.insert(granted.epoch) {
            drop(state);
            return self.along.drop(granted.epoch);
        }
        state.came.push_back(granted);
        // The server pushes no more than may be unsettled, so the leases of the others have ended.
        let ended = (state.came.len() > self.outstanding).then(|| state.came.pop_front()).flatten();
        let ended = ended.map(|granted| granted.epoch);
        ended.iter().for_each(|epoch| _ = state.held.remove(epoch));
        drop(state);
        ended.into_iter().for_each(|epoch| self.along.drop(epoch));
        self.changed.notify_waiters();
    }

    /// The next claim, or why there is none any more; nothing where one may come.
    pub(super) fn take(&self) -> Option<Result<Granted>> {
        let session = self.standing.borrow().session().clone();
        self.go_on_in(&session);
        let mut state = self.lock();
        match state.came.pop_front() {
            Some(granted) => Some(Ok(granted)),
            None if state.is_left => Some(Err(dropped())),
            None => state.over.as_ref().map(|over| Err(over.again())),
        }
    }

    /// The next claim, once there is one.
    pub(super) async fn next(&self) -> Result<Granted> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable(); // listen first, then look
            if let Some(outcome) = self.take() {
                return outcome;
            }
            changed.await;
        }
    }

    /// A claim was settled: the server has said so, or that it was over before.
    fn settled(&self, claim: Epoch) {
        self.lock().held.remove(&claim);
    }

    /// The claims that this client has.
    pub(super) fn held(&self) -> Vec<ClaimName> {
        let name = |(incarnation, claim, member): &Epoch| ClaimName {
            incarnation: *incarnation,
            claim: *claim,
            member: *member,
        };
        self.lock().held.iter().map(name).collect()
    }

    /// What came has gone back.
    fn forget(&self, mut state: MutexGuard<'_, State>) {
        state.held.clear();
        let came = std::mem::take(&mut state.came);
        drop(state);
        came.iter().for_each(|granted| self.along.drop(granted.epoch));
    }

    /// Nothing more comes. What has come may be taken yet, unless the client is closed.
    pub(super) fn end(&self, why: Error) {
        if why.kind() == Kind::Closed {
            self.forget(self.lock());
        }
        self.lock().over = Some(why);
        self.changed.notify_waiters();
    }

    /// Nobody takes anything more. Whether nothing came any more before.
    pub(super) fn leave(&self) -> bool {
        let mut state = self.lock();
        state.is_left = true;
        let came = std::mem::take(&mut state.came);
        came.iter().for_each(|granted| _ = state.held.remove(&granted.epoch));
        let is_over = state.over.is_some();
        drop(state);
        came.iter().for_each(|granted| self.along.drop(granted.epoch));
        self.left.notify_one();
        self.changed.notify_waiters();
        is_over
    }

    pub(super) fn is_left(&self) -> bool {
        self.lock().is_left
    }

    /// Until nobody takes anything more.
    pub(super) async fn left(&self) {
        while !self.is_left() {
            self.left.notified().await; // kept for who comes later
        }
    }
}

/// The subscriptions of a client.
#[derive(Debug, Default)]
pub(super) struct Inboxes(Mutex<Vec<Weak<Inbox>>>);

impl Inboxes {
    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Inbox>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner) // entries are whole
    }

    /// One more.
    pub(super) fn add(&self, inbox: &Arc<Inbox>) -> Result<()> {
        let mut all = self.lock();
        all.retain(|inbox| inbox.strong_count() > 0);
        if all.len() >= SUBSCRIPTIONS_MAX {
            let message = format!(
                "the client has {SUBSCRIPTIONS_MAX} subscriptions already; drop some, or connect once more"
            );
            return Err(Error::new(Kind::Capacity, "Subscriptions", message));
        }
        all.push(Arc::downgrade(inbox));
        Ok(())
    }

    /// A claim was to be settled. It is held on until the server has said that it was, or that it had ended before.
    pub(super) fn settled<T>(&self, claim: Epoch, outcome: &Result<T>) {
        let is_known = outcome.as_ref().err().is_none_or(|error| error.kind() == Kind::State);
        let all: Vec<Arc<Inbox>> = self.lock().iter().filter_map(Weak::upgrade).collect();
        all.iter().filter(|_| is_known).for_each(|inbox| inbox.settled(claim));
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const SESSION: Bytes = Bytes::from_static(b"one");

    fn granted(claim: u64) -> Granted {
        Granted {
            epoch: (1, claim, 0),
            table: "solver".to_owned(),
            step: None,
            sequence_in_step: 0,
            rows: Vec::new(),
            samples: Vec::new(),
            rows_in_gang: 0,
            tokens_in_gang: 0,
            gradient: None,
        }
    }

    fn inbox(outstanding: usize, claims: impl IntoIterator<Item = u64>) -> Arc<Inbox> {
        let (_, standing) = watch::channel(Standing::Open(SESSION));
        let inbox = Arc::new(Inbox::new(outstanding, Alongside::default(), standing));
        inbox.go_on_in(&SESSION);
        claims.into_iter().for_each(|claim| inbox.push(granted(claim), &SESSION));
        inbox
    }

    fn held(inbox: &Inbox) -> Vec<u64> {
        let mut held: Vec<u64> = inbox.held().iter().map(|name| name.claim).collect();
        held.sort_unstable();
        held
    }

    fn taken(inbox: &Inbox) -> Option<u64> {
        inbox.next().now_or_never().map(|granted| granted.unwrap().epoch.1)
    }

    #[test]
    fn what_came_is_held_until_it_is_known_to_be_settled() {
        let (inbox, all) = (inbox(2, [1, 2, 1]), Inboxes::default());
        all.add(&inbox).unwrap();
        assert_eq!((taken(&inbox), taken(&inbox), taken(&inbox)), (Some(1), Some(2), None));
        let failed = |kind| Err::<(), Error>(Error::new(kind, "Any", "words"));
        for kind in [Kind::Retry, Kind::Input] {
            all.settled((1, 1, 0), &failed(kind));
            assert_eq!(held(&inbox), [1, 2], "{kind:?}: nobody can tell");
        }
        all.settled((1, 1, 0), &failed(Kind::State));
        all.settled((1, 2, 0), &Ok(()));
        assert!(held(&inbox).is_empty());
    }

    #[test]
    fn what_nobody_takes_while_its_lease_ends_makes_room() {
        let inbox = inbox(2, 1..=5);
        assert_eq!(held(&inbox), [4, 5]);
        assert_eq!((taken(&inbox), taken(&inbox), taken(&inbox)), (Some(4), Some(5), None));
    }

    #[test]
    fn what_came_of_a_session_that_was_lost_is_not_taken() {
        let (says, standing) = watch::channel(Standing::Open(SESSION));
        let inbox = Inbox::new(2, Alongside::default(), standing);
        inbox.go_on_in(&SESSION);
        inbox.push(granted(1), &SESSION);
        says.send_replace(Standing::Away(SESSION));
        assert_eq!(held(&inbox), [1]);
        let next = Bytes::from_static(b"next");
        says.send_replace(Standing::Open(next.clone()));
        assert!(inbox.take().is_none() && held(&inbox).is_empty());
        inbox.push(granted(2), &SESSION); // was on its way
        inbox.push(granted(3), &next);
        assert_eq!((taken(&inbox), taken(&inbox)), (Some(3), None));
    }

    #[test]
    fn who_leaves_holds_what_he_has_taken_alone() {
        let inbox = inbox(3, 1..=3);
        assert_eq!(taken(&inbox), Some(1));
        assert!(inbox.left().now_or_never().is_none() && !inbox.leave());
        inbox.push(granted(4), &SESSION);
        assert!(inbox.left().now_or_never().is_some());
        assert_eq!(held(&inbox), [1]);
        assert_eq!(inbox.take().unwrap().unwrap_err().cause(), "SubscriptionOver");
    }

    #[test]
    fn what_came_is_there_after_the_end_and_not_after_the_client_was_closed() {
        for (kind, left) in [(Kind::Retry, Some(1)), (Kind::Closed, None)] {
            let inbox = inbox(2, [1]);
            inbox.end(Error::new(kind, "Why", "words"));
            if left.is_some() {
                assert_eq!(taken(&inbox), left);
            }
            for _ in 0..2 {
                let error = inbox.take().unwrap().unwrap_err();
                assert_eq!(
                    (error.kind(), error.cause(), error.to_string()),
                    (kind, "Why", "words".to_owned())
                );
            }
            assert!(inbox.leave());
        }
    }

    #[test]
    fn a_client_has_so_many_subscriptions() {
        let all = Inboxes::default();
        let mut kept: Vec<Arc<Inbox>> = (0..SUBSCRIPTIONS_MAX).map(|_| inbox(1, [])).collect();
        assert!(kept.iter().all(|inbox| all.add(inbox).is_ok()));
        let refused = all.add(&inbox(1, [])).unwrap_err();
        assert_eq!((refused.kind(), refused.cause()), (Kind::Capacity, "Subscriptions"));
        kept.pop();
        assert!(all.add(&inbox(1, [])).is_ok());
    }
}
