//! Which stores the calls of this thread are in.
//!
//! A call lets Python run now and then: whoever watches it, and the handlers of signals. What those do may be anything but to close
//! the store under the call, which closing would wait for, and which waits for them.

use std::cell::RefCell;

thread_local! {
    /// The handle of each call that is under way, by its address, the innermost last.
    static UNDER_WAY: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// A call of this thread, until it is dropped.
#[derive(Debug)]
pub(crate) struct Within;

fn address<T>(handle: &T) -> usize {
    std::ptr::from_ref(handle).addr()
}

impl Within {
    /// Begins a call on the store of that handle.
    pub(crate) fn enter<T>(handle: &T) -> Self {
        UNDER_WAY.with_borrow_mut(|all| all.push(address(handle)));
        Within
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        UNDER_WAY.with_borrow_mut(Vec::pop);
    }
}

/// Whether a call of this thread on the store of that handle is under way.
pub(crate) fn is_within<T>(handle: &T) -> bool {
    UNDER_WAY.with_borrow(|all| all.contains(&address(handle)))
}
