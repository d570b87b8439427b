//! What is counted of gRPC's clients and their calls, for those who watch.
//!
//! One lock, held for a few instructions.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use forebay_client::wire::failure_of;
use tonic::{Code, Status};

use super::sessions::{Session, SessionId};

/// The upper bounds of what a call's time is counted under, in microseconds.
pub(crate) const BOUNDS_US: [u64; 11] =
    [100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000];

/// The calls of the protocol, and a word for all others.
const METHODS: [&str; 49] = [
    "Open",
    "Lend",
    "Close",
    "Declare",
    "Describe",
    "Write",
    "Change",
    "Grow",
    "Delete",
    "Find",
    "ReadCell",
    "ReadCells",
    "Query",
    "TakeSnapshot",
    "HoldSnapshot",
    "ReadSnapshot",
    "SnapshotVersions",
    "Claim",
    "Subscribe",
    "Columns",
    "Settle",
    "BeginStep",
    "JoinStep",
    "AskStep",
    "EndStep",
    "Rewind",
    "PutObject",
    "GetObject",
    "Maintain",
    "BeginObject",
    "FillObject",
    "CommitObjects",
    "AbortObject",
    "HoldObjects",
    "ReadObject",
    "VerifyObject",
    "ReleaseObject",
    "ListObjects",
    "Overview",
    "Evict",
    "Peek",
    "Budgets",
    "Retention",
    "Verify",
    "Compact",
    "Backup",
    "MoveObject",
    "ShowRows",
    "Replay",
];
pub(super) const UNKNOWN: &str = "unknown";

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Its client said so.
    Closed,
    /// Its client was gone for longer than the grace.
    Gone,
    /// The server ended.
    Stopped,
}

/// Everything that is counted. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally(Arc<Inner>);

type Open = Mutex<HashMap<SessionId, Arc<Session>>>;

#[derive(Debug, Default)]
struct Inner {
    counts: Mutex<Counts>,
    /// Weak: whoever watches keeps no store open.
    sessions: Mutex<Weak<Open>>,
}

/// Counts at one instant.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    /// By method and outcome: `ok`, the kind of a failure, or `dropped` where the client went away.
    pub(crate) calls: BTreeMap<(&'static str, &'static str), u64>,
    /// By method.
    pub(crate) times: BTreeMap<&'static str, Histogram>,
    /// By precise cause.
    pub(crate) failures: BTreeMap<String, u64>,
    pub(crate) sessions_begun: u64,
    pub(crate) sessions_resumed: u64,
    /// By why.
    pub(crate) sessions_ended: BTreeMap<&'static str, u64>,
    /// Answers that were ended because their reader was too slow.
    pub(crate) answers_abandoned: u64,
}

/// What is there at one instant.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Present {
    pub(crate) sessions: u64,
    pub(crate) claims: u64,
}

/// How long calls took.
#[derive(Clone, Debug, Default)]
pub(crate) struct Histogram {
    /// How many took no longer than each bound; one longer than the bounds, for those that took more than all.
    pub(crate) calls: [u64; BOUNDS_US.len() + 1],
    pub(crate) total: Duration,
}

impl Histogram {
    fn add(&mut self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.calls[BOUNDS_US.partition_point(|bound| *bound < us)] += 1;
        self.total += time;
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner) // counts stay counts
}

/// The method that a path names.
pub(super) fn method_of(path: &str) -> &'static str {
    let name = path.rsplit('/').next().unwrap_or_default();
    METHODS.into_iter().find(|method| *method == name).unwrap_or(UNKNOWN)
}

impl Tally {
    pub(crate) fn counts(&self) -> Counts {
        lock(&self.0.counts).clone()
    }

    pub(crate) fn present(&self) -> Present {
        let open = lock(&self.0.sessions).upgrade();
        let sessions: Vec<Arc<Session>> =
            open.iter().flat_map(|open| lock(open).values().cloned().collect::<Vec<_>>()).collect();
        Present {
            sessions: sessions.len() as u64,
            claims: sessions.iter().map(|session| session.holder.claims() as u64).sum(),
        }
    }

    /// Looks at these sessions from now on.
    pub(super) fn watch(&self, sessions: &Arc<Open>) {
        *lock(&self.0.sessions) = Arc::downgrade(sessions);
    }

    pub(super) fn session_begun(&self) {
        lock(&self.0.counts).sessions_begun += 1;
    }

    pub(super) fn session_resumed(&self) {
        lock(&self.0.counts).sessions_resumed += 1;
    }

    pub(super) fn sessions_ended(&self, why: Ended, sessions: usize) {
        let why = match why {
            Ended::Closed => "closed",
            Ended::Gone => "gone",
            Ended::Stopped => "stopped",
        };
        *lock(&self.0.counts).sessions_ended.entry(why).or_default() += sessions as u64;
    }

    pub(super) fn answer_abandoned(&self) {
        lock(&self.0.counts).answers_abandoned += 1;
    }

    /// A call begins.
    pub(super) fn call(&self, method: &'static str) -> Call {
        Call { tally: self.clone(), method, begun: Instant::now(), ended: false }
    }
}

/// A call under way. One that is dropped before it ended was given up by its client.
#[derive(Debug)]
pub(super) struct Call {
    tally: Tally,
    method: &'static str,
    begun: Instant,
    ended: bool,
}

impl Call {
    /// It was answered, with that failure where it failed. Gives the cause.
    pub(super) fn ended(mut self, failure: Option<&Status>) -> Option<String> {
        self.ended = true;
        let (outcome, cause) = match failure {
            None => ("ok", None),
            Some(status) => match failure_of(status) {
                Some(error) => (error.kind().as_str(), Some(error.cause().to_owned())),
                None => ("input", Some(cause_of(status.code()).to_owned())),
            },
        };
        self.count(outcome, cause.as_deref());
        cause
    }

    fn count(&self, outcome: &'static str, cause: Option<&str>) {
        let mut counts = lock(&self.tally.0.counts);
        *counts.calls.entry((self.method, outcome)).or_default() += 1;
        counts.times.entry(self.method).or_default().add(self.begun.elapsed());
        if let Some(cause) = cause {
            *counts.failures.entry(cause.to_owned()).or_default() += 1;
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.ended {
            self.count("dropped", None);
        }
    }
}

/// The cause of what was refused before the store heard of it.
fn cause_of(code: Code) -> &'static str {
    match code {
        Code::OutOfRange | Code::ResourceExhausted => "TooLarge",
        Code::DeadlineExceeded | Code::Cancelled => "Deadline",
        _ => "Protocol",
    }
}

#[cfg(test)]
mod tests {
    use forebay_client::Error;
    use forebay_client::wire::from_error;
    use forebay_store::Kind;

    use super::*;

    #[test]
    fn every_call_of_the_protocol_is_counted_by_its_name() {
        let protocol = concat!(
            include_str!("../../../client/proto/forebay/v1/store.proto"),
            include_str!("../../../client/proto/forebay/v1/objects.proto"),
            include_str!("../../../client/proto/forebay/v1/admin.proto"),
            include_str!("../../../client/proto/forebay/v1/history.proto")
        );
        let calls = protocol.lines().filter_map(|line| line.trim().strip_prefix("rpc ")?.split('(').next());
        let mut calls: Vec<&str> = calls.collect();
        let mut counted = METHODS.to_vec();
        calls.sort_unstable();
        calls.dedup(); // a write is a write, in one message or in frames
        counted.sort_unstable();
        assert_eq!(counted, calls);
    }

    #[test]
    fn calls_are_counted_by_what_became_of_them() {
        let tally = Tally::default();
        assert_eq!(tally.call(method_of("/forebay.v1.Store/Write")).ended(None), None);
        let forbidden = from_error(&Error::new(Kind::Input, "Forbidden", "no"));
        assert_eq!(tally.call("Write").ended(Some(&forbidden)).as_deref(), Some("Forbidden"));
        assert_eq!(
            tally.call("Write").ended(Some(&Status::out_of_range("64 MiB"))).as_deref(),
            Some("TooLarge")
        );
        drop(tally.call("Claim"));
        drop(tally.call(method_of("/forebay.v1.Store/Nonsense-of-a-peer")));
        let counts = tally.counts();
        let expected = [
            (("Claim", "dropped"), 1),
            (("Write", "input"), 2),
            (("Write", "ok"), 1),
            (("unknown", "dropped"), 1),
        ];
        assert_eq!(counts.calls, BTreeMap::from(expected));
        assert_eq!(
            counts.failures,
            BTreeMap::from([("Forbidden".to_owned(), 1), ("TooLarge".to_owned(), 1)])
        );
        assert_eq!(counts.times["Write"].calls.iter().sum::<u64>(), 3);
    }

    #[test]
    fn a_time_is_counted_under_the_first_bound_that_it_keeps() {
        let mut times = Histogram::default();
        for (us, at) in [(0, 0), (100, 0), (101, 1), (10_000_000, 10), (10_000_001, 11)] {
            let before = times.calls[at];
            times.add(Duration::from_micros(us));
            assert_eq!(times.calls[at], before + 1, "{us} us");
        }
        assert_eq!(times.total, Duration::from_micros(20_000_202));
    }
}
