//! The turns of those who may wait for room, each of which keeps a thread meanwhile.
//!
//! Who writes waits for whoever takes rows, and that may be one who ends his claim with changes. So writes never have all turns:
//! some are left to the ends of claims. And no session has all: who is held back holds up himself before he holds up others.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::BLOCKING_MAX;

/// The most threads that writers may take, and those of them who make changes otherwise than by ending a claim.
const ALL_MAX: usize = BLOCKING_MAX / 3;
const WRITES_MAX: usize = ALL_MAX * 3 / 4;
/// The same of one session.
const OF_SESSION_MAX: usize = ALL_MAX * 3 / 4;
const WRITES_OF_SESSION_MAX: usize = ALL_MAX / 2;

/// What somebody wants a turn for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turning {
    Write,
    EndOfClaim,
}

/// Turns of all sessions, or of one. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Turns {
    all: Arc<Semaphore>,
    writes: Arc<Semaphore>,
}

/// A turn, until it is dropped: that for a write, and that of all.
#[derive(Debug)]
pub(super) struct Turn {
    _held: (Option<OwnedSemaphorePermit>, Option<OwnedSemaphorePermit>),
}

impl Turns {
    pub(super) fn of_all() -> Self {
        Turns::new(ALL_MAX, WRITES_MAX)
    }

    pub(super) fn of_session() -> Self {
        Turns::new(OF_SESSION_MAX, WRITES_OF_SESSION_MAX)
    }

    fn new(all: usize, writes: usize) -> Self {
        Turns { all: Arc::new(Semaphore::new(all)), writes: Arc::new(Semaphore::new(writes)) }
    }

    /// The next turn. A session's own is taken before one of all.
    pub(super) async fn take(&self, what: Turning) -> Turn {
        let one_of = |turns: &Arc<Semaphore>| turns.clone().acquire_owned(); // never closed
        let write = match what {
            Turning::Write => one_of(&self.writes).await.ok(),
            Turning::EndOfClaim => None,
        };
        Turn { _held: (write, one_of(&self.all).await.ok()) }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    /// A turn, if there is one now.
    fn now(own: &Turns, all: &Turns, what: Turning) -> Option<(Turn, Turn)> {
        async { (own.take(what).await, all.take(what).await) }.now_or_never()
    }

    /// All turns that a session can have.
    fn as_many_as_there_are(own: &Turns, all: &Turns, what: Turning) -> Vec<(Turn, Turn)> {
        std::iter::from_fn(|| now(own, all, what)).collect()
    }

    #[test]
    fn writes_that_wait_leave_turns_to_the_ends_of_claims() {
        let (all, sessions) = (Turns::of_all(), [(); 4].map(|()| Turns::of_session()));
        let held: Vec<_> =
            sessions.iter().map(|own| as_many_as_there_are(own, &all, Turning::Write)).collect();
        assert_eq!(held.iter().map(Vec::len).sum::<usize>(), WRITES_MAX);
        for own in &sessions {
            assert!(now(own, &all, Turning::EndOfClaim).is_some(), "also of a session that waits itself");
        }
        drop(held);
        assert_eq!(all.all.available_permits(), ALL_MAX, "all came back");
    }

    #[test]
    fn no_session_has_all_turns() {
        for what in [Turning::Write, Turning::EndOfClaim] {
            let (all, [one, other]) = (Turns::of_all(), [(); 2].map(|()| Turns::of_session()));
            let mut held = as_many_as_there_are(&one, &all, Turning::Write);
            held.extend(as_many_as_there_are(&one, &all, Turning::EndOfClaim));
            assert_eq!(held.len(), OF_SESSION_MAX);
            assert!(now(&other, &all, what).is_some(), "{what:?}");
        }
    }
}
