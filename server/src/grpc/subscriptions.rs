//! The subscriptions of a session, by the names of their calls: what was pushed to whom, so that a client whose stream broke goes on
//! with what it has, and what was lost on the way comes again.
//!
//! A subscription outlives its streams. It ends when its client gives it up, or with the session. One stream at a time pushes for it:
//! that of the latest attempt. The one before ends as soon as there is another, and gives back what it claims from then on.
//!
//! # Locks
//! One for the names, and then one a subscription, each for a look-up. With the second the holder's may be taken.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_client::{Epoch, Error, Granted};
use forebay_store::Kind;
use tokio::sync::Notify;

/// How many subscriptions a session may have.
const SUBSCRIPTIONS_MAX: usize = 1024;
/// How many names are remembered of those that were given up: a call that was sent before may come after.
const GIVEN_UP_KEPT: usize = 1024;

/// The subscriptions of one session.
#[derive(Debug, Default)]
pub(super) struct Subscriptions(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    by_name: HashMap<u128, Arc<Subscription>>,
    /// The oldest first.
    given_up: VecDeque<u128>,
}

#[derive(Debug)]
struct Subscription {
    state: Mutex<State>,
    /// Told when another stream pushes, or none does any more.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    /// The latest, whose stream pushes.
    attempt: u32,
    /// Whether that stream is there.
    is_pushing: bool,
    is_over: bool,
    /// What was pushed, or is about to be, and has not ended as far as is known.
    unsettled: Vec<Epoch>,
}

/// A stream that pushes, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    of: Arc<Subscription>,
    attempt: u32,
    /// What the client has not heard of, though it was pushed.
    lost: VecDeque<Epoch>,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner) // entries are whole
}

fn superseded(attempt: u32, latest: u32) -> Error {
    let message = format!(
        "attempt {attempt} at this subscription came after attempt {latest}; subscribe again with a higher number, or under \
         another name"
    );
    Error::new(Kind::State, "Superseded", message)
}

impl Subscriptions {
    /// Begins to push under that name, or goes on to a client that has `held` of what was pushed before; none where it was given
    /// up. `is_live` says which claims are still held.
    pub(super) fn begin(
        &self,
        name: u128,
        attempt: u32,
        held: &HashSet<Epoch>,
        is_live: impl Fn(Epoch) -> bool,
    ) -> Result<Option<Turn>, Error> {
        let mut inner = lock(&self.0);
        if inner.given_up.contains(&name) {
            return Ok(None);
        }
        if let Some(known) = inner.by_name.get(&name) {
            return known.clone().go_on(attempt, held).map(Some);
        }
        inner.make_room(is_live)?;
        let state = State { attempt, is_pushing: true, is_over: false, unsettled: Vec::new() };
        let of = Arc::new(Subscription { state: Mutex::new(state), changed: Notify::new() });
        inner.by_name.insert(name, of.clone());
        Ok(Some(Turn { of, attempt, lost: VecDeque::new() }))
    }

    /// Ends the subscription of that name. Gives what was pushed and that its client has not `held`.
    pub(super) fn give_up(&self, name: u128, held: &HashSet<Epoch>) -> Vec<Epoch> {
        let mut inner = lock(&self.0);
        if inner.given_up.len() == GIVEN_UP_KEPT {
            inner.given_up.pop_front();
        }
        inner.given_up.push_back(name);
        let Some(ended) = inner.by_name.remove(&name) else { return Vec::new() };
        drop(inner);
        let mut state = lock(&ended.state);
        state.is_over = true;
        let mut left = std::mem::take(&mut state.unsettled);
        drop(state);
        ended.changed.notify_waiters();
        left.retain(|epoch| !held.contains(epoch));
        left
    }
}

impl Inner {
    /// Forgets those that nobody pushes for and that have nothing left, where there are too many; refuses one more where that is
    /// not enough.
    fn make_room(&mut self, is_live: impl Fn(Epoch) -> bool) -> Result<(), Error> {
        if self.by_name.len() < SUBSCRIPTIONS_MAX {
            return Ok(());
        }
        self.by_name.retain(|_, of| {
            let state = lock(&of.state);
            state.is_pushing || state.unsettled.iter().any(|epoch| is_live(*epoch))
        });
        if self.by_name.len() < SUBSCRIPTIONS_MAX {
            return Ok(());
        }
        let message =
            format!("the session has {SUBSCRIPTIONS_MAX} subscriptions already; give some of them up");
        Err(Error::new(Kind::Capacity, "Subscriptions", message))
    }
}

impl Subscription {
    fn go_on(self: Arc<Self>, attempt: u32, held: &HashSet<Epoch>) -> Result<Turn, Error> {
        let mut state = lock(&self.state);
        if attempt <= state.attempt {
            return Err(superseded(attempt, state.attempt));
        }
        (state.attempt, state.is_pushing) = (attempt, true);
        let lost = state.unsettled.iter().copied().filter(|epoch| !held.contains(epoch)).collect();
        drop(state);
        self.changed.notify_waiters();
        Ok(Turn { of: self, attempt, lost })
    }
}

impl State {
    fn is_of(&self, attempt: u32) -> bool {
        !self.is_over && self.attempt == attempt
    }
}

impl Turn {
    /// The next of what was lost on the way.
    pub(super) fn next_lost(&mut self) -> Option<Epoch> {
        self.lost.pop_front()
    }

    /// How many claims are unsettled, of those that `is_live` says are still held.
    pub(super) fn unsettled(&self, is_live: impl Fn(Epoch) -> bool) -> usize {
        let mut state = lock(&self.of.state);
        state.unsettled.retain(|epoch| is_live(*epoch));
        state.unsettled.len()
    }

    /// Counts a claim that is to be pushed, as it is kept; none where it is not for this stream any more.
    pub(super) fn keep(
        &self,
        keep: impl FnOnce() -> Result<Granted, Error>,
    ) -> Result<Option<Granted>, Error> {
        let mut state = lock(&self.of.state);
        if !state.is_of(self.attempt) {
            return Ok(None);
        }
        let granted = keep()?;
        state.unsettled.push(granted.epoch);
        Ok(Some(granted))
    }

    /// Refuses to go on where another stream pushes; false where none does any more.
    pub(super) fn goes_on(&self) -> Result<bool, Error> {
        let state = lock(&self.of.state);
        match state.attempt == self.attempt {
            _ if state.is_over => Ok(false),
            true => Ok(true),
            false => Err(superseded(self.attempt, state.attempt)),
        }
    }

    /// Until this stream pushes no more.
    pub(super) async fn over(&self) {
        loop {
            let mut changed = std::pin::pin!(self.of.changed.notified());
            changed.as_mut().enable(); // listen first, then look
            if !lock(&self.of.state).is_of(self.attempt) {
                return;
            }
            changed.await;
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = lock(&self.of.state);
        if state.attempt == self.attempt {
            state.is_pushing = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

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

    fn held<const N: usize>(claims: [u64; N]) -> HashSet<Epoch> {
        claims.map(|claim| (1, claim, 0)).into()
    }

    fn begin(all: &Subscriptions, attempt: u32, held: &HashSet<Epoch>) -> Result<Option<Turn>, Error> {
        all.begin(7, attempt, held, |_| true)
    }

    fn push(turn: &Turn, claim: u64) -> bool {
        turn.keep(|| Ok(granted(claim))).unwrap().is_some()
    }

    #[test]
    fn what_a_client_has_not_heard_of_comes_again_and_nothing_else_does() {
        let all = Subscriptions::default();
        let first = begin(&all, 0, &held([])).unwrap().unwrap();
        assert!((1..=3).all(|claim| push(&first, claim)));
        drop(first);
        let mut second = begin(&all, 1, &held([2, 9])).unwrap().unwrap();
        let again: Vec<_> = std::iter::from_fn(|| second.next_lost()).collect();
        assert_eq!(again, [(1, 1, 0), (1, 3, 0)]);
        assert_eq!(second.unsettled(|_| true), 3, "whoever has heard of them");
        assert_eq!(second.unsettled(|epoch| epoch.1 != 2), 2);
        let third = begin(&all, 2, &held([1, 3])).unwrap().unwrap();
        assert!(third.lost.is_empty());
    }

    #[test]
    fn the_latest_attempt_pushes_and_the_one_before_ends() {
        let all = Subscriptions::default();
        let first = begin(&all, 3, &held([])).unwrap().unwrap();
        for late in [0, 3] {
            assert_eq!(begin(&all, late, &held([])).unwrap_err().cause(), "Superseded");
        }
        assert!(first.goes_on().unwrap() && first.over().now_or_never().is_none());
        let second = begin(&all, 4, &held([])).unwrap().unwrap();
        assert!(first.over().now_or_never().is_some() && !push(&first, 1));
        assert_eq!(first.goes_on().unwrap_err().cause(), "Superseded");
        drop(first);
        assert!(push(&second, 2) && second.goes_on().unwrap());
    }

    #[test]
    fn one_that_is_given_up_leaves_what_its_client_has_and_does_not_begin_again() {
        let all = Subscriptions::default();
        let turn = begin(&all, 0, &held([])).unwrap().unwrap();
        assert!((1..=2).all(|claim| push(&turn, claim)));
        assert_eq!(all.give_up(7, &held([2])), [(1, 1, 0)]);
        assert!(turn.over().now_or_never().is_some() && !turn.goes_on().unwrap() && !push(&turn, 3));
        assert!(begin(&all, 1, &held([])).unwrap().is_none(), "sent before, and came after");
        assert!(all.give_up(8, &held([])).is_empty());
        assert!(all.begin(8, 0, &held([]), |_| true).unwrap().is_none());
    }

    #[test]
    fn so_many_are_kept_and_those_that_have_nothing_left_make_room() {
        let all = Subscriptions::default();
        let one = |name: u128| all.begin(name, 0, &held([]), |epoch| epoch.1 == 1);
        let mut turns: Vec<Turn> =
            (0..SUBSCRIPTIONS_MAX as u128).map(|name| one(name).unwrap().unwrap()).collect();
        let refused = one(1 << 64).unwrap_err();
        assert_eq!((refused.kind(), refused.cause()), (Kind::Capacity, "Subscriptions"));
        assert!(push(&turns[0], 1) && push(&turns[1], 2));
        turns.drain(..2);
        turns.push(one(1 << 64).unwrap().expect("the second has nothing left"));
        assert!(one(1 << 65).is_err(), "what the first pushed is held");
        for name in 0..2 * GIVEN_UP_KEPT as u128 {
            all.give_up(name, &held([]));
        }
        assert_eq!(lock(&all.0).given_up.len(), GIVEN_UP_KEPT);
    }
}
