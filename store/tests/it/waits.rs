//! Waiting for a claim: by polling, on a thread, and on any async runtime.

use std::collections::HashSet;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use forebay_store::*;

use crate::support::*;

fn task(world: &World) -> (Store, Table, ConsumerHandle) {
    let (store, table) = solver(world);
    let consumer = store.create_consumer("task", Consumer::task(["solver"])).unwrap();
    (store, table, consumer)
}

/// Counts how often it is woken.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A future with a bell, polled by hand.
pub(crate) struct Polled<F> {
    future: Pin<Box<F>>,
    bell: Arc<Bell>,
}

impl<F: Future> Polled<F> {
    pub(crate) fn new(future: F) -> Self {
        Polled { future: Box::pin(future), bell: Arc::default() }
    }

    pub(crate) fn poll(&mut self) -> Option<F::Output> {
        let waker = Waker::from(self.bell.clone());
        match self.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        }
    }

    pub(crate) fn rung(&self) -> usize {
        self.bell.0.load(Ordering::SeqCst)
    }
}

fn insert(table: &Table, from: usize, rows: usize) {
    (from..from + rows).for_each(|i| _ = finished(table, 0, &format!("q_0_{i}")));
}

#[test]
fn a_waiting_claim_is_woken_once_a_micro_batch() {
    let (_, table, consumer) = task(&World::new());
    let mut polled = Polled::new(consumer.claim_async(MicroBatch::of(16), "me").unwrap());
    assert!(polled.poll().is_none());
    insert(&table, 0, 15);
    assert_eq!(polled.rung(), 0, "fifteen rows are no micro-batch of sixteen");
    insert(&table, 15, 1);
    assert_eq!(polled.rung(), 1);
    let claim = polled.poll().unwrap().unwrap().unwrap();
    assert_eq!(claim.len(), 16);
}

#[test]
fn as_many_are_woken_as_there_is_work_for() {
    let (store, table, consumer) = task(&World::new());
    let wait = || {
        let mut polled = Polled::new(consumer.claim_async(MicroBatch::of(2), "me").unwrap());
        assert!(polled.poll().is_none());
        polled
    };
    let mut waiting: Vec<_> = (0..4).map(|_| wait()).collect();
    let mut batch = store.batch();
    for i in 0..5 {
        batch.insert(&table, NewRow::new(0, &format!("q_0_{i}")).unwrap(), []).unwrap();
    }
    batch.commit().unwrap();
    assert_eq!(waiting.iter().map(Polled::rung).collect::<Vec<_>>(), [1, 1, 0, 0]);
    let claims: Vec<_> = waiting[..2].iter_mut().map(|polled| polled.poll().unwrap().unwrap()).collect();
    assert!(waiting[2].poll().is_none());
    drop(claims); // four rows come back, and two more can go on
    assert_eq!(waiting[2].rung() + waiting[3].rung(), 2);
    assert!(waiting.drain(2..).all(|mut polled| polled.poll().unwrap().unwrap().is_some()));
}

#[test]
fn a_future_that_is_dropped_loses_no_row_and_steals_no_wake_up() {
    let (_, table, consumer) = task(&World::new());
    let future = || Polled::new(consumer.claim_async(MicroBatch::of(1), "me").unwrap());
    let (mut first, mut second) = (future(), future());
    assert!(first.poll().is_none() && second.poll().is_none());
    insert(&table, 0, 1);
    assert_eq!((first.rung(), second.rung()), (1, 0));
    drop(first);
    assert_eq!(second.rung(), 1);
    assert_eq!(ids(&second.poll().unwrap().unwrap().unwrap()), ["q_0_0"]);
}

// Whether a row fits a budget only he can say whose it is.
#[test]
fn a_row_that_is_too_long_for_one_wakes_another_whom_it_suffices() {
    let (_, table, consumer) = task(&World::new());
    let cases: [(MicroBatch, MicroBatch); 2] = [
        (MicroBatch::tokens("response", 1_000), MicroBatch::up_to(8)),
        (MicroBatch::tokens("response", 1_000), MicroBatch::tokens("response", 50)),
    ];
    for (number, (first, second)) in cases.into_iter().enumerate() {
        let mut in_vain = Polled::new(consumer.claim_async(first, "a").unwrap());
        let mut other = Polled::new(consumer.claim_async(second, "b").unwrap());
        assert!(in_vain.poll().is_none() && other.poll().is_none());
        let cells = [("response", vec![1_i32; 50].into()), ("reward", 1.0.into())];
        table.insert(0, &format!("q_{number}_0"), cells).unwrap();
        assert!(in_vain.poll().is_none(), "the next one may still fit");
        assert_eq!(other.rung(), 1, "{second:?}");
        other.poll().unwrap().unwrap().unwrap().finish(|_| Ok(())).unwrap();
    }
}

#[test]
fn a_future_that_is_never_polled_takes_nothing() {
    let (_, table, consumer) = task(&World::new());
    insert(&table, 0, 1);
    drop(consumer.claim_async(MicroBatch::of(1), "me").unwrap());
    assert!(consumer.claim(MicroBatch::of(1), "me", Wait::No).unwrap().is_some());
}

#[test]
fn who_waits_in_a_step_learns_of_its_last_micro_batch_and_of_its_end() {
    let (store, table, train) = trained(&World::new(), None);
    let step = store.begin_step(StepPlan::new().rows(&train, 3)).unwrap();
    let future = || Polled::new(step.next_async(&train, MicroBatch::of(2)).unwrap());
    let (mut first, mut last, mut after) = (future(), future(), future());
    assert!(first.poll().is_none() && last.poll().is_none() && after.poll().is_none());
    insert(&table, 0, 2);
    let claim = first.poll().unwrap().unwrap().unwrap();
    assert!(last.poll().is_none());
    insert(&table, 2, 1);
    let small = last.poll().unwrap().unwrap().unwrap();
    assert_eq!(small.len(), 1, "the last may be smaller");
    assert!(after.rung() > 0);
    assert!(after.poll().unwrap().unwrap().is_none());
    drop((claim, small, step));
    let step = store.begin_step(StepPlan::new().rows(&train, 9)).unwrap();
    let mut orphan = Polled::new(step.next_async(&train, MicroBatch::of(9)).unwrap());
    assert!(orphan.poll().is_none());
    drop(step);
    assert_eq!(orphan.rung(), 1);
    assert!(matches!(orphan.poll().unwrap().unwrap_err().cause(), Cause::StepClosed { .. }));
}

#[test]
fn ranks_that_wait_without_a_thread_wake_each_other_and_learn_of_the_steps_end() {
    let (store, table, train) = trained(&World::new(), None);
    let step = store.begin_step(StepPlan::new().rows(&train, 2)).unwrap();
    let join = |rank| Arc::new(step.join(&train, Gang::new("dp", rank, 2)).unwrap());
    let members = [join(0), join(1)];
    let futures = || members.each_ref().map(|member| Polled::new(member.next_async(MicroBatch::of(2))));
    let [mut first, mut second] = futures();
    assert!(first.poll().is_none() && second.poll().is_none());
    insert(&table, 0, 2);
    let claim = first.poll().unwrap().unwrap().unwrap();
    assert!(second.rung() > 0, "the other rank's part is there");
    let same = second.poll().unwrap().unwrap().unwrap();
    assert_eq!((claim.epoch(), claim.rows()), (same.epoch(), same.rows()));
    assert!(futures().iter_mut().all(|rank| rank.poll().unwrap().unwrap().is_none()), "all is handed out");
    drop((claim, same, step));
    let step = store.begin_step(StepPlan::new().rows(&train, 9)).unwrap();
    let member = Arc::new(step.join(&train, Gang::new("dp", 0, 2)).unwrap());
    let mut orphan = Polled::new(member.next_async(MicroBatch::of(9)));
    assert!(orphan.poll().is_none());
    drop(step);
    assert!(orphan.rung() > 0);
    assert!(matches!(orphan.poll().unwrap().unwrap_err().cause(), Cause::StepClosed { .. }));
}

#[test]
fn who_waits_is_told_when_the_store_is_closed() {
    let (store, _, consumer) = task(&World::new());
    let mut polled = Polled::new(consumer.claim_async(MicroBatch::of(1), "me").unwrap());
    assert!(polled.poll().is_none());
    store.close("tired");
    assert_eq!(polled.rung(), 1);
    assert_eq!(polled.poll().unwrap().unwrap_err().kind(), Kind::Closed);
}

#[test]
fn a_trainers_rows_are_not_for_a_tasks_future() {
    let (_, _, train) = trained(&World::new(), None);
    let refused = train.claim_async(MicroBatch::of(1), "me").unwrap_err();
    assert!(matches!(refused.cause(), Cause::ConsumerKind { .. }));
}

// FX-91: writers, sleepers, futures and pollers at once; every row is handed out once, and nobody sleeps for ever
#[test]
fn no_wake_up_is_lost_between_threads() {
    const ROWS: usize = 1_200;
    let store = World::new().open_in_real_time();
    let table = store.create_table("solver", solver_schema()).unwrap();
    let consumer = store.create_consumer("task", Consumer::task(["solver"])).unwrap();
    let taken = taken::Taken::default();
    std::thread::scope(|scope| {
        for claimer in 0..4_usize {
            let (consumer, taken, store) = (&consumer, &taken, &store);
            scope.spawn(move || {
                while taken.count() < ROWS {
                    let rule = MicroBatch::up_to(1 + claimer);
                    let claim = if claimer % 2 == 0 {
                        consumer.claim(rule, "thread", Wait::Forever)
                    } else {
                        block_on(pin!(consumer.claim_async(rule, "future").unwrap()))
                    };
                    let Ok(Some(claim)) = claim else { return };
                    if claim.epoch().1 % 5 == 0 {
                        continue; // dropped: the rows come back
                    }
                    let mine = ids(&claim);
                    // Who sleeps moves the clock on to the next lease's end: a claim may be gone by now.
                    let Ok(_) = claim.finish(|_| Ok(())) else { continue };
                    if taken.add(mine) == ROWS {
                        store.close("all is done"); // wakes whoever waits still
                    }
                }
            });
        }
        for writer in 0..2 {
            let table = &table;
            scope.spawn(move || insert(table, writer * ROWS / 2, ROWS / 2));
        }
    });
    assert_eq!(taken.into_set().len(), ROWS);
}

/// Runs a future on this thread.
fn block_on<F: Future>(mut future: Pin<&mut F>) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        if let Poll::Ready(outcome) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return outcome;
        }
        std::thread::park();
    }
}

mod taken {
    use super::*;
    use std::sync::Mutex;

    /// The rows that were finished.
    #[derive(Default)]
    pub(super) struct Taken(Mutex<HashSet<String>>);

    impl Taken {
        pub(super) fn add(&self, rows: Vec<String>) -> usize {
            let mut taken = self.0.lock().unwrap();
            for row in rows {
                assert!(taken.insert(row), "no row twice");
            }
            taken.len()
        }

        pub(super) fn count(&self) -> usize {
            self.0.lock().unwrap().len()
        }

        pub(super) fn into_set(self) -> HashSet<String> {
            self.0.into_inner().unwrap()
        }
    }
}
