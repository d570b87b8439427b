//! Locks that know their place among the others.

use std::fmt;

use super::held::{Guarded, Order};
use super::rank::Rank;

#[cfg(feature = "shuttle")]
use super::lock as inner;
#[cfg(not(feature = "shuttle"))]
use parking_lot as inner;

/// One holder at a time.
pub(crate) struct Mutex<T> {
    order: Order,
    inner: inner::Mutex<T>,
}

/// Whoever has it holds the lock.
pub(crate) type MutexGuard<'a, T> = Guarded<inner::MutexGuard<'a, T>>;

impl<T> Mutex<T> {
    /// A leaf: nothing is taken with it held.
    pub(crate) const fn new(value: T) -> Self {
        Mutex::ranked(Rank::Leaf, value)
    }

    /// A lock of that rank.
    pub(crate) const fn ranked(rank: Rank, value: T) -> Self {
        Mutex { order: Order::of(rank), inner: inner::Mutex::new(value) }
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        let held = self.order.take();
        Guarded { inner: self.inner.lock(), held }
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let inner = self.inner.try_lock()?;
        Some(Guarded { inner, held: self.order.take() }) // who does not get it does not wait for it either
    }

    #[cfg(not(feature = "shuttle"))]
    #[inline]
    pub(super) fn is_locked(&self) -> bool {
        self.inner.is_locked()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<T: Default> Default for Mutex<T> {
    /// A leaf.
    fn default() -> Self {
        Mutex::new(T::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// One writer or many readers. Whoever reads already does not read once more: a writer may wait in between.
pub(crate) struct RwLock<T> {
    order: Order,
    inner: inner::RwLock<T>,
}

/// Whoever has it reads.
pub(crate) type RwLockReadGuard<'a, T> = Guarded<inner::RwLockReadGuard<'a, T>>;

/// Whoever has it writes.
pub(crate) type RwLockWriteGuard<'a, T> = Guarded<inner::RwLockWriteGuard<'a, T>>;

impl<T> RwLock<T> {
    /// A lock of that rank.
    pub(crate) const fn ranked(rank: Rank, value: T) -> Self {
        RwLock { order: Order::of(rank), inner: inner::RwLock::new(value) }
    }

    #[inline]
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
        let held = self.order.take();
        Guarded { inner: self.inner.read(), held }
    }

    #[inline]
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
        let held = self.order.take();
        Guarded { inner: self.inner.write(), held }
    }
}

impl<T: Default> Default for RwLock<T> {
    /// A leaf.
    fn default() -> Self {
        RwLock::ranked(Rank::Leaf, T::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
