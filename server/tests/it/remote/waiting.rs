//! Threads of the server that others need wait for nobody.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay_client::{Changes, Claim, Client, ConnectOptions, Error};
use forebay_server::Server;
use forebay_store::{
    BudgetChange, Clock, EventListener, NewRow, Options, Snapshot, Store, SystemClock, Timestamp, Wait,
};
use tokio::runtime::Handle;

use crate::conformance::*;

/// Longer than anything here takes, on any machine.
const LONG: Duration = Duration::from_secs(300);

/// The machine's clock. The next worker of the server who asks it for the time does something first, and whoever waits says whether
/// that is on a thread that others need.
struct Watched {
    first: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    waits: Mutex<Sender<bool>>,
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watched")
    }
}

impl Clock for Watched {
    fn now(&self) -> Timestamp {
        let is_worker = std::thread::current().name() == Some("forebay-grpc-worker");
        let first = self.first.lock().unwrap().take_if(|_| is_worker);
        first.into_iter().for_each(|first| first());
        SystemClock.now()
    }

    fn wait(&self, listener: EventListener, deadline: Option<Timestamp>) -> bool {
        // A runtime lets nobody block a thread of its own, and anybody block another.
        let blocks = || Handle::try_current().map(|here| here.block_on(async {}));
        let others_need_it = catch_unwind(AssertUnwindSafe(blocks)).is_err();
        _ = self.waits.lock().unwrap().send(others_need_it); // the test may be over
        SystemClock.wait(listener, deadline)
    }
}

/// Rows that take more memory than a lowered budget allows, for as long as the snapshot is there: no checkpoint can let go of them.
fn many_rows(client: &Client, store: &Store) -> Snapshot {
    let mut changes = Changes::new();
    changes.insert_rollouts("solver", NewRow::new(0, "q_0_0").unwrap(), 20_000, [("prompt", "?".into())]);
    assert_eq!(client.write(&changes).unwrap().len(), 20_000);
    store.snapshot()
}

fn lower(store: &Store, memory_bytes_max: Option<u64>) {
    store.change_budgets(&BudgetChange::new().memory_bytes_max(memory_bytes_max)).unwrap();
}

/// A server whose clock is watched, and what it says of those who wait.
fn watched() -> (World, Arc<Watched>, Receiver<bool>) {
    let (waits, waited) = channel();
    let clock = Arc::new(Watched { first: Mutex::default(), waits: waits.into() });
    let options = Options::default().clock(clock.clone()).capacity_wait(LONG);
    let mut world = World::with(Way::Embedded, options);
    let builder = Server::builder().grpc("127.0.0.1:0".parse().unwrap());
    world.server = Some(builder.bind(world.store.clone(), "127.0.0.1:0".parse().unwrap()).unwrap());
    world.way = Way::Tcp;
    (world, clock, waited)
}

// What is small is made on the thread that has read it where nothing holds writers back; and then an operator lowers a budget.
#[test]
fn a_small_write_that_has_to_wait_after_all_waits_on_no_thread_that_others_need() {
    let (world, clock, waited) = watched();
    let client = world.client();
    let table = solver(&client);
    let _held = many_rows(&client, &world.store);
    let store = world.store.clone();
    *clock.first.lock().unwrap() = Some(Box::new(move || lower(&store, Some(1 << 20))));
    let mut late = Changes::new();
    late.insert("solver", NewRow::new(0, "late_0_0").unwrap(), [("prompt", "?".into())]);
    let late = client.write_async(&late).unwrap();
    assert!(!waited.recv_timeout(LONG).unwrap(), "it waits on a thread that others need");
    assert!(clock.first.lock().unwrap().is_none(), "the budget was lowered under it");
    assert_eq!(table.counts().unwrap().written, 20_000, "others are answered meanwhile");
    lower(&world.store, None);
    assert_eq!(late.wait().unwrap().len(), 1);
}

fn finish(claim: Claim) -> Result<(), Error> {
    let verdict = verdicts(&claim, 1.0);
    claim.finish(&verdict).map(drop)
}

// There are 96 threads for what may wait: who waits for room with what a claim came to takes a third of them at most, as other writers do,
// and one client three quarters of those.
#[test]
fn claims_that_wait_for_room_to_be_finished_in_leave_threads_to_those_who_make_it() {
    const CLAIMS: usize = 80;
    let (world, _, waited) = watched();
    let client = world.client();
    let (table, judge) = (solver(&client), judge(&client));
    (0..CLAIMS).for_each(|at| _ = row(&table, 0, &format!("r{at}_0_0"), None));
    let claims: Vec<_> =
        (0..CLAIMS).map(|_| judge.claim(up_to(1), Wait::No).unwrap().expect("a row for each")).collect();
    let _held = many_rows(&client, &world.store);
    lower(&world.store, Some(1 << 20));
    std::thread::scope(|scope| {
        let waiting: Vec<_> = claims.into_iter().map(|claim| scope.spawn(move || finish(claim))).collect();
        (0..CLAIMS / 4).for_each(|_| assert!(!waited.recv_timeout(LONG).unwrap(), "on a thread for that"));
        let hasty = ConnectOptions::default().call_time_max(Duration::from_secs(20));
        let other = Client::connect(&world.address(), &hasty.outage_time_max(Duration::ZERO)).unwrap();
        let answered = (0..50).try_for_each(|_| other.sync());
        lower(&world.store, None);
        answered.unwrap();
        waiting.into_iter().for_each(|waits| waits.join().unwrap().unwrap());
    });
}
