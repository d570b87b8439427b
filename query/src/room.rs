//! Room on the stack for what recurses over a statement, whoever's thread it is on.
//!
//! A statement is parsed, planned and dropped on the thread that polls it: a worker of a server with two mebibytes of stack, or one of a
//! caller with less. [`Roomy`] polls, and drops, on a stack that suffices for the deepest statement that `depth` lets through, of a
//! build without optimisation too. On a thread that has as much of its own ([`crate::QueryThreads`]) it costs nothing.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

/// The stack that is made, and that threads of this crate have, in bytes. What is not used of it takes no memory.
pub(crate) const STACK_BYTES: usize = 64 << 20;
/// The least that has to be left of the present one.
const LEFT_BYTES: usize = STACK_BYTES / 2;

/// Does something with room on the stack.
pub(crate) fn with_room<T>(work: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(LEFT_BYTES, STACK_BYTES, work)
}

/// A future or a stream that has room whenever it is polled, and when it is dropped.
pub(crate) struct Roomy<T>(Option<Pin<Box<T>>>);

impl<T> Roomy<T> {
    pub(crate) fn new(inner: T) -> Self {
        Roomy(Some(Box::pin(inner)))
    }
}

impl<T: Future> Future for Roomy<T> {
    type Output = T::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T::Output> {
        let Some(inner) = &mut self.0 else { return Poll::Pending }; // it is there until this is dropped
        with_room(|| inner.as_mut().poll(context))
    }
}

impl<T: Stream> Stream for Roomy<T> {
    type Item = T::Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T::Item>> {
        let Some(inner) = &mut self.0 else { return Poll::Ready(None) };
        with_room(|| inner.as_mut().poll_next(context))
    }
}

impl<T> Drop for Roomy<T> {
    fn drop(&mut self) {
        if let Some(inner) = self.0.take() {
            with_room(|| drop(inner));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    /// How much of the stack is left.
    fn left() -> usize {
        stacker::remaining_stack().unwrap_or(0)
    }

    struct Dropped;

    impl Drop for Dropped {
        fn drop(&mut self) {
            assert!(left() >= LEFT_BYTES);
        }
    }

    #[test]
    fn there_is_room_to_poll_and_to_drop() {
        assert!(left() < LEFT_BYTES, "a thread of a test has less");
        let there = Roomy::new(async { left() }).now_or_never();
        assert!(there.is_some_and(|there| there >= LEFT_BYTES));
        let held = Dropped;
        drop(Roomy::new(async move { drop(held) }));
        assert!(left() < LEFT_BYTES);
    }
}
