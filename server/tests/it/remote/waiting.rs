//! Threads of the server that others need wait for nobody.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay_client::{Changes, Client};
use forebay_server::Server;
use forebay_store::{BudgetChange, Clock, NewRow, Options, Store, SystemClock, Timestamp};
use tokio::runtime::Handle;

use crate::conformance::*;

const HOUR: Duration = Duration::from_secs(3600);

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

    fn wait(&self, listener: event_listener::EventListener, deadline: Option<Timestamp>) -> bool {
        // A runtime lets nobody block a thread of its own, and anybody block another.
        let blocks = || Handle::try_current().map(|here| here.block_on(async {}));
        let others_need_it = catch_unwind(AssertUnwindSafe(blocks)).is_err();
        _ = self.waits.lock().unwrap().send(others_need_it); // the test may be over
        SystemClock.wait(listener, deadline)
    }
}

/// Rows that take so much memory that a lowered budget is below it.
fn many_rows(client: &Client) {
    let mut changes = Changes::new();
    changes.insert_rollouts("solver", NewRow::new(0, "q_0_0").unwrap(), 20_000, [("prompt", "?".into())]);
    assert_eq!(client.write(&changes).unwrap().len(), 20_000);
}

fn lower(store: &Store, memory_bytes_max: Option<u64>) {
    store.change_budgets(&BudgetChange::new().memory_bytes_max(memory_bytes_max)).unwrap();
}

// What is small is made on the thread that has read it where nothing holds writers back; and then an operator lowers a budget.
#[test]
fn a_small_write_that_has_to_wait_after_all_waits_on_no_thread_that_others_need() {
    let (waits, waited) = channel();
    let clock = Arc::new(Watched { first: Mutex::default(), waits: waits.into() });
    let options = Options::default().clock(clock.clone()).capacity_wait(HOUR);
    let mut world = World::with(Way::Embedded, options);
    let builder = Server::builder().grpc("127.0.0.1:0".parse().unwrap());
    world.server = Some(builder.bind(world.store.clone(), "127.0.0.1:0".parse().unwrap()).unwrap());
    world.way = Way::Tcp;
    let client = world.client();
    let table = solver(&client);
    many_rows(&client);
    let store = world.store.clone();
    *clock.first.lock().unwrap() = Some(Box::new(move || lower(&store, Some(1 << 20))));
    let mut late = Changes::new();
    late.insert("solver", NewRow::new(0, "late_0_0").unwrap(), [("prompt", "?".into())]);
    let late = client.write_async(&late).unwrap();
    assert!(!waited.recv_timeout(HOUR).unwrap(), "it waits on a thread that others need");
    assert!(clock.first.lock().unwrap().is_none(), "the budget was lowered under it");
    assert_eq!(table.counts().unwrap().written, 20_000, "others are answered meanwhile");
    lower(&world.store, None);
    assert_eq!(late.wait().unwrap().len(), 1);
}
