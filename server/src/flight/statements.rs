//! Prepared statements, by the handles that clients hold, each its caller's alone.
//!
//! Clients go away without a word, so there are never more than so many, and one that is not asked for some time is
//! forgotten. When there are too many the one that was not asked for longest goes first: its client is told, and prepares
//! it again.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use forebay_query::Prepared;

use crate::access::Caller;
use crate::handle::Handle;

/// The most statements that are kept.
const STATEMENTS_MAX: usize = 1000;
/// How long one is kept that nobody asks.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(3600);

/// The prepared statements of a server.
#[derive(Debug)]
pub(crate) struct Statements<S = Prepared> {
    inner: Mutex<Inner<S>>,
    /// Makes handles of this server differ from those of an earlier one.
    life: u64,
    statements_max: usize,
}

#[derive(Debug)]
struct Inner<S> {
    kept: HashMap<Handle, Kept<S>>,
    next: u64,
}

#[derive(Debug)]
struct Kept<S> {
    statement: S,
    values: Option<RecordBatch>,
    asked_at: Instant,
}

impl<S: Clone> Statements<S> {
    pub(crate) fn new() -> Self {
        Self::of(STATEMENTS_MAX)
    }

    fn of(statements_max: usize) -> Self {
        let inner = Inner { kept: HashMap::new(), next: 0 };
        Statements { inner: Mutex::new(inner), life: RandomState::new().hash_one(0), statements_max }
    }

    fn inner(&self) -> MutexGuard<'_, Inner<S>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner) // a map is a map at every point
    }

    /// Keeps a statement of that caller, and gives the handle to ask for it with.
    pub(crate) fn keep(&self, statement: S, owner: &Caller, now: Instant) -> Handle {
        let mut inner = self.inner();
        inner.kept.retain(|_, kept| now.saturating_duration_since(kept.asked_at) < IDLE_MAX);
        if inner.kept.len() >= self.statements_max {
            let oldest = inner.kept.iter().min_by_key(|(_, kept)| kept.asked_at);
            if let Some(handle) = oldest.map(|(handle, _)| handle.clone()) {
                inner.kept.remove(&handle);
            }
        }
        inner.next += 1;
        let handle = Handle::new(&[self.life.to_le_bytes(), inner.next.to_le_bytes()].concat(), owner);
        inner.kept.insert(handle.clone(), Kept { statement, values: None, asked_at: now });
        handle
    }

    /// The statement of a handle with the values that were given last.
    pub(crate) fn get(&self, handle: &Handle, now: Instant) -> Option<(S, Option<RecordBatch>)> {
        let mut inner = self.inner();
        let kept = inner.kept.get_mut(handle)?;
        kept.asked_at = now;
        Some((kept.statement.clone(), kept.values.clone()))
    }

    /// Gives the statement of a handle its values. Whether there is one.
    pub(crate) fn bind(&self, handle: &Handle, values: RecordBatch, now: Instant) -> bool {
        let mut inner = self.inner();
        let Some(kept) = inner.kept.get_mut(handle) else { return false };
        (kept.values, kept.asked_at) = (Some(values), now);
        true
    }

    /// Forgets a statement.
    pub(crate) fn close(&self, handle: &Handle) {
        self.inner().kept.remove(handle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Access, Grant};
    use crate::token::Token;

    #[test]
    fn statements_are_bounded_in_number_and_in_time() {
        let (statements, start) = (Statements::of(3), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let keep = |n, now| statements.keep(n, &Caller::trusted(), now);
        let handles: Vec<Handle> = (0..3).map(|n| keep(n, at(n))).collect();
        let there =
            |handle: usize, now| statements.get(&handles[handle], now).map(|(statement, _)| statement);
        assert_eq!(there(0, at(10)), Some(0));
        let fourth = keep(3, at(11));
        assert_eq!((there(0, at(12)), there(1, at(12)), there(2, at(12))), (Some(0), None, Some(2)));
        keep(4, at(12 + 3600));
        assert_eq!((there(0, at(3612)), there(2, at(3612))), (None, None), "nobody asked for an hour");
        assert!(statements.get(&fourth, at(3612)).is_none());
    }

    #[test]
    fn a_handle_of_nobody_finds_nothing() {
        let (statements, now) = (Statements::of(3), Instant::now());
        let mut access = Access::default();
        ["one", "other"].into_iter().for_each(|name| access.add(Grant::new(name, Token::new(name).unwrap())));
        let [owner, stranger] = ["Bearer one", "Bearer other"].map(|header| access.caller(header).unwrap());
        let handle = statements.keep(1, &owner, now);
        let made_up = [&b""[..], b"x", &[0; 16], &[255; 100_000], &handle.bytes()[..8]];
        let made_up = made_up.map(|bytes| Handle::new(bytes, &owner)).into_iter();
        for foreign in made_up.chain([Handle::new(handle.bytes(), &stranger)]) {
            assert!(statements.get(&foreign, now).is_none());
            let values = RecordBatch::new_empty(arrow_schema::Schema::empty().into());
            assert!(!statements.bind(&foreign, values, now));
            statements.close(&foreign);
        }
        assert!(
            statements.get(&handle, now).is_some_and(|(_, values)| values.is_none()),
            "its owner's as it was"
        );
        statements.close(&handle);
        assert!(statements.get(&handle, now).is_none());
        let other_life = Statements::of(3);
        assert_ne!(other_life.keep(1, &owner, now), handle);
    }
}
