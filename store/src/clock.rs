//! The clock seam: what time it is, and how a thread waits.
//!
//! Nothing in the engine asks the operating system for the time of day. A store built with [`SimulatedClock`] lives in a
//! time that only moves when told to (or when somebody waits), so every deadline can be tested without sleeping.

use std::fmt;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::sync::EventListener;
use crate::sync::atomic::{AtomicI64, Ordering};

/// A moment: microseconds since the Unix epoch, UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// This moment and `duration` more.
    pub fn after(self, duration: Duration) -> Self {
        Timestamp(self.0.saturating_add(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }

    /// How long after `earlier` this moment is; zero when it is not after it.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl Timestamp {
    /// How long before another moment this was, as a message shows it.
    pub(crate) fn shown_before(self, now: Timestamp) -> String {
        format!("{:.1} s", now.since(self).as_secs_f64())
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06} s", self.0.div_euclid(1_000_000), self.0.rem_euclid(1_000_000))
    }
}

/// Tells the time and waits.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The present moment.
    fn now(&self) -> Timestamp;

    /// Waits until `listener` is notified or, when given, `deadline` has come. True when notified.
    fn wait(&self, listener: EventListener, deadline: Option<Timestamp>) -> bool;
}

/// The machine's clock, which never goes back within a process: where an operator or a time server sets the system's time back, it
/// goes on from where it was, so that no wait, lease or interval lasts longer for that. Forward it follows, into an error as well. What
/// it is ahead by it stays ahead by until the process ends; the next one begins at the system's time.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

/// The time of this process.
static TIME: OnwardTime = OnwardTime(AtomicI64::new(i64::MIN));

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        static BEGUN: OnceLock<Instant> = OnceLock::new();
        let begun = *BEGUN.get_or_init(Instant::now);
        // The system's time first: who is interrupted in between finds it behind, which the next one puts right.
        let system = Timestamp(0).after(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        TIME.at(begun.elapsed(), system)
    }

    fn wait(&self, listener: EventListener, deadline: Option<Timestamp>) -> bool {
        match deadline {
            None => {
                listener.wait();
                true
            }
            Some(deadline) => listener.wait_deadline(Instant::now() + deadline.since(self.now())).is_some(),
        }
    }
}

/// Goes with the machine's steady clock, and follows the system's time forward: what the one is ahead of the other by, in
/// microseconds, grows and never shrinks.
#[derive(Debug)]
struct OnwardTime(AtomicI64);

impl OnwardTime {
    fn at(&self, steady: Duration, system: Timestamp) -> Timestamp {
        let ahead = system.0.saturating_sub(Timestamp(0).after(steady).0);
        let known = self.0.load(Ordering::Relaxed);
        // Written where it grows alone: everybody reads it all the time.
        let known = if ahead > known { self.0.fetch_max(ahead, Ordering::Relaxed).max(ahead) } else { known };
        Timestamp(known).after(steady)
    }
}

/// A clock that moves only when [`advance`](SimulatedClock::advance)d or [`set`](SimulatedClock::set), or when a caller waits: a wait
/// that nobody ends takes no real time and moves the clock to its deadline.
#[derive(Debug)]
pub struct SimulatedClock(AtomicI64);

impl SimulatedClock {
    /// A clock that stands at `start`.
    pub fn new(start: Timestamp) -> Self {
        SimulatedClock(AtomicI64::new(start.0))
    }

    /// Moves the clock forward.
    pub fn advance(&self, duration: Duration) {
        self.0.store(self.now().after(duration).0, Ordering::SeqCst);
    }

    /// Sets the clock, also back, as an operator or a time server does with the system's.
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.0, Ordering::SeqCst);
    }
}

impl Clock for SimulatedClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }

    fn wait(&self, listener: EventListener, deadline: Option<Timestamp>) -> bool {
        let Some(deadline) = deadline else {
            listener.wait();
            return true;
        };
        if listener.wait_timeout(Duration::ZERO).is_some() {
            return true;
        }
        self.0.fetch_max(deadline.0, Ordering::SeqCst);
        false
    }
}

#[cfg(test)]
mod tests {
    use crate::sync::Event;

    use super::*;

    #[test]
    fn a_simulated_wait_moves_to_its_deadline_at_once() {
        let clock = SimulatedClock::new(Timestamp(5));
        let event = Event::new();
        let deadline = clock.now().after(Duration::from_secs(170));
        assert!(!clock.wait(event.listen(), Some(deadline)));
        assert_eq!(clock.now(), deadline);
    }

    #[test]
    fn time_goes_on_where_the_systems_is_set_back_and_follows_where_it_is_set_forward() {
        let (time, hour) = (OnwardTime(AtomicI64::new(i64::MIN)), 3_600_000_000);
        let at = |steady_us: u64, system: i64| time.at(Duration::from_micros(steady_us), Timestamp(system)).0;
        let start = 500 * hour;
        assert_eq!(at(0, start), start);
        assert_eq!(at(1_000_000, start + 1_000_000), start + 1_000_000);
        assert_eq!(at(2_000_000, start + 1_999_500), start + 2_000_000, "read half a millisecond apart");
        assert_eq!(at(3_000_000, start - 2 * hour), start + 3_000_000, "set back");
        assert_eq!(at(4_000_000, start + hour), start + hour, "set forward");
        assert_eq!(at(5_000_000, start), start + hour + 1_000_000, "and back again");
    }

    #[test]
    fn a_notified_wait_leaves_the_simulated_clock_alone() {
        let clock = SimulatedClock::new(Timestamp(5));
        let event = Event::new();
        let listener = event.listen();
        event.notify(1);
        assert!(clock.wait(listener, Some(Timestamp(1_000))));
        assert_eq!(clock.now(), Timestamp(5));
    }
}
