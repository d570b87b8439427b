//! A thread that sleeps until its waker is woken.

use std::sync::Arc;
use std::task::Wake;
use std::time::Instant;

use super::standard::{Condvar, Mutex};

/// What a thread sleeps on. As [`std::thread::park`], with a place of its own: the thread's is for whoever called.
#[derive(Debug, Default)]
pub(super) struct Parker {
    woken: Mutex<bool>,
    condition: Condvar,
}

impl Parker {
    /// Sleeps until it is woken. False when the deadline came first.
    pub(super) fn park_until(&self, deadline: Option<Instant>) -> bool {
        let mut woken = self.woken.lock();
        while !*woken {
            let Some(deadline) = deadline else {
                woken = self.condition.wait(woken);
                continue;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            woken = self.condition.wait_timeout(woken, left);
        }
        *woken = false;
        true
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    /// The lock is free by the time the kernel is asked: who is woken finds it so.
    fn wake_by_ref(self: &Arc<Self>) {
        *self.woken.lock() = true;
        self.condition.notify_one();
    }
}
