//! Locks that know their place among the others.

use std::fmt;
use std::ops::{Deref, DerefMut};

use super::held::{Held, Order};
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
#[must_use = "the lock is held for as long as this is kept"]
pub(crate) struct MutexGuard<'a, T> {
    // Given back first.
    inner: inner::MutexGuard<'a, T>,
    _held: Held,
}

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
        MutexGuard { inner: self.inner.lock(), _held: held }
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let inner = self.inner.try_lock()?;
        Some(MutexGuard { inner, _held: self.order.take() }) // who does not get it does not wait for it either
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

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// One writer or many readers. Whoever reads already does not read once more: a writer may wait in between.
pub(crate) struct RwLock<T> {
    order: Order,
    inner: inner::RwLock<T>,
}

/// Whoever has it reads.
#[must_use = "the lock is held for as long as this is kept"]
pub(crate) struct RwLockReadGuard<'a, T> {
    // Given back first.
    inner: inner::RwLockReadGuard<'a, T>,
    _held: Held,
}

/// Whoever has it writes.
#[must_use = "the lock is held for as long as this is kept"]
pub(crate) struct RwLockWriteGuard<'a, T> {
    // Given back first.
    inner: inner::RwLockWriteGuard<'a, T>,
    _held: Held,
}

impl<T> RwLock<T> {
    /// A lock of that rank.
    pub(crate) const fn ranked(rank: Rank, value: T) -> Self {
        RwLock { order: Order::of(rank), inner: inner::RwLock::new(value) }
    }

    #[inline]
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
        let held = self.order.take();
        RwLockReadGuard { inner: self.inner.read(), _held: held }
    }

    #[inline]
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
        let held = self.order.take();
        RwLockWriteGuard { inner: self.inner.write(), _held: held }
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

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}
