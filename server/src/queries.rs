//! Which queries were asked, by whichever way: counted for those who watch, and found again by those who end one.
//!
//! One lock, held for a few instructions; a [`Query`] takes itself off when it is dropped.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_query::{QueryThreads, Session};
use tokio::sync::Notify;

use crate::handle::Handle;

/// The ways by which queries come.
pub(crate) const WAYS: [&str; 3] = ["flight", "grpc", "http"];

/// All queries of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queries(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    asked: BTreeMap<&'static str, u64>,
    failed: BTreeMap<(&'static str, &'static str), u64>,
    running: HashMap<u64, Running>,
    next: u64,
}

#[derive(Debug)]
struct Running {
    way: &'static str,
    handle: Option<Handle>,
    end: Arc<Notify>,
}

/// What queries are answered with.
#[derive(Clone, Debug)]
pub(crate) struct Answering {
    pub(crate) session: Session,
    pub(crate) threads: Arc<QueryThreads>,
    pub(crate) queries: Queries,
}

/// What is counted, at one instant.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) asked: BTreeMap<&'static str, u64>,
    pub(crate) failed: BTreeMap<(&'static str, &'static str), u64>,
    pub(crate) running: BTreeMap<&'static str, u64>,
}

impl Queries {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner) // counts stay counts
    }

    /// A query begins. `handle` is the name by which a client may end it; none for a query that nobody can name.
    pub(crate) fn begin(&self, way: &'static str, handle: Option<Handle>) -> Query {
        let end = Arc::new(Notify::new());
        let mut inner = self.inner();
        *inner.asked.entry(way).or_default() += 1;
        inner.next += 1;
        let number = inner.next;
        inner.running.insert(number, Running { way, handle, end: end.clone() });
        drop(inner);
        Query { queries: self.clone(), number, way, end }
    }

    /// Ends all queries of that handle. Whether there were any.
    pub(crate) fn end(&self, handle: &Handle) -> bool {
        let inner = self.inner();
        let named = inner.running.values().filter(|running| running.handle.as_ref() == Some(handle));
        named.map(|running| running.end.notify_one()).count() > 0
    }

    pub(crate) fn counts(&self) -> Counts {
        let inner = self.inner();
        let mut running: BTreeMap<&'static str, u64> = WAYS.into_iter().map(|way| (way, 0)).collect();
        for query in inner.running.values() {
            *running.entry(query.way).or_default() += 1;
        }
        Counts { asked: inner.asked.clone(), failed: inner.failed.clone(), running }
    }
}

/// A query that runs, until it is dropped.
#[derive(Debug)]
pub(crate) struct Query {
    queries: Queries,
    number: u64,
    way: &'static str,
    end: Arc<Notify>,
}

impl Query {
    /// It failed, for that kind of reason.
    pub(crate) fn failed(&self, kind: &'static str) {
        *self.queries.inner().failed.entry((self.way, kind)).or_default() += 1;
    }

    /// Is told when somebody ends the query.
    pub(crate) fn ended(&self) -> Arc<Notify> {
        self.end.clone()
    }
}

impl Drop for Query {
    fn drop(&mut self) {
        self.queries.inner().running.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Caller;

    #[test]
    fn a_query_counts_from_its_begin_to_its_drop() {
        let queries = Queries::default();
        let handle = |bytes: &[u8]| Handle::new(bytes, &Caller::trusted());
        let (first, second) = (queries.begin("http", None), queries.begin("flight", Some(handle(b"h"))));
        first.failed("input");
        assert_eq!(queries.counts().running, BTreeMap::from([("flight", 1), ("grpc", 0), ("http", 1)]));
        assert!(queries.end(&handle(b"h")) && !queries.end(&handle(b"")) && !queries.end(&handle(b"other")));
        drop((first, second));
        let counts = queries.counts();
        assert_eq!(counts.running, BTreeMap::from([("flight", 0), ("grpc", 0), ("http", 0)]));
        assert_eq!(counts.asked, BTreeMap::from([("flight", 1), ("http", 1)]));
        assert_eq!(counts.failed, BTreeMap::from([(("http", "input"), 1)]));
        assert!(!queries.end(&handle(b"h")), "it runs no more");
    }
}
