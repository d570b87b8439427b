//! The ready queue: whoever completes a row and whoever waits for it, in whatever order they come.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay_store::*;
use shuttle::future::block_on;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

use crate::explore::explore;
use crate::support::*;

/// A table with rows that lack a response and a reward, and a consumer that is ready with both. Leases never end, so
/// who waits waits to be woken.
struct Queue {
    store: Store,
    table: Table,
    rows: Vec<Row>,
    consumer: ConsumerHandle,
}

impl Queue {
    fn new(consumer: Consumer, rows: usize) -> Queue {
        let world = World::new();
        let store = Store::open(ROOT, world.options().lease(Duration::MAX)).unwrap();
        let table = store.create_table("solver", solver_schema()).unwrap();
        let consumer = store.create_consumer("consumer", consumer.ready(["response", "reward"])).unwrap();
        let rows = (0..rows).map(|i| table.insert(0, &format!("q_0_{i}"), []).unwrap()).collect();
        Queue { store, table, rows, consumer }
    }

    /// Two threads complete the rows, a column each, from both ends.
    fn complete(&self) -> Vec<thread::JoinHandle<()>> {
        let write = |rows: Vec<Row>, column: &'static str| {
            let table = self.table.clone();
            thread::spawn(move || {
                for row in rows {
                    let value: Value<'_> = if column == "reward" { 1.0.into() } else { vec![1, 2, 3].into() };
                    table.write(row, [(column, value)]).unwrap();
                }
            })
        };
        let backwards = self.rows.iter().rev().copied().collect();
        vec![write(self.rows.clone(), "response"), write(backwards, "reward")]
    }
}

/// What was finished, by sample id. Nothing waits while it is locked, so it need not be a model.
#[derive(Clone, Default)]
struct Finished(Arc<Mutex<Vec<String>>>);

impl Finished {
    fn finish(&self, claim: Claim) {
        let taken = ids(&claim);
        claim.finish(|_| Ok(())).unwrap();
        self.0.lock().unwrap().extend(taken);
    }

    fn check(&self, rows: usize) {
        let mut finished = self.0.lock().unwrap().clone();
        finished.sort();
        let expected: Vec<String> = (0..rows).map(|i| format!("q_0_{i}")).collect();
        assert_eq!(finished, expected, "every row once");
    }
}

fn wait_for(task: &ConsumerHandle, rule: MicroBatch) -> Claim {
    task.claim(rule, "waits", Wait::Forever).unwrap().unwrap()
}

fn poll_for(task: &ConsumerHandle) -> Claim {
    loop {
        match task.claim(MicroBatch::of(1), "polls", Wait::No).unwrap() {
            Some(claim) => return claim,
            None => thread::yield_now(),
        }
    }
}

// FX-91, FX-15
#[test]
fn every_row_is_claimed_once_and_no_wake_up_is_lost() {
    explore(200, || {
        let queue = Queue::new(Consumer::task(["solver"]), 5);
        let finished = Finished::default();
        let spawn = |take: fn(&ConsumerHandle, &Finished)| {
            let (task, finished) = (queue.consumer.clone(), finished.clone());
            thread::spawn(move || take(&task, &finished))
        };
        let mut threads = queue.complete();
        // One gives its first row back, for somebody who is asleep by then; as many are asked for as there are.
        threads.push(spawn(|task, finished| {
            drop(wait_for(task, MicroBatch::of(1)));
            finished.finish(wait_for(task, MicroBatch::of(1)));
        }));
        threads.push(spawn(|task, finished| finished.finish(wait_for(task, MicroBatch::of(2)))));
        threads.push(spawn(|task, finished| {
            let claim = block_on(task.claim_async(MicroBatch::of(1), "awaits").unwrap()).unwrap();
            finished.finish(claim.unwrap());
        }));
        threads.push(spawn(|task, finished| finished.finish(poll_for(task))));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        finished.check(5);
        assert!(queue.consumer.claim(MicroBatch::up_to(9), "me", Wait::No).unwrap().is_none());
        assert!(queue.store.claims().iter().all(|claim| claim.progress != ClaimProgress::Leased));
    });
}

// FX-91
#[test]
fn of_two_who_wait_for_two_rows_nobody_sleeps_on() {
    explore(400, || {
        let queue = Queue::new(Consumer::task(["solver"]), 2);
        queue.rows.iter().for_each(|&row| queue.table.write(row, [("response", vec![1].into())]).unwrap());
        let finished = Finished::default();
        let mut threads: Vec<_> = (0..2)
            .map(|_| {
                let (task, finished) = (queue.consumer.clone(), finished.clone());
                thread::spawn(move || finished.finish(wait_for(&task, MicroBatch::of(1))))
            })
            .collect();
        threads.extend(queue.rows.iter().map(|&row| {
            let table = queue.table.clone();
            thread::spawn(move || table.write(row, [("reward", 1.0.into())]).unwrap())
        }));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        finished.check(2);
    });
}

// FX-91
#[test]
fn a_future_that_is_dropped_hands_its_wake_up_on() {
    explore(200, || {
        let queue = Queue::new(Consumer::task(["solver"]), 1);
        let mut threads = queue.complete();
        let task = queue.consumer.clone();
        threads.push(thread::spawn(move || {
            let future = task.claim_async(MicroBatch::of(1), "gives up").unwrap();
            block_on(async {
                let mut future = Box::pin(future);
                let once =
                    std::future::poll_fn(|context| std::task::Poll::Ready(future.as_mut().poll(context)));
                drop(once.await); // a claim, which goes back, or nothing
                (0..thread_rng().gen_range(0..40)).for_each(|_| thread::yield_now());
            });
        }));
        let (task, finished) = (queue.consumer.clone(), Finished::default());
        let mine = finished.clone();
        threads.push(thread::spawn(move || mine.finish(wait_for(&task, MicroBatch::of(1)))));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        finished.check(1);
    });
}

// FX-91
#[test]
fn everyone_who_waits_for_a_steps_rows_learns_that_there_are_no_more() {
    explore(200, || {
        let queue = Queue::new(Consumer::trainer(["solver"]), 3);
        let step = Arc::new(queue.store.begin_step(StepPlan::new().rows(&queue.consumer, 3)).unwrap());
        let mut threads = queue.complete();
        let taken = Arc::new(Mutex::new(Vec::new()));
        for _ in 0..2 {
            let (step, train, taken) = (step.clone(), queue.consumer.clone(), taken.clone());
            threads.push(thread::spawn(move || {
                while let Some(claim) = step.next(&train, MicroBatch::of(2), Wait::Forever).unwrap() {
                    let rows = ids(&claim);
                    claim.accumulated().unwrap();
                    taken.lock().unwrap().extend(rows);
                }
            }));
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        Finished(taken).check(3);
        let step = Arc::into_inner(step).unwrap();
        assert_eq!(step.commit([("solver", vec![])]).unwrap().rows, 3);
    });
}

// FX-B18
#[test]
fn a_claim_lets_in_who_waits_to_insert() {
    explore(100, || {
        let world = World::new();
        let store = Store::open(ROOT, world.options().lease(Duration::MAX)).unwrap();
        let table = store.create_table("solver", solver_schema()).unwrap();
        let declared =
            Consumer::task(["solver"]).ready(["reward"]).rate_limiter(RateLimiter::new(1.0, 1, 1.0));
        let task = store.create_consumer("task", declared).unwrap();
        let insert = |i: usize| {
            let (store, table) = (store.clone(), table.clone());
            move || {
                let mut batch = store.batch();
                let row = NewRow::new(0, &format!("q_0_{i}")).unwrap();
                batch.wait(Wait::Forever).insert(&table, row, [("reward", 1.0.into())]).unwrap();
                batch.commit().unwrap();
            }
        };
        (0..2).for_each(|i| insert(i)()); // as many as may come before anybody claims
        let mut threads = vec![thread::spawn(insert(2)), thread::spawn(insert(3))];
        // Claims what is there and asks for nothing that is not.
        threads.push(thread::spawn(move || {
            for _ in 0..2 {
                wait_for(&task, MicroBatch::of(1)).finish(|_| Ok(())).unwrap();
            }
        }));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(table.counts().written, 4);
    });
}

// FX-B18
#[test]
fn who_inserts_and_who_claims_never_both_wait() {
    const ROWS: usize = 6;
    explore(200, || {
        let world = World::new();
        let store = Store::open(ROOT, world.options().lease(Duration::MAX)).unwrap();
        let table = store.create_table("solver", solver_schema()).unwrap();
        let declared =
            Consumer::task(["solver"]).ready(["reward"]).rate_limiter(RateLimiter::new(1.0, 1, 1.0));
        let task = store.create_consumer("task", declared).unwrap();
        let insert = |from: usize| {
            let (store, table) = (store.clone(), table.clone());
            thread::spawn(move || {
                for i in from..from + ROWS / 2 {
                    let mut batch = store.batch();
                    batch.wait(Wait::Forever);
                    let row = NewRow::new(0, &format!("q_0_{i}")).unwrap();
                    batch.insert(&table, row, [("reward", 1.0.into())]).unwrap();
                    batch.commit().unwrap();
                }
            })
        };
        let mut threads = vec![insert(0), insert(ROWS / 2)];
        let finished = Finished::default();
        for (rows, times) in [(1, 3), (3, 1)] {
            let (task, finished) = (task.clone(), finished.clone());
            threads.push(thread::spawn(move || {
                (0..times).for_each(|_| finished.finish(wait_for(&task, MicroBatch::of(rows))));
            }));
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        finished.check(ROWS);
    });
}
