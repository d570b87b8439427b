//! Drives a store's background duties: the store itself starts no thread.
//!
//! Three hands, of a thread each. A sync of a gigabyte takes a second, as a checkpoint of millions of rows does, and what is over is to be
//! made free meanwhile; a checkpoint that fails (the disk is full) is tried again after pauses, and the other duties, which make room, are
//! not. Each hand tells of its own failures alone.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_store::{Error, Store, Timestamp};

/// How often the store is asked at least whether something is due.
const EVERY: Duration = Duration::from_millis(250);
/// And at most, where it says that something soon is.
const SOON: Duration = Duration::from_millis(20);
/// The longest pause between two tries of a checkpoint that fails: each writes what it can before it does. Room that the other duties make is
/// to be used before the log has it.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Three threads: one applies retention and looks after space, as the store says that it is due, the second syncs, the third takes checkpoints.
/// What fails is logged and tried again, a checkpoint after pauses of up to 2 seconds. They end when this is dropped, which waits for
/// what they are doing, or a pause after the store is closed.
///
/// ```
/// use forebay::store::{Options, Store};
/// # let dir = tempfile::tempdir().unwrap();
/// let store = Store::open(dir.path().join("store"), Options::default())?;
/// let duties = forebay::Duties::of(&store)?;
/// drop(duties); // before the store: it holds a handle
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Duties {
    hands: Vec<Hand>,
}

/// One of the threads.
#[derive(Debug)]
struct Hand {
    name: &'static str,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Duties {
    /// Starts the threads.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub fn of(store: &Store) -> std::io::Result<Self> {
        let checkpoint = |store: &Store| {
            store.checkpoint_if_due().map(|done| if done { Came::ToAnEnd(None) } else { Came::TooLate })
        };
        let hands = [
            Hand::of(store, "store-duties", |_| EVERY, |store| store.tend().map(Came::ToAnEnd)),
            Hand::of(store, "store-sync", |_| EVERY, |store| store.sync_if_due().map(Came::ToAnEnd)),
            Hand::of(store, "store-checkpoint", pause, checkpoint),
        ];
        Ok(Duties { hands: hands.into_iter().collect::<std::io::Result<_>>()? })
    }
}

/// What became of a hand's work.
#[derive(Clone, Copy, Debug)]
enum Came {
    /// Nothing is left to do before that moment, or before something happens.
    ToAnEnd(Option<Timestamp>),
    /// Somebody else is at it.
    TooLate,
}

/// How long a hand rests that has nothing to do before then.
fn rest(next: Option<Timestamp>, now: Timestamp) -> Duration {
    next.map_or(EVERY, |next| next.since(now).clamp(SOON, EVERY))
}

/// How long a checkpoint waits for its next look at the store, after so many that failed in a row.
fn pause(failures: u32) -> Duration {
    EVERY.saturating_mul(1 << failures.min(16)).min(PAUSE_MAX)
}

impl Hand {
    /// Works again and again, after a rest of as long as `work` says, or after a pause that the failures in a row decide.
    fn of(
        store: &Store,
        name: &'static str,
        pause: fn(u32) -> Duration,
        work: fn(&Store) -> Result<Came, Error>,
    ) -> std::io::Result<Self> {
        let (stop, stopped) = channel();
        let store = store.clone();
        let work = move || {
            let (mut told, mut failures, mut wait) = (None, 0, pause(0));
            // A store that is closed says so to whoever uses it next.
            while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) && store.closed().is_none() {
                match work(&store) {
                    Err(error) => {
                        failures += 1;
                        tell_failure(name, &error.to_string(), &mut told);
                        wait = pause(failures);
                    }
                    Ok(Came::TooLate) => wait = pause(failures),
                    Ok(Came::ToAnEnd(next)) => {
                        failures = 0;
                        tell_recovery(name, &mut told);
                        wait = rest(next, store.clock().now());
                    }
                }
            }
        };
        let thread = std::thread::Builder::new().name(name.into()).spawn(work)?;
        Ok(Hand { name, stop: Some(stop), thread: Some(thread) })
    }
}

/// Tells what fails once and not four times a second.
fn tell_failure(name: &str, error: &str, told: &mut Option<String>) {
    if told.as_deref() != Some(error) {
        tracing::warn!(name, error, "a background duty of the store failed; it is tried again");
        *told = Some(error.to_owned());
    }
}

/// Tells when it is over.
fn tell_recovery(name: &str, told: &mut Option<String>) {
    if told.take().is_some() {
        tracing::info!(name, "the store's background duties work again");
    }
}

impl Drop for Duties {
    /// All are told before any is waited for.
    fn drop(&mut self) {
        self.hands.iter_mut().for_each(|hand| _ = hand.stop.take());
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        self.stop.take(); // the thread sees that nobody can send any more
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::warn!(name = self.name, "a thread of the store's background duties panicked");
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_that_fails_is_tried_again_ever_later_and_never_much_later() {
        let pauses: Vec<u64> = (0..8).map(|failures| pause(failures).as_millis() as u64).collect();
        assert_eq!(pauses, [250, 500, 1000, 2000, 2000, 2000, 2000, 2000]);
        assert_eq!(pause(u32::MAX), PAUSE_MAX);
    }

    #[test]
    fn a_hand_rests_as_long_as_the_store_says_within_bounds() {
        let now = Timestamp(1_000_000);
        let cases = [
            (None, 250),
            (Some(1_100_000), 100),
            (Some(0), 20),
            (Some(1_000_001), 20),
            (Some(i64::MAX), 250),
        ];
        for (next, milliseconds) in cases {
            assert_eq!(rest(next.map(Timestamp), now), Duration::from_millis(milliseconds), "{next:?}");
        }
    }

    #[test]
    fn a_failure_is_told_once_and_its_end_once() {
        let mut told = None;
        tell_failure("store-checkpoint", "the disk is full", &mut told);
        assert_eq!(told.as_deref(), Some("the disk is full"));
        tell_failure("store-checkpoint", "the disk is gone", &mut told);
        assert_eq!(told.as_deref(), Some("the disk is gone"));
        tell_recovery("store-checkpoint", &mut told);
        assert_eq!(told, None);
    }

    #[test]
    fn a_hand_goes_on_after_a_failure_and_ends_with_its_store() {
        use std::sync::atomic::{AtomicU32, Ordering};
        static TRIES: AtomicU32 = AtomicU32::new(0);
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("store"), forebay_store::Options::default()).unwrap();
        let work: fn(&Store) -> Result<Came, Error> = |store| {
            TRIES.fetch_add(1, Ordering::Relaxed);
            store.table("nowhere").map(|_| Came::TooLate)
        };
        let mut hand = Hand::of(&store, "test", |_| Duration::ZERO, work).unwrap();
        while TRIES.load(Ordering::Relaxed) < 3 {
            std::thread::yield_now();
        }
        store.close("the test is over");
        hand.thread.take().unwrap().join().unwrap();
    }

    #[test]
    fn the_hands_work_until_they_are_dropped_or_the_store_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let options = forebay_store::Options::default().checkpoint_records(1);
        let store = Store::open(dir.path().join("store"), options).unwrap();
        let duties = Duties::of(&store).unwrap();
        store.create_table("solver", forebay_store::Schema::default()).unwrap();
        while !dir.path().join("store/MANIFEST").exists() {
            std::thread::yield_now(); // the hand that takes checkpoints has come to it
        }
        drop(duties);
        Duties::of(&store).unwrap();
    }
}
