//! The lock and the condition of the standard library, with a place among the other locks. What a panicking holder leaves
//! is not poisoned.

use std::sync::PoisonError;
use std::time::Duration;

use super::held::{Guarded, Order};
use super::rank::Rank;

#[cfg(feature = "shuttle")]
use shuttle::sync as inner;
#[cfg(not(feature = "shuttle"))]
use std::sync as inner;

/// One holder at a time.
pub(crate) struct Mutex<T> {
    order: Order,
    inner: inner::Mutex<T>,
}

/// Whoever has it holds the lock.
pub(crate) type MutexGuard<'a, T> = Guarded<inner::MutexGuard<'a, T>>;

/// What threads wait for that hold a lock.
#[derive(Debug, Default)]
pub(crate) struct Condvar(inner::Condvar);

impl<T> Mutex<T> {
    /// A lock of that rank.
    pub(crate) const fn ranked(rank: Rank, value: T) -> Self {
        Mutex { order: Order::of(rank), inner: inner::Mutex::new(value) }
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        let held = self.order.take();
        Guarded { inner: self.inner.lock().unwrap_or_else(PoisonError::into_inner), held }
    }
}

impl<T: Default> Default for Mutex<T> {
    /// A leaf: nothing is taken with it held.
    fn default() -> Self {
        Mutex::ranked(Rank::Leaf, T::default())
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

impl Condvar {
    pub(crate) fn new() -> Self {
        Condvar::default()
    }

    /// Gives the lock back until it is notified, and takes it again.
    #[inline]
    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let Guarded { inner, held } = guard;
        let held = held.again(); // looked at before the wait: a thread that sleeps takes nothing else
        Guarded { inner: self.0.wait(inner).unwrap_or_else(PoisonError::into_inner), held }
    }

    /// As [`wait`](Self::wait), for so long at most.
    #[inline]
    pub(crate) fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> MutexGuard<'a, T> {
        let Guarded { inner, held } = guard;
        let held = held.again();
        let (inner, _) = self.0.wait_timeout(inner, timeout).unwrap_or_else(PoisonError::into_inner);
        Guarded { inner, held }
    }

    #[inline]
    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    #[inline]
    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}
