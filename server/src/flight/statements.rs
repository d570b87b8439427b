//! Prepared statements, by the handles that clients hold, each its caller's alone.
//!
//! Clients go away without a word, so there are never more than so many, and one that is not asked for some time is
//! forgotten. When there are too many, of all callers or of one, one goes of who has most, that which was not asked for longest: its client
//! is told, and prepares it again. So nobody pushes out a statement of who has fewer. What one caller's statements take with their
//! values is bounded alike.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use forebay_query::Prepared;

use crate::access::Caller;
use crate::handle::Handle;

/// The most statements that are kept, and how many of them of one caller.
const STATEMENTS_MAX: usize = 1000;
const OF_CALLER_MAX: usize = STATEMENTS_MAX / 2;
/// What one caller's statements take at most with their values, in bytes.
const BYTES_MAX: usize = 64 << 20;
/// How long one is kept that nobody asks.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(3600);

/// The prepared statements of a server.
#[derive(Debug)]
pub(crate) struct Statements<S = Prepared> {
    inner: Mutex<Inner<S>>,
    /// Makes handles of this server differ from those of an earlier one.
    life: u64,
    most: Most,
}

#[derive(Clone, Copy, Debug)]
struct Most {
    all: usize,
    of_caller: usize,
    bytes: usize,
}

#[derive(Debug)]
struct Inner<S> {
    kept: HashMap<Handle, Kept<S>>,
    next: u64,
}

#[derive(Debug)]
struct Kept<S> {
    statement: S,
    statement_bytes: usize,
    values: Option<RecordBatch>,
    values_bytes: usize,
    asked_at: Instant,
}

impl<S> Kept<S> {
    fn bytes(&self) -> usize {
        self.statement_bytes.saturating_add(self.values_bytes)
    }
}

impl<S> Inner<S> {
    /// How many there are of each caller.
    fn counts(&self) -> HashMap<&Caller, usize> {
        let mut counts = HashMap::new();
        self.kept.keys().for_each(|handle| *counts.entry(handle.owner()).or_default() += 1);
        counts
    }

    /// Forgets what has to go before one more of that caller is kept.
    fn make_room_for(&mut self, owner: &Caller, most: Most) {
        let counts = self.counts();
        let has_many = counts.get(owner).is_some_and(|count| *count >= most.of_caller);
        if !has_many && self.kept.len() < most.all {
            return;
        }
        let may_go = self.kept.iter().filter(|(handle, _)| !has_many || handle.owner() == owner);
        let goes = may_go.min_by_key(|(handle, kept)| {
            (Reverse(counts.get(handle.owner()).copied().unwrap_or_default()), kept.asked_at)
        });
        let goes = goes.map(|(handle, _)| handle.clone());
        drop(counts);
        goes.into_iter().for_each(|handle| _ = self.kept.remove(&handle));
    }

    /// Forgets statements of a caller until those that are left take no more than they may: the longest first, and of those that are as
    /// long the one that was not asked for longest. The one that is named stays.
    fn bound_bytes(&mut self, stays: &Handle, bytes_max: usize) {
        let is_its = |handle: &Handle| handle.owner() == stays.owner();
        let its = self.kept.iter().filter(|(handle, _)| is_its(handle)).map(|(_, kept)| kept.bytes());
        let mut all = its.fold(0, usize::saturating_add);
        while all > bytes_max {
            let others = self.kept.iter().filter(|(handle, _)| is_its(handle) && *handle != stays);
            let longest = others.min_by_key(|(_, kept)| (Reverse(kept.bytes()), kept.asked_at));
            let longest = longest.map(|(handle, _)| handle.clone());
            let Some(kept) = longest.and_then(|longest| self.kept.remove(&longest)) else { return };
            all -= kept.bytes();
        }
    }
}

impl<S: Clone> Statements<S> {
    pub(crate) fn new() -> Self {
        Self::of(Most { all: STATEMENTS_MAX, of_caller: OF_CALLER_MAX, bytes: BYTES_MAX })
    }

    fn of(most: Most) -> Self {
        let inner = Inner { kept: HashMap::new(), next: 0 };
        Statements { inner: Mutex::new(inner), life: RandomState::new().hash_one(0), most }
    }

    fn inner(&self) -> MutexGuard<'_, Inner<S>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner) // a map is a map at every point
    }

    /// Keeps a statement of that caller, which takes so many bytes, and gives the handle to ask for it with.
    pub(crate) fn keep(&self, statement: S, statement_bytes: usize, owner: &Caller, now: Instant) -> Handle {
        let mut inner = self.inner();
        inner.kept.retain(|_, kept| now.saturating_duration_since(kept.asked_at) < IDLE_MAX);
        inner.make_room_for(owner, self.most);
        inner.next += 1;
        let handle = Handle::new(&[self.life.to_le_bytes(), inner.next.to_le_bytes()].concat(), owner);
        let kept = Kept { statement, statement_bytes, values: None, values_bytes: 0, asked_at: now };
        inner.kept.insert(handle.clone(), kept);
        inner.bound_bytes(&handle, self.most.bytes);
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
        kept.values_bytes = values.get_array_memory_size() + values.schema_ref().fields().size();
        (kept.values, kept.asked_at) = (Some(values), now);
        inner.bound_bytes(handle, self.most.bytes);
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

    /// So many of all callers.
    fn statements(all: usize) -> Statements<u64> {
        Statements::of(Most { all, of_caller: all, bytes: 1 << 20 })
    }

    fn callers<const N: usize>(names: [&str; N]) -> [Caller; N] {
        let mut access = Access::default();
        names.iter().for_each(|name| access.add(Grant::new(name, Token::new(name).unwrap())));
        names.map(|name| access.caller(&format!("Bearer {name}")).unwrap())
    }

    #[test]
    fn a_caller_pushes_out_its_own_statements_and_those_of_who_has_more_and_no_others() {
        let statements = Statements::of(Most { all: 10, of_caller: 6, bytes: 1 << 20 });
        let ([greedy, other, late], start) = (callers(["greedy", "other", "late"]), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let there = |handle: &Handle| statements.inner().kept.contains_key(handle);
        let first: Vec<Handle> = (0..3).map(|n| statements.keep(n, 1, &other, at(n))).collect();
        let many: Vec<Handle> = (10..30).map(|n| statements.keep(n, 1, &greedy, at(n))).collect();
        assert!(first.iter().all(there), "the oldest of all, of who has few");
        assert_eq!(many.iter().map(there).collect::<Vec<_>>(), [[false; 14].as_slice(), &[true; 6]].concat());
        let of_late: Vec<Handle> = (30..33).map(|n| statements.keep(n, 1, &late, at(n))).collect();
        assert!(first.iter().chain(&of_late).all(there));
        assert_eq!(many.iter().filter(|handle| there(handle)).count(), 4, "it had most");
        assert!(there(&many[19]) && !there(&many[15]));
    }

    #[test]
    fn the_values_of_a_caller_are_bounded_and_those_of_others_stay() {
        let (statements, start) = (statements(10), Instant::now());
        let ([greedy, other], numbers) = (callers(["greedy", "other"]), vec![7_i64; 50_000]);
        let values = || {
            let numbers = std::sync::Arc::new(arrow_array::Int64Array::from(numbers.clone()));
            RecordBatch::try_from_iter([("a", numbers as _)]).unwrap()
        };
        let bound = |owner: &Caller, n: u64| {
            let now = start + Duration::from_secs(n);
            let handle = statements.keep(n, 1, owner, now);
            assert!(statements.bind(&handle, values(), now));
            handle
        };
        let has_values =
            |handle: &Handle| statements.get(handle, start).is_some_and(|(_, values)| values.is_some());
        let of_other = bound(&other, 0);
        let all: Vec<Handle> = (1..5).map(|n| bound(&greedy, n)).collect();
        assert_eq!(all.iter().map(has_values).collect::<Vec<_>>(), [false, false, true, true]);
        assert!(has_values(&of_other));
    }

    #[test]
    fn statements_without_values_are_bounded_in_bytes_too_and_the_newest_stays_however_long_it_is() {
        let (statements, start) = (statements(100), Instant::now());
        let [greedy, other] = callers(["greedy", "other"]);
        let keep =
            |n: u64, bytes, owner: &Caller| statements.keep(n, bytes, owner, start + Duration::from_secs(n));
        let there = |handle: &Handle| statements.inner().kept.contains_key(handle);
        let (of_other, short) = (keep(0, 1 << 20, &other), keep(0, 100, &greedy));
        let all: Vec<Handle> = (1..5).map(|n| keep(n, 400 << 10, &greedy)).collect();
        assert_eq!(all.iter().map(there).collect::<Vec<_>>(), [false, false, true, true]);
        assert!(there(&short), "it takes next to nothing");
        let long = keep(5, 2 << 20, &greedy);
        let kept: Vec<&Handle> =
            all.iter().chain([&short, &long, &of_other]).filter(|handle| there(handle)).collect();
        assert_eq!(kept, [&long, &of_other]);
    }

    #[test]
    fn statements_are_bounded_in_number_and_in_time() {
        let (statements, start) = (statements(3), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let keep = |n, now| statements.keep(n, 1, &Caller::trusted(), now);
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
        let (statements, now) = (statements(3), Instant::now());
        let [owner, stranger] = callers(["one", "other"]);
        let handle = statements.keep(1, 1, &owner, now);
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
        let other_life = self::statements(3);
        assert_ne!(other_life.keep(1, 1, &owner, now), handle);
    }
}
