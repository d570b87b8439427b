//! Who moves bytes.
//!
//! # Threads
//! Whoever waits for an answer drives the runtime meanwhile, so a call costs no change of threads. The thread
//! `forebay-client` drives it where nobody waits so: for as long as there are tasks (claims that come to futures, a session that
//! is begun anew), or several callers at the same time, who would hand it to each other with every answer; and for a moment every
//! [`LOOK_EVERY`], so that pings are answered and the end of a session is heard.

use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{Handle, Runtime};
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

/// How often is looked what has come while nobody drives.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long such a look takes: the time to read what is there.
const LOOK: Duration = Duration::from_millis(1);
/// Through how many tasks a message goes at most, until it is with the kernel: the call, the channel, the connection, and one
/// for luck.
const HANDS: usize = 4;
/// How long the thread stays after it was wanted last, at most.
const STAY: Duration = Duration::from_millis(20);

/// The runtime of a client, and the thread that drives it where no caller does.
#[derive(Debug)]
pub(super) struct Driver {
    runtime: Option<Arc<Runtime>>,
    demand: Arc<Demand>,
    thread: Option<JoinHandle<()>>,
}

/// Begins tasks. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Spawner {
    handle: Handle,
    demand: Arc<Demand>,
}

/// Who wants the runtime to be driven.
#[derive(Debug, Default)]
struct Demand {
    /// Threads that wait for an answer.
    callers: AtomicUsize,
    /// Tasks that nobody waits for on a thread.
    tasks: AtomicUsize,
    ended: Mutex<bool>,
    /// Told when the thread may be wanted, or at the end.
    changed: Condvar,
    /// The same while it drives.
    over: Notify,
}

#[derive(Clone, Copy, Debug)]
enum Who {
    Caller,
    Task,
}

/// A task or a caller, until it is dropped.
#[derive(Debug)]
pub(super) struct Wanted(Arc<Demand>, Who);

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.count(self.1).fetch_sub(1, Ordering::SeqCst);
    }
}

impl Demand {
    fn count(&self, who: Who) -> &AtomicUsize {
        match who {
            Who::Caller => &self.callers,
            Who::Task => &self.tasks,
        }
    }

    /// A caller or a task begins.
    fn enter(self: &Arc<Self>, who: Who) -> Wanted {
        self.count(who).fetch_add(1, Ordering::SeqCst);
        if self.wants_thread() {
            let _ended = self.ended(); // the thread has looked, and waits, or will look
            self.changed.notify_one();
        }
        Wanted(self.clone(), who)
    }

    fn wants_thread(&self) -> bool {
        self.tasks.load(Ordering::SeqCst) > 0 || self.callers.load(Ordering::SeqCst) > 1
    }

    fn ended(&self) -> MutexGuard<'_, bool> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner) // a flag
    }

    /// Waits on this thread until it may be wanted. Whether there is an end of that.
    fn wait(&self) -> bool {
        let waits = |ended: &mut bool| !*ended && !self.wants_thread();
        let waited = self.changed.wait_timeout_while(self.ended(), LOOK_EVERY, waits);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Goes on for as long as the thread is wanted.
    async fn last(&self) {
        sleep(LOOK).await;
        while self.wants_thread() && timeout(STAY, self.over.notified()).await.is_err() {}
    }
}

impl Driver {
    /// A runtime with nothing to do.
    pub(super) fn new() -> io::Result<Self> {
        let runtime = Arc::new(tokio::runtime::Builder::new_current_thread().enable_all().build()?);
        let demand = Arc::new(Demand::default());
        let (driven, by) = (runtime.clone(), demand.clone());
        let drive = move || {
            while !by.wait() {
                driven.block_on(by.last());
            }
        };
        let thread = std::thread::Builder::new().name("forebay-client".to_owned()).spawn(drive)?;
        Ok(Driver { runtime: Some(runtime), demand, thread: Some(thread) })
    }

    pub(super) fn spawner(&self) -> Option<Spawner> {
        let handle = self.runtime.as_ref()?.handle().clone();
        Some(Spawner { handle, demand: self.demand.clone() })
    }

    /// Waits for what a future gives, on a thread of any kind; none where its task was ended.
    pub(super) fn wait<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        if Handle::try_current().is_err() {
            let _wanted = self.demand.enter(Who::Caller);
            return Some(self.runtime.as_ref()?.block_on(future));
        }
        // A thread of another runtime must not drive this one.
        let (done, outcome) = std::sync::mpsc::sync_channel(1);
        self.spawner()?.spawn(async move { _ = done.send(future.await) });
        outcome.recv().ok()
    }
}

impl Driver {
    /// Begins a task that nobody waits for. Where it is `short`, what it sends at first is with the kernel when this returns,
    /// and the rest of it goes on as that of [`spawn_idle`](Spawner::spawn_idle).
    pub(super) fn send_off(
        &self,
        task: impl Future<Output = ()> + Send + 'static,
        short: bool,
    ) -> Option<()> {
        let (spawner, runtime) = (self.spawner()?, self.runtime.as_ref()?);
        if !short || Handle::try_current().is_ok() {
            spawner.spawn(task);
            return Some(());
        }
        let _wanted = self.demand.enter(Who::Caller); // if another drives, the thread does when that one has gone
        spawner.spawn_idle(task);
        runtime.block_on(async {
            for _ in 0..HANDS {
                yield_now().await; // everything that can go on goes on
            }
        });
        Some(())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        *self.demand.ended() = true;
        self.demand.changed.notify_one();
        self.demand.over.notify_one();
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            tracing::error!("the client's thread panicked");
        }
        if let Some(runtime) = self.runtime.take().and_then(Arc::into_inner) {
            runtime.shutdown_background();
        }
    }
}

impl Spawner {
    /// Begins a task that nobody waits for on a thread. The runtime is driven until it ends.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let wanted = self.wanted();
        self.handle.spawn(async move {
            task.await;
            drop(wanted);
        });
    }

    /// Begins a task that goes on when something else is done, or once every [`LOOK_EVERY`].
    pub(super) fn spawn_idle(
        &self,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> tokio::task::AbortHandle {
        self.handle.spawn(task).abort_handle()
    }

    /// Has the runtime driven until it is dropped.
    pub(super) fn wanted(&self) -> Wanted {
        self.demand.enter(Who::Task)
    }

    /// Makes this thread one of the runtime's, for what has to be made inside of one.
    pub(super) fn inside(&self) -> tokio::runtime::EnterGuard<'_> {
        self.handle.enter()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread::{self, ThreadId};

    use super::*;

    /// The thread that a task runs on that says so to whoever waits.
    fn driven_by(driver: &Driver) -> ThreadId {
        let spawner = driver.spawner().unwrap();
        let asked = async move {
            let (says, said) = tokio::sync::oneshot::channel();
            spawner.spawn_idle(async move { _ = says.send(thread::current().id()) });
            said.await.unwrap()
        };
        driver.wait(asked).unwrap()
    }

    #[test]
    fn a_caller_drives_what_it_waits_for() {
        let driver = Driver::new().unwrap();
        let mine = (0..1_000).filter(|_| driven_by(&driver) == thread::current().id()).count();
        assert!(mine > 0, "not once, though the thread drives for a moment only");
    }

    #[test]
    fn what_nobody_waits_for_is_driven_by_the_thread() {
        let driver = Driver::new().unwrap();
        let spawner = driver.spawner().unwrap();
        for idle in [false, true] {
            let (says, said) = mpsc::channel();
            let task = async move {
                sleep(Duration::from_millis(2)).await; // longer than a look
                says.send(thread::current().name().map(str::to_owned)).unwrap();
            };
            match idle {
                false => spawner.spawn(task),
                true => _ = spawner.spawn_idle(task),
            }
            assert_eq!(said.recv().unwrap().as_deref(), Some("forebay-client"));
        }
    }

    #[test]
    fn callers_from_everywhere_wait_for_each_other_and_all_are_answered() {
        let driver = Driver::new().unwrap();
        let barrier = Arc::new(tokio::sync::Barrier::new(9));
        let meet = |barrier: Arc<tokio::sync::Barrier>| async move {
            for _ in 0..200 {
                barrier.wait().await;
            }
        };
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| driver.wait(meet(barrier.clone())).unwrap());
            }
            for _ in 0..4 {
                let other = tokio::runtime::Builder::new_current_thread().build().unwrap();
                let (driver, barrier) = (&driver, barrier.clone());
                scope.spawn(move || other.block_on(async { driver.wait(meet(barrier)).unwrap() }));
            }
            driver.spawner().unwrap().spawn(meet(barrier.clone()));
        });
    }

    #[test]
    fn the_end_waits_for_nothing() {
        let (says, said) = mpsc::channel::<()>();
        let driver = Driver::new().unwrap();
        driver.spawner().unwrap().spawn(async move {
            std::future::pending::<()>().await;
            drop(says);
        });
        drop(driver);
        assert!(said.recv().is_err(), "its tasks are gone");
    }
}
