//! A lock that every change takes, and holds for a moment.
//!
//! Being put to sleep and woken takes tens of microseconds on a virtual machine, whose idle cores have to be woken too: longer than
//! such a lock is held. So who finds it held looks at it for a while first. One thread at a time does, for where there are more
//! threads than cores the holder needs one to go on; all others sleep. Where there is one core everybody does.
//! `benches/RESULTS.md` says what it gained.

use std::fmt;
#[cfg(not(feature = "shuttle"))]
use std::time::{Duration, Instant};

use super::{Mutex, MutexGuard, Rank};

/// For how long a lock that is held is looked at before its turn is slept for: a little more than going to sleep and being woken
/// took where writers slept for it (90 us), so that a watch in vain costs little more than the sleep that follows it.
#[cfg(not(feature = "shuttle"))]
const WATCH: Duration = Duration::from_micros(120);
/// How often it is looked at between two looks at the time.
#[cfg(not(feature = "shuttle"))]
const LOOKS: usize = 16;

/// One holder at a time, mostly for some tens of microseconds. He may be kept longer now and then, by pages that come from the disk or
/// by a call of the kernel: then a watch was in vain, and who watched sleeps.
pub(crate) struct BusyMutex<T> {
    inner: Mutex<T>,
    #[cfg(not(feature = "shuttle"))]
    watched: super::atomic::AtomicBool,
}

impl<T> BusyMutex<T> {
    /// A lock of that rank.
    pub(crate) const fn ranked(rank: Rank, value: T) -> Self {
        BusyMutex {
            inner: Mutex::ranked(rank, value),
            #[cfg(not(feature = "shuttle"))]
            watched: super::atomic::AtomicBool::new(false),
        }
    }

    /// With models there is nothing to look at: their threads share one of the machine's.
    #[cfg(feature = "shuttle")]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.inner.lock()
    }

    #[cfg(not(feature = "shuttle"))]
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        match self.inner.try_lock() {
            Some(held) => held,
            None => self.watch().unwrap_or_else(|| self.inner.lock()),
        }
    }

    /// Looks until the lock is had, for a while at most, unless somebody does already.
    #[cfg(not(feature = "shuttle"))]
    #[cold]
    fn watch(&self) -> Option<MutexGuard<'_, T>> {
        use super::atomic::Ordering;

        if !has_cores() {
            return None;
        }
        // Nothing is read on the strength of it, and two who watch at once do no harm.
        if self.watched.swap(true, Ordering::Relaxed) {
            return None;
        }
        let begun = Instant::now();
        let had = loop {
            let had = (0..LOOKS).find_map(|_| {
                std::hint::spin_loop();
                if self.inner.is_locked() { None } else { self.inner.try_lock() }
            });
            if had.is_some() || begun.elapsed() >= WATCH {
                break had;
            }
        };
        self.watched.store(false, Ordering::Relaxed);
        had
    }

    #[cfg(test)]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.inner.try_lock()
    }
}

/// Whether the holder can go on while somebody watches.
#[cfg(not(feature = "shuttle"))]
fn has_cores() -> bool {
    static HAS: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *HAS.get_or_init(|| std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1))
}

impl<T: fmt::Debug> fmt::Debug for BusyMutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::sync::mpsc::channel;

    use super::super::atomic::Ordering;
    use super::*;

    #[test]
    fn who_watches_and_who_sleeps_have_it_one_at_a_time() {
        let (counter, threads, rounds) = (BusyMutex::ranked(Rank::State, 0_u64), 8, 2_000);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        let mut count = counter.lock();
                        let before = *count;
                        std::thread::yield_now(); // somebody else may try meanwhile
                        *count = before + 1;
                    }
                });
            }
        });
        assert_eq!(*counter.lock(), threads * rounds);
        assert!(!counter.watched.load(Ordering::Relaxed));
    }

    /// However long it is held: nobody burns a core for it.
    #[test]
    fn who_has_watched_in_vain_sleeps_until_it_is_free() {
        let lock = BusyMutex::ranked(Rank::State, 1);
        assert_eq!(lock.watch().is_some(), has_cores(), "it is free");
        let held = lock.lock();
        assert!(lock.watch().is_none());
        assert!(!lock.watched.load(Ordering::Relaxed), "the next one may watch");
        let (say, heard) = channel();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                say.send(()).unwrap();
                *lock.lock()
            });
            heard.recv().unwrap();
            drop(held);
            assert_eq!(waits.join().unwrap(), 1);
        });
    }

    #[test]
    fn one_watches_at_a_time() {
        let lock = BusyMutex::ranked(Rank::State, ());
        lock.watched.store(true, Ordering::Relaxed);
        assert!(lock.watch().is_none(), "not even where it is free");
        assert!(lock.watched.load(Ordering::Relaxed), "it is the other one's to say when he has done");
        drop(lock.lock());
    }
}
