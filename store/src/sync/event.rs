//! A model of `event_listener`: who listens before a notification is woken by it.
//!
//! As there, `notify(n)` sees to it that `n` listeners are notified, those that were notified before among them, in the
//! order in which they began; one that is dropped with a notification passes it on, one that waited for it or discarded
//! it has used it up. What is in the real one beyond that (its lists, its orders of memory) is not modelled.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use shuttle::sync::{Condvar, Mutex, MutexGuard};

/// What is listened to.
#[derive(Debug, Default)]
pub(crate) struct Event(Arc<List>);

/// Who waits to be notified.
#[derive(Debug)]
pub struct EventListener {
    list: Arc<List>,
    number: u64,
}

#[derive(Debug, Default)]
struct List {
    listeners: Mutex<Listeners>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Listeners {
    next: u64,
    by_number: BTreeMap<u64, State>,
}

#[derive(Debug)]
enum State {
    Waiting(Option<Waker>),
    Notified,
}

/// Blocking waits.
pub(crate) trait Listener {
    /// Waits to be notified.
    fn wait(self);

    /// Whether it has been notified: a model waits for no time.
    fn wait_timeout(self, timeout: Duration) -> Option<()>;

    /// As [`wait_timeout`](Listener::wait_timeout).
    fn wait_deadline(self, deadline: Instant) -> Option<()>;

    /// Gives the place up, and the notification with it. True when there was one.
    fn discard(self) -> bool;
}

impl Event {
    pub(crate) fn new() -> Self {
        Event::default()
    }

    pub(crate) fn listen(&self) -> EventListener {
        let mut listeners = self.0.lock();
        let number = listeners.next;
        listeners.next += 1;
        listeners.by_number.insert(number, State::Waiting(None));
        EventListener { list: self.0.clone(), number }
    }

    pub(crate) fn notify(&self, count: usize) -> usize {
        self.0.notify(count)
    }
}

impl List {
    fn lock(&self) -> MutexGuard<'_, Listeners> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self, count: usize) -> usize {
        let mut listeners = self.lock();
        let states = listeners.by_number.values_mut();
        let (notified, waiting): (Vec<_>, Vec<_>) =
            states.partition(|state| matches!(state, State::Notified));
        let mut wakers = Vec::new();
        let mut woken = 0;
        for state in waiting.into_iter().take(count.saturating_sub(notified.len())) {
            if let State::Waiting(waker) = std::mem::replace(state, State::Notified) {
                wakers.extend(waker);
            }
            woken += 1;
        }
        drop(listeners);
        self.changed.notify_all();
        wakers.into_iter().for_each(Waker::wake);
        woken
    }
}

impl EventListener {
    /// Leaves the list. True when it was notified.
    fn leave(&self) -> bool {
        matches!(self.list.lock().by_number.remove(&self.number), Some(State::Notified))
    }
}

impl Listener for EventListener {
    fn wait(self) {
        let mut listeners = self.list.lock();
        while !matches!(listeners.by_number.get(&self.number), Some(State::Notified)) {
            listeners = self.list.changed.wait(listeners).unwrap_or_else(PoisonError::into_inner);
        }
        listeners.by_number.remove(&self.number);
    }

    fn wait_timeout(self, _timeout: Duration) -> Option<()> {
        shuttle::thread::yield_now(); // whoever is to notify in time may do so now
        self.leave().then_some(())
    }

    fn wait_deadline(self, _deadline: Instant) -> Option<()> {
        self.wait_timeout(Duration::ZERO)
    }

    fn discard(self) -> bool {
        self.leave()
    }
}

impl Future for EventListener {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut listeners = self.list.lock();
        match listeners.by_number.get_mut(&self.number) {
            Some(State::Waiting(waker)) => {
                *waker = Some(context.waker().clone());
                Poll::Pending
            }
            Some(State::Notified) | None => {
                listeners.by_number.remove(&self.number);
                Poll::Ready(())
            }
        }
    }
}

impl Drop for EventListener {
    fn drop(&mut self) {
        if self.leave() {
            self.list.notify(1);
        }
    }
}
