//! Wake-ups: who listens before a notification is woken by it, be it a thread or a task.
//!
//! The interface, and what a notification means, are those of the crate `event_listener`: `notify(n)` sees to it that `n`
//! listeners are notified, those that were notified before and have not gone among them, in the order in which they began
//! to listen. One that is dropped with a notification passes it on; one that waited for it or discarded it has used it up.
//!
//! # Why not that crate
//! It wakes while it holds the lock of its list, and whoever is woken needs that lock first. Where waking takes longer
//! than being woken, a thread is woken only to wait once more. Here nobody is woken under the lock, and callers are to hold
//! none either that the woken one needs; `benches/RESULTS.md` says what it gained. As it is built of the locks of [`sync`](crate::sync), the tests of
//! races try it itself and no model of it.
//!
//! # No wake-up is lost
//! Who waits listens first and looks afterwards whether he has to; who changes something changes it first and notifies
//! afterwards. [`Event::listen`] ends and [`Event::notify`] begins with a fence, so one of the two sees the other, and a
//! notification that nobody listens for costs a fence and a load.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::Mutex;
use super::atomic::{AtomicUsize, Ordering, fence};
use super::parker::Parker;

/// What is listened to.
#[derive(Debug, Default)]
pub(crate) struct Event(Arc<List>);

/// Who waits to be notified: a thread by [`wait`](EventListener::wait) and its like, a task by awaiting it. It counts from
/// when it was made, so ask once more whether there is anything to wait for before you wait.
#[derive(Debug)]
#[must_use = "a listener that is dropped hears nothing"]
pub struct EventListener {
    list: Arc<List>,
    number: u64,
    /// It is in the list.
    listens: bool,
}

#[derive(Debug, Default)]
struct List {
    listeners: Mutex<Listeners>,
    /// How many of them were not notified.
    unnotified: AtomicUsize,
}

#[derive(Debug, Default)]
struct Listeners {
    next: u64,
    by_number: BTreeMap<u64, Listening>,
    /// How many are notified: all below `first_unnotified` and no others.
    notified: usize,
    first_unnotified: u64,
}

#[derive(Debug)]
enum Listening {
    /// With whom to wake, once somebody waits.
    Unnotified(Option<Waker>),
    Notified,
}

impl Event {
    pub(crate) fn new() -> Self {
        Event::default()
    }

    /// Begins to listen.
    pub(crate) fn listen(&self) -> EventListener {
        let mut listeners = self.0.listeners.lock();
        let number = listeners.next;
        listeners.next += 1;
        listeners.by_number.insert(number, Listening::Unnotified(None));
        self.0.unnotified.fetch_add(1, Ordering::SeqCst);
        drop(listeners);
        fence(Ordering::SeqCst);
        EventListener { list: self.0.clone(), number, listens: true }
    }

    /// Sees to it that so many listeners are notified, or all where there are fewer. Gives how many were not before.
    pub(crate) fn notify(&self, count: usize) -> usize {
        fence(Ordering::SeqCst);
        self.0.notify(count)
    }
}

impl List {
    fn notify(&self, count: usize) -> usize {
        if self.unnotified.load(Ordering::SeqCst) == 0 {
            return 0;
        }
        let mut listeners = self.listeners.lock();
        let (newly, wakers) = listeners.notify(count);
        self.unnotified.fetch_sub(newly, Ordering::SeqCst);
        drop(listeners);
        wakers.into_iter().for_each(Waker::wake);
        newly
    }
}

impl Listeners {
    /// Notifies until `count` are. Gives how many more there are now, and whom to wake.
    fn notify(&mut self, count: usize) -> (usize, Vec<Waker>) {
        let (mut newly, mut wakers) = (0, Vec::new());
        let wanted = count.saturating_sub(self.notified);
        for (number, listening) in self.by_number.range_mut(self.first_unnotified..).take(wanted) {
            if let Listening::Unnotified(Some(waker)) = std::mem::replace(listening, Listening::Notified) {
                wakers.push(waker);
            }
            self.first_unnotified = number + 1;
            newly += 1;
        }
        self.notified += newly;
        (newly, wakers)
    }
}

impl EventListener {
    /// Waits until it is notified.
    pub fn wait(mut self) {
        self.park_until(None);
    }

    /// Waits until it is notified, for so long at most. `None` when it was not.
    pub fn wait_timeout(mut self, timeout: Duration) -> Option<()> {
        if timeout.is_zero() {
            #[cfg(feature = "shuttle")]
            shuttle::thread::yield_now(); // whoever is to notify in time may do so now
            return self.leave().then_some(());
        }
        self.park_until(Instant::now().checked_add(timeout)).then_some(())
    }

    /// Waits until it is notified, until then at most. `None` when it was not.
    pub fn wait_deadline(mut self, deadline: Instant) -> Option<()> {
        self.park_until(Some(deadline)).then_some(())
    }

    /// Listens no more, and uses a notification up. True when there was one.
    pub fn discard(mut self) -> bool {
        self.leave()
    }

    fn park_until(&mut self, deadline: Option<Instant>) -> bool {
        let parker = Arc::new(Parker::default());
        let waker = Waker::from(parker.clone());
        while self.register(&waker).is_pending() {
            if !parker.park_until(deadline) {
                return self.leave();
            }
        }
        true
    }

    /// Has `waker` woken by the notification. Ready, and out of the list, when there was one.
    fn register(&mut self, waker: &Waker) -> Poll<()> {
        let mut listeners = self.list.listeners.lock();
        let old = match listeners.by_number.get_mut(&self.number) {
            Some(Listening::Unnotified(Some(old))) if old.will_wake(waker) => return Poll::Pending,
            Some(Listening::Unnotified(old)) => old.replace(waker.clone()),
            Some(Listening::Notified) | None => {
                drop(listeners);
                self.leave();
                return Poll::Ready(());
            }
        };
        drop(listeners);
        drop(old); // it may run whatever it likes
        Poll::Pending
    }

    /// Leaves the list. True when it was notified.
    fn leave(&mut self) -> bool {
        if !std::mem::take(&mut self.listens) {
            return false;
        }
        let mut listeners = self.list.listeners.lock();
        let left = listeners.by_number.remove(&self.number);
        let was_notified = matches!(left, Some(Listening::Notified));
        if was_notified {
            listeners.notified -= 1;
        } else {
            self.list.unnotified.fetch_sub(1, Ordering::SeqCst);
        }
        drop(listeners);
        was_notified
    }
}

impl Future for EventListener {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.register(context.waker())
    }
}

impl Drop for EventListener {
    fn drop(&mut self) {
        if self.leave() {
            self.list.notify(1);
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::task::Wake;

    use super::*;

    fn is_notified(listener: EventListener) -> bool {
        listener.wait_timeout(Duration::ZERO).is_some()
    }

    #[test]
    fn as_many_are_notified_as_were_asked_for_those_from_before_among_them() {
        let cases: [(&[usize], [bool; 3]); 6] = [
            (&[], [false; 3]),
            (&[0], [false; 3]),
            (&[1], [true, false, false]),
            (&[1, 1], [true, false, false]),
            (&[1, 2], [true, true, false]),
            (&[usize::MAX], [true; 3]),
        ];
        for (counts, expected) in cases {
            let event = Event::new();
            let listeners = [(); 3].map(|()| event.listen());
            let newly: usize = counts.iter().map(|count| event.notify(*count)).sum();
            assert_eq!(newly, expected.iter().filter(|notified| **notified).count(), "{counts:?}");
            let heard = listeners.map(EventListener::discard);
            assert_eq!(heard, expected, "{counts:?}");
        }
    }

    #[test]
    fn who_is_dropped_passes_a_notification_on_and_who_has_used_it_does_not() {
        let event = Event::new();
        let [first, second, third] = [(); 3].map(|()| event.listen());
        event.notify(1);
        drop(first);
        assert!(is_notified(second));
        assert!(!is_notified(third));

        let [first, second, third] = [(); 3].map(|()| event.listen());
        drop(second); // from the middle, unnotified
        event.notify(1);
        assert!(first.discard());
        assert_eq!(event.notify(1), 1);
        assert!(is_notified(third));
        assert_eq!(event.notify(usize::MAX), 0);
    }

    #[test]
    fn who_listens_afterwards_is_not_notified() {
        let event = Event::new();
        event.notify(usize::MAX);
        assert!(!is_notified(event.listen()));
    }

    #[test]
    fn a_thread_wakes_up_and_a_deadline_ends_its_sleep() {
        let (event, long) = (Event::new(), Duration::from_secs(300));
        let [forever, timed, late] = [(); 3].map(|()| event.listen());
        assert!(late.wait_deadline(Instant::now()).is_none());
        std::thread::scope(|scope| {
            scope.spawn(|| forever.wait());
            let timed = scope.spawn(|| timed.wait_timeout(long));
            assert_eq!(event.notify(usize::MAX), 2);
            assert!(timed.join().unwrap().is_some());
        });
    }

    /// Whoever is woken may ask the event for anything at once: no lock is held.
    #[test]
    fn nobody_is_woken_under_a_lock() {
        struct Asks(Event, Mutex<Option<EventListener>>);
        impl Wake for Asks {
            fn wake(self: Arc<Self>) {
                *self.1.lock() = Some(self.0.listen());
                self.0.notify(1);
            }
        }
        let asks = Arc::new(Asks(Event::new(), Mutex::default()));
        let (waker, mut listener) = (Waker::from(asks.clone()), asks.0.listen());
        let mut context = Context::from_waker(&waker);
        assert!(Pin::new(&mut listener).poll(&mut context).is_pending());
        assert!(Pin::new(&mut listener).poll(&mut context).is_pending());
        asks.0.notify(1);
        assert!(Pin::new(&mut listener).poll(&mut context).is_ready());
        let asked = asks.1.lock().take();
        assert!(asked.is_some_and(|listener| !is_notified(listener)));
    }

    /// The last waker is the one that counts: a task may move from one thread to another.
    #[test]
    fn a_task_that_moved_is_woken_where_it_is() {
        struct Counts(AtomicUsize);
        impl Wake for Counts {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let (event, counts) = (Event::new(), [(); 2].map(|()| Arc::new(Counts(AtomicUsize::new(0)))));
        let mut listener = event.listen();
        for count in &counts {
            let waker = Waker::from(count.clone());
            assert!(Pin::new(&mut listener).poll(&mut Context::from_waker(&waker)).is_pending());
        }
        event.notify(1);
        assert_eq!(counts.map(|count| count.0.load(Ordering::SeqCst)), [0, 1]);
    }
}
